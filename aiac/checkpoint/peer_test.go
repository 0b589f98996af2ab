package checkpoint

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// saver returns the peer of task 0 with holders 1 and 2, pieces of 10 bytes and three of them under way.
func saver(t *testing.T) *peer {
	t.Helper()
	p := newPeer(0, places("a1", "a2", "b1"), nil, NewStore(0))
	p.piece, p.window = 10, 30
	if !slices.Equal(p.holders, []int{1, 2}) {
		t.Fatalf("holders %v", p.holders)
	}
	return p
}

// save saves a state of so many bytes to the holder whose turn it must be, and returns what is sent.
func save(t *testing.T, p *peer, want int, iteration uint64, bytes int) []envelope {
	t.Helper()
	holder, ok := p.target()
	if !ok || holder != want {
		t.Fatalf("iteration %d: it is the turn of holder %d, %v; want %d", iteration, holder, ok, want)
	}
	data := append(p.memory(), make([]byte, bytes)...)
	return p.save(holder, identify(State{0, iteration, data}), data)
}

func taken(iteration, offset uint64) message {
	return message{kind: kindTaken, iteration: iteration, offset: offset}
}

// offsets returns where the pieces that are sent to a holder begin.
func offsets(out []envelope, holder int) (all []uint64) {
	for _, e := range out {
		if e.to == holder && e.m.kind == kindPut {
			all = append(all, e.m.offset)
		}
	}
	return all
}

// The holders take turns; one that has not taken its last state is passed over, and with both under way none is due.
func TestHoldersTakeTurns(t *testing.T) {
	p := saver(t)
	save(t, p, 1, 1, 5)
	save(t, p, 2, 2, 5)
	if h, ok := p.target(); ok {
		t.Errorf("holder %d gets a state while both have one under way", h)
	}
	p.receive(2, taken(2, 5))
	save(t, p, 2, 3, 5) // 1 is slow
	p.receive(1, taken(1, 5))
	save(t, p, 1, 4, 5)
	p.receive(1, taken(4, 5))
	p.receive(2, taken(3, 5))
	save(t, p, 2, 5, 5) // longest ago
	p.receive(2, taken(5, 5))
	save(t, p, 1, 6, 5)
	if want := (Counts{Saved: 6, Kept: 5, Bytes: 30}); p.counts != want {
		t.Errorf("counts %+v, want %+v", p.counts, want)
	}
}

// No more than the window is under way to a holder.
func TestWindow(t *testing.T) {
	p := saver(t)
	if got := offsets(save(t, p, 1, 1, 75), 1); !slices.Equal(got, []uint64{0, 10, 20}) {
		t.Errorf("at first the pieces %v are sent", got)
	}
	for _, c := range []struct {
		taken uint64
		want  []uint64
	}{{10, []uint64{30}}, {10, nil}, {60, nil}, {5, nil}, {30, []uint64{40, 50}}, {70, nil}, {60, []uint64{60, 70}}, {70, nil}} {
		if got := offsets(p.receive(1, taken(1, c.taken)), 1); !slices.Equal(got, c.want) {
			t.Errorf("with %d bytes taken the pieces %v are sent, want %v", c.taken, got, c.want)
		}
	}
	p.receive(1, taken(1, 75))
	if p.counts.Kept != 1 || p.streams[1] != nil {
		t.Errorf("%+v when all is taken", p.counts)
	}
}

// A refusal ends a state, and those that follow for its other pieces do not end the next one.
func TestRefusal(t *testing.T) {
	p := saver(t)
	save(t, p, 1, 1, 30)
	p.receive(1, taken(1, 0))
	save(t, p, 2, 2, 30)
	save(t, p, 1, 3, 30)
	p.receive(1, taken(1, 0))
	p.receive(1, taken(1, 30))
	if want := (Counts{Saved: 3, Refused: 1, Bytes: 90}); p.counts != want || p.streams[1] == nil {
		t.Errorf("counts %+v, want %+v", p.counts, want)
	}
}

// When a holder is lost another one takes its place, and the memory of states is neither lost nor used twice.
func TestHolderLost(t *testing.T) {
	p := newPeer(0, places("a1", "a2", "b1", "c1"), nil, NewStore(0))
	save(t, p, 1, 1, 5)
	second := p.holders[1]
	save(t, p, second, 2, 5)
	p.lost(second)
	save(t, p, 5-second, 3, 5)
	p.lost(1)
	p.lost(5 - second)
	if h, ok := p.target(); ok || p.counts.Lost != 3 {
		t.Errorf("after the loss of all: holder %d, %+v", h, p.counts)
	}
	if out := p.save(1, identity{}, make([]byte, 1)); out != nil {
		t.Errorf("%v is sent to a lost holder", out)
	}
	seen := map[*byte]bool{}
	for b := p.memory(); b != nil; b = p.memory() {
		if at := &b[:1][0]; seen[at] {
			t.Error("memory is used twice")
		} else {
			seen[at] = true
		}
	}
	if len(seen) != 3 {
		t.Errorf("there is memory for %d states, want 3", len(seen))
	}
}

