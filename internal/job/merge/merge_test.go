package merge

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// whole does what a Merger does, with all that was ever written at hand: it prints what the texts of those begin with that
// are not known to have died.
type whole struct {
	texts       []string
	ended, died []bool
	last        int
	printed     string
	differs     bool // for good
}

func newWhole(n int) *whole {
	return &whole{texts: make([]string, n), ended: make([]bool, n), died: make([]bool, n)}
}

func (w *whole) clone() *whole {
	c := *w
	c.texts, c.ended, c.died = slices.Clone(w.texts), slices.Clone(w.ended), slices.Clone(w.died)
	return &c
}

// counted returns the numbers of those that are printed.
func (w *whole) counted() (all []int) {
	for i := range w.texts {
		if !w.died[i] {
			all = append(all, i)
		}
	}
	if all == nil {
		all = []int{w.last}
	}
	return all
}

// print prints what is to be printed. It is an error if that contradicts what was.
func (w *whole) print() error {
	if w.differs {
		return nil
	}
	all := w.counted()
	next, over, same := w.texts[all[0]], true, true
	for _, i := range all {
		for !strings.HasPrefix(w.texts[i], next) {
			next = next[:len(next)-1]
		}
		over = over && w.ended[i]
		same = same && w.texts[i] == w.texts[all[0]]
	}
	if over && !same {
		w.differs = true
		next = w.texts[all[0]]
	}
	if !strings.HasPrefix(next, w.printed) {
		return fmt.Errorf("%q was printed, and is contradicted by %q of %d", w.printed, w.texts, all)
	}
	w.printed = next
	return nil
}

// play plays replicas that write pieces, in every order, each dying at any moment.
type play struct {
	t      *testing.T
	pieces [][]string // of each replica
	plays  int
	ended  map[string]int // how plays ended
}

func (p *play) from(m *Merger, w *whole, printed string, next []int, path string) {
	printed += drain(p.t, m)
	if err := w.print(); err != nil {
		p.t.Fatalf("%q: after%s: %v", p.pieces, path, err)
	}
	_, final := m.Difference()
	if printed != w.printed || final != w.differs {
		p.t.Fatalf("%q: after%s: printed %q, differs for good: %v, want %q, %v", p.pieces, path, printed, final, w.printed, w.differs)
	}
	over := true
	for c := range next {
		if w.ended[c] {
			continue
		}
		over = false
		for _, dies := range []bool{false, true} {
			m, w, next, did := clone(m), w.clone(), slices.Clone(next), ""
			switch {
			case dies || next[c] == len(p.pieces[c]):
				m.End(c, dies)
				w.ended[c], w.died[c] = true, dies
				if did = "ends"; dies {
					did, w.last = "dies", c
				}
			default:
				piece := p.pieces[c][next[c]]
				next[c]++
				if err := m.Write(c, []byte(piece)); err != nil {
					p.t.Fatal(err)
				}
				w.texts[c] += piece
				did = "writes " + piece
			}
			p.from(m, w, printed, next, fmt.Sprintf("%s, %d %s", path, c, did))
		}
	}
	if over {
		p.plays++
		p.ended[fmt.Sprintf("differs %v, dead %v", w.differs, slices.Contains(w.died, true))]++
	}
}

// clone returns a copy of a Merger that keeps nothing in files.
func clone(m *Merger) *Merger {
	c := *m
	c.writers = slices.Clone(m.writers)
	for i := range c.writers {
		c.writers[i].kept.memory = bytes.Clone(m.writers[i].kept.memory)
	}
	return &c
}

// drain returns what is to be printed.
func drain(t *testing.T, m *Merger) (printed string) {
	t.Helper()
	for {
		out, err := m.Next()
		if err != nil {
			t.Fatal(err)
		}
		if len(out) == 0 {
			return printed
		}
		printed += string(out)
	}
}

// Whatever the order in which replicas write, end and die, that is printed which all have written that may still be printed,
// and never contradicted.
func TestInEveryOrder(t *testing.T) {
	ended, plays := map[string]int{}, 0
	for _, pieces := range [][][]string{
		{{"a", "b", "c"}, {"ab", "c"}},
		{{"abc"}, {"a", "b", "c"}},
		{{"ab", "c"}, {"a", "x", "c"}}, // differs in the middle
		{{"ab", "c"}, {"x", "y", "z"}}, // from the first byte on
		{{"a", "b"}, {"a", "b", "c"}},  // in its length
		{{}, {"a", "b"}},
		{{}, {}},
		{{"a", "b"}, {"ab"}, {"a", "b"}},
		{{"a", "b"}, {"ab"}, {"a", "x"}},
		{{"a", "b"}, {"x", "b"}, {"x", "b"}},
		{{"a", "b"}, {"a"}, {"x"}},
		{{"a"}, {"b"}, {"c"}},
	} {
		p := &play{t: t, pieces: pieces, ended: ended}
		p.from(New(len(pieces)), newWhole(len(pieces)), "", make([]int, len(pieces)), "")
		plays += p.plays
	}
	for _, want := range []string{"differs false, dead false", "differs false, dead true", "differs true, dead false", "differs true, dead true"} {
		if ended[want] == 0 {
			t.Errorf("no play: %s", want)
		}
	}
	t.Logf("%d plays: %v", plays, ended)
}

