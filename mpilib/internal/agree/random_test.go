package agree

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// run makes random things happen to w until nothing but deaths can happen. Members also start
// before their last agreement is decided. At most deaths members die, each losing some of its
// messages in flight.
func run(w *world, r *rand.Rand, deaths int) error {
	crashOdds, startOdds, tellOdds := 20+r.IntN(400), 1+r.IntN(20), 1+r.IntN(20)
	for w.canMove() {
		i := r.IntN(w.size)
		m := w.members[i]
		var err error
		switch unheard := w.dead.Minus(m.failed); {
		case !w.alive(i):
		case w.dead.Len() < deaths && r.IntN(crashOdds) == 0:
			w.crash(i)
			w.net = slices.DeleteFunc(w.net, func(p packet) bool { return p.from == i && r.IntN(2) == 0 })
		case w.started(i) < w.goal && r.IntN(startOdds) == 0:
			err = w.start(i)
		case !unheard.Empty() && r.IntN(tellOdds) == 0: // of some of them
			dead := slices.Collect(unheard.Ranks())
			r.Shuffle(len(dead), func(a, b int) { dead[a], dead[b] = dead[b], dead[a] })
			err = w.tell(i, dead[:1+r.IntN(len(dead))]...)
		case len(w.net) > 0:
			err = w.deliver(r.IntN(len(w.net)))
		}
		if err != nil {
			return err
		}
	}
	return w.finished()
}

// canMove reports whether anything but a death can happen.
func (w *world) canMove() bool {
	for r, m := range w.members {
		if w.alive(r) && (w.started(r) < w.goal || !w.dead.In(m.failed)) {
			return true
		}
	}
	return len(w.net) > 0
}

// Sizes up to 33, several agreements one after the other, messages that overtake, and any number of
// deaths.
func TestRandom(t *testing.T) {
	worlds := 300
	if testload.Full() {
		worlds = 3000
	}
	died, lost := 0, 0
	for seed := range uint64(worlds) {
		one := func(record bool) (*world, error) {
			r := rand.New(rand.NewPCG(seed, 7))
			shape := binomial
			if r.IntN(3) == 0 {
				shape = chain
			}
			w := newWorld(1+r.IntN(33), 1+r.IntN(4), shape)
			w.record = record
			return w, run(w, r, r.IntN(w.size))
		}
		w, err := one(false)
		if err != nil {
			again, _ := one(true)
			t.Fatalf("seed %d, %d members, %d agreements: %v\n%s", seed, w.size, w.goal, err, again.story())
		}
		died += w.dead.Len()
		for r := range w.dead.Ranks() {
			if int(w.members[r].last.Seq) < len(w.decided) {
				lost++
			}
		}
	}
	t.Logf("%d deaths, %d before the last decision", died, lost)
	if lost < worlds {
		t.Errorf("only %d of %d deaths were in the middle of anything", lost, died)
	}
}

// Without failures an agreement takes 4(n-1) messages on paths of 4⌈log2 n⌉.
func TestCostWithoutFailures(t *testing.T) {
	for n := 1; n <= 130; n++ {
		w := newWorld(n, 2, binomial)
		for seq := 1; seq <= 2; seq++ {
			w.sent = 0
			for r := range n {
				_, out := w.members[r].Start(Value{})
				if err := w.carry(r, out, 0); err != nil {
					t.Fatal(err)
				}
			}
			deepest := 0
			for len(w.net) > 0 {
				deepest = max(deepest, w.net[0].depth)
				if err := w.pass(0); err != nil {
					t.Fatal(err)
				}
			}
			for r, m := range w.members {
				if m.Last().Seq != uint64(seq) {
					t.Fatalf("%d members: %d has not decided", n, r)
				}
			}
			log := 0
			for 1<<log < n {
				log++
			}
			if w.sent != 4*(n-1) || deepest > 4*log {
				t.Errorf("%d members: %d messages, want %d; %d one after the other, want at most %d", n, w.sent, 4*(n-1), deepest, 4*log)
			}
		}
	}
}

// pass and carry are deliver and did without the checks, which are limited to 64 members.
func (w *world) pass(i int) error {
	p := w.net[i]
	w.net = slices.Delete(w.net, i, i+1)
	msg, err := Parse(p.bytes, w.size)
	if err != nil {
		return err
	}
	out, err := w.members[p.to].Receive(p.from, msg)
	if err != nil {
		return err
	}
	return w.carry(p.to, out, p.depth)
}

func (w *world) carry(from int, out Out, depth int) error {
	for _, e := range out.Send {
		if e.To == from {
			return fmt.Errorf("rank %d sends to itself", from)
		}
		w.sent++
		w.net = append(w.net, packet{from, e.To, e.Message.Append(nil), depth + 1})
	}
	return nil
}

// The sum is a sum: failures that only one member knows, acknowledgements that only some give.
func TestSum(t *testing.T) {
	w := newWorld(4, 1, binomial)
	w.dead = SetOf(3)
	if err := w.tell(1, 3); err != nil {
		t.Fatal(err)
	}
	given := []Value{
		{Flags: 0b1110, Max: 7, Acked: SetOf(3)},
		{Flags: 0b0111, Max: 9, Acked: SetOf(3)},
		{Flags: 0b1101, Max: 8},
	}
	for r, v := range given {
		_, out := w.members[r].Start(v)
		if err := w.carry(r, out, 0); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.members[1].WaitsFor(); !got.Equal(SetOf(0)) {
		t.Errorf("rank 1 waits for %v", got)
	}
	if got := w.members[2].WaitsFor(); !got.Equal(SetOf(3)) {
		t.Errorf("rank 2 waits for %v", got)
	}
	if err := w.tell(0, 3); err != nil {
		t.Fatal(err)
	}
	for len(w.net) > 0 {
		if w.net[0].to == 3 {
			w.net = w.net[1:]
			continue
		}
		if err := w.pass(0); err != nil {
			t.Fatal(err)
		}
	}
	want := Value{Flags: 0b0100, Max: 9, Failed: SetOf(3)}
	for r := range given {
		d := w.members[r].Last()
		if d.Seq != 1 || !equal(d.Value, want) {
			t.Errorf("rank %d decided %d on %+v, want %+v", r, d.Seq, d.Value, want)
		}
		if !d.Value.Unacknowledged().Equal(SetOf(3)) || !w.members[r].Failed().Equal(SetOf(3)) || !w.members[r].WaitsFor().Empty() {
			t.Errorf("rank %d: unacknowledged %v, failed %v, waits for %v", r, d.Value.Unacknowledged(), w.members[r].Failed(), w.members[r].WaitsFor())
		}
	}
}