// A holder that has a state under way gets no other one: of two that were begun for it, the second is dropped.
func TestOneStateAtATime(t *testing.T) {
	p := saver(t)
	save(t, p, 1, 1, 50)
	if out := p.save(1, identity{iteration: 2}, nil); out != nil || p.streams[1].id.iteration != 1 {
		t.Errorf("%v is sent besides", out)
	}
}

// What Fetch says if there is no state names both holders, and what became of them.
func TestNoStateNamesHolders(t *testing.T) {
	for _, c := range []struct {
		want  string
		is    error
		reply func(p *peer, number uint64) error
	}{
		{"checkpoint: no state of task 0: holder 1 (a/2): lost; holder 2 (b/1): lost; holder 5 (c/1): no state; others: no state (1)", ErrNoState, func(p *peer, n uint64) error {
			p.lost(1)
			p.lost(2)
			p.receive(0, message{kind: kindNone, fetch: n})
			p.receive(4, message{kind: kindNone, fetch: n})
			p.receive(5, message{kind: kindNone, fetch: n})
			return nil
		}},
		{"checkpoint: the state of task 0: timeout: holder 1 (a/2): no answer; holder 2 (b/1): no state; others: lost (1); others: no answer (1)", nil, func(p *peer, n uint64) error {
			p.receive(2, message{kind: kindNone, fetch: n})
			p.lost(5)
			return p.abandon(n, errors.New("timeout"))
		}},
		{"checkpoint: no state of task 0: holder 1 (a/2): data that does not fit its hash; holder 2 (b/1): a state of 101 bytes, above the bound of 100; others: lost (1); others: pieces that were not asked for (1)", ErrNoState, func(p *peer, n uint64) error {
			p.receive(0, message{kind: kindNone, fetch: n})
			p.receive(1, message{kind: kindOffer, fetch: n, iteration: 7, length: 4, sum: 12345})
			p.receive(2, message{kind: kindOffer, fetch: n, iteration: 9, length: 101})
			p.receive(4, message{kind: kindOffer, fetch: n, iteration: 8, length: 10})
			p.lost(5)
			p.receive(4, message{kind: kindData, fetch: n, offset: 3, data: make([]byte, 10)})
			p.receive(1, message{kind: kindData, fetch: n, data: []byte("lies")})
			return nil
		}},
		{"checkpoint: no state of task 0: holder 1 (a/2): lost; holder 2 (b/1): pieces that were not asked for; others: lost (2)", ErrNoState, func(p *peer, n uint64) error {
			p.receive(0, message{kind: kindNone, fetch: n})
			p.receive(2, message{kind: kindOffer, fetch: n, iteration: 7, length: 4})
			for _, task := range []int{1, 4, 5} {
				p.lost(task)
			}
			p.receive(2, message{kind: kindData, fetch: n})
			return nil
		}},
	} {
		p := newPeer(3, places("a1", "a2", "b1", "a2", "a3", "c1"), nil, NewStore(100))
		for i, power := range []float64{1, 1e3, 1e3, 1, 1, 1} { // so that the rows can name the holders
			p.places[i].Power = power
		}
		if got := Holders(0, p.places, nil); !slices.Equal(got, []int{1, 2}) {
			t.Fatalf("holders %v", got)
		}
		var cause error
		number, _ := p.fetch(0, func(_ State, err error) { cause = err })
		if err := c.reply(p, number); err != nil {
			cause = err
		}
		if cause == nil || cause.Error() != c.want || c.is != nil && !errors.Is(cause, c.is) || c.is == nil && errors.Is(cause, ErrNoState) {
			t.Errorf("%v\nwant %s", cause, c.want)
		}
	}
	alone := newPeer(0, places("a1"), nil, NewStore(0))
	alone.fetch(0, func(_ State, err error) {
		if !errors.Is(err, ErrNoState) || !strings.Contains(err.Error(), "no other task") {
			t.Errorf("alone: %v", err)
		}
	})
}

// A holder that is replaced has lost what it held: the state on its way there is given up, and it gets the next one, although
// another holder has waited longer.
func TestReplacedHolder(t *testing.T) {
	p := newPeer(0, make([]Place, 3), nil, NewStore(0))
	save := func(iteration uint64) (holder int) {
		holder, ok := p.target()
		if !ok {
			t.Fatalf("iteration %d: no holder", iteration)
		}
		data := []byte{1}
		p.save(holder, identify(State{0, iteration, data}), data)
		return holder
	}
	keep := func(holder int, iteration uint64) {
		p.receive(holder, message{kind: kindTaken, iteration: iteration, offset: 1})
	}
	first := save(1)
	keep(first, 1)
	second := save(2)
	if second == first {
		t.Fatalf("both states go to %d", first)
	}
	p.replaced(second)
	if p.counts.Lost != 1 || p.places[second].IsLost {
		t.Errorf("%+v, %+v", p.counts, p.places)
	}
	if next := save(3); next != second {
		t.Errorf("the next state goes to %d, not to the new process of %d", next, second)
	}
}