// Two replicas that have written the same do not speak for the third: both may have led, one after the other, and decided the same.
func TestTwoOfThree(t *testing.T) {
	m := New(3)
	for w, text := range []string{"A", "A", "B"} {
		if err := m.Write(w, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if out := drain(t, m); out != "" {
			t.Errorf("printed %q before all have written", out)
		}
	}
	m.End(0, true)
	m.End(1, true)
	if out := drain(t, m); out != "B" {
		t.Errorf("printed %q, want what the live one wrote", out)
	}
}

// Long outputs of equal replicas are printed once, with bounded memory, however far they are apart and whichever die.
func TestFarApart(t *testing.T) {
	text := make([]byte, 4<<20)
	rand.NewChaCha8([32]byte{1}).Read(text)
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 0))
		n := 2 + rng.IntN(2)
		m, at, dead, live := New(n), make([]int, n), make([]bool, n), n
		var printed []byte
		for c := 0; slices.ContainsFunc(at, func(at int) bool { return at < len(text) }); {
			if rng.IntN(20) == 0 { // else the same one goes on
				c = rng.IntN(n)
			}
			switch {
			case dead[c] || at[c] == len(text):
				c = slices.IndexFunc(at, func(at int) bool { return at < len(text) })
			case live > 1 && rng.IntN(250) == 0:
				m.End(c, true)
				dead[c], at[c], live = true, len(text), live-1
			default:
				end := min(len(text), at[c]+rng.IntN(100<<10))
				if err := m.Write(c, text[at[c]:end]); err != nil {
					t.Fatal(err)
				}
				at[c] = end
			}
			printed = append(printed, drain(t, m)...)
			for i := range m.writers {
				if have := len(m.writers[i].kept.memory); have > maxMemory {
					t.Fatalf("seed %d: %d bytes are in memory, at most %d may be", seed, have, maxMemory)
				}
			}
		}
		if !bytes.Equal(printed, text) {
			t.Fatalf("seed %d: %d bytes were printed that are not the %d written", seed, len(printed), len(text))
		}
		m.Close()
	}
}

// A writer that comes in place of a lost one goes on with what the giver of its state had written, though that was not
// printed, and wherever what it wrote is kept.
func TestJoin(t *testing.T) {
	long := strings.Repeat("0123456789", maxMemory/8)
	m := New(3)
	write := func(w int, text string) {
		t.Helper()
		if err := m.Write(w, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	m.End(0, true)
	write(1, "ab"+long+"c")
	at := m.Offset(1)
	write(1, "not printed: its outcomes are lost with it")
	write(2, "a")
	if out := drain(t, m); out != "a" {
		t.Fatalf("printed %q", out)
	}
	w, err := m.Join(0, 1, at)
	if err != nil {
		t.Fatal(err)
	}
	m.End(1, true)
	m.End(2, true)
	write(w, "def")
	if out, want := drain(t, m), "b"+long+"cdef"; out != want {
		t.Errorf("printed %d bytes, want %d", len(out), len(want))
	}
	late, err := m.Join(1, w, at) // what it goes on with has been printed
	if err != nil {
		t.Fatal(err)
	}
	write(late, "defg")
	write(w, "g")
	if out := drain(t, m); out != "g" {
		t.Errorf("printed %q, want what neither had written before", out)
	}
	unknown, err := m.Join(2, -1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []int{w, late, unknown} {
		write(w, "h")
	}
	if out := drain(t, m); out != "h" || m.Offset(unknown) != m.Offset(w) {
		t.Errorf("printed %q", out)
	}
	m.Close()
}

// A replica that stays behind for long does not make the file of the other one grow by all that is written.
func TestFileOfWhoIsAhead(t *testing.T) {
	const ahead, piece = 3 << 20, 256 << 10
	m := New(2)
	defer m.Close()
	text := make([]byte, 5*maxUsed)
	rand.NewChaCha8([32]byte{2}).Read(text)
	var printed int
	var longest int64
	for at := 0; at < len(text)+ahead; at += piece {
		for c, at := range []int{at, at - ahead} {
			if at >= 0 && at < len(text) {
				if err := m.Write(c, text[at:at+piece]); err != nil {
					t.Fatal(err)
				}
			}
		}
		longest = max(longest, m.writers[0].kept.filled)
		if out := drain(t, m); out != string(text[printed:printed+len(out)]) {
			t.Fatalf("other bytes from %d on", printed)
		} else {
			printed += len(out)
		}
	}
	if printed != len(text) || longest > maxUsed+2*ahead {
		t.Errorf("printed %d of %d bytes, with a file of %d for %d that wait", printed, len(text), longest, ahead)
	}
}

// What one replica writes before the others is limited.
func TestTooFarAhead(t *testing.T) {
	m := New(2)
	defer m.Close()
	m.writers[1].kept.read = -maxKept // as if so much were in its file
	if err := m.Write(1, []byte("x")); err == nil || !strings.Contains(err.Error(), "what replica 1 writes is kept until all others have written it: more than 1024 MiB") {
		t.Error(err)
	}
}

func TestDifferenceSaysWhat(t *testing.T) {
	for want, d := range map[string]Difference{
		"replicas 1 and 0 have written different bytes, from byte 7 on": {Replicas: [2]int{1, 0}, Offset: 7},
		"replica 0 has ended at byte 9, and replica 2 has written more": {Replicas: [2]int{0, 2}, Offset: 9, Length: true},
	} {
		if got := d.String(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
