package submit

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// wholeMerger does what a merger does, with all that was ever written at hand.
type wholeMerger struct {
	got                  []string
	ignored, ended, died []bool
	stream, shown        string // what counts as printed, and all that was
	differences          int
	deaths               int
}

func newWholeMerger(n int) *wholeMerger {
	return &wholeMerger{got: make([]string, n), ignored: make([]bool, n), ended: make([]bool, n), died: make([]bool, n)}
}

func (w *wholeMerger) clone() *wholeMerger {
	c := *w
	c.got = append([]string(nil), w.got...)
	c.ignored, c.ended, c.died = append([]bool(nil), w.ignored...), append([]bool(nil), w.ended...), append([]bool(nil), w.died...)
	return &c
}

// isVouched reports whether a replica other than c, not dead and not ignored, has got beyond at or
// has ended.
func (w *wholeMerger) isVouched(c, at int) bool {
	for i := range w.got {
		if i != c && !w.died[i] && !w.ignored[i] && (len(w.got[i]) > at || w.ended[i]) {
			return true
		}
	}
	return false
}

// settle compares all that c has written with the stream; whole says that it has ended.
func (w *wholeMerger) settle(c int, whole bool) {
	at := 0
	for at < len(w.got[c]) && at < len(w.stream) && w.got[c][at] == w.stream[at] {
		at++
	}
	closed := false // a replica that counts has ended with the stream as it is
	for i := range w.got {
		closed = closed || i != c && w.ended[i] && !w.died[i] && !w.ignored[i]
	}
	more := at == len(w.stream)
	switch {
	case at == len(w.got[c]) && (more || !whole):
		return
	case more && !closed:
	default:
		w.differences++
		if w.isVouched(c, at) {
			w.ignored[c] = true
			return
		}
	}
	w.shown += w.got[c][at:]
	w.stream = w.got[c]
}

func (w *wholeMerger) write(c int, data string) {
	w.got[c] += data
	if !w.ended[c] && !w.ignored[c] {
		w.settle(c, false)
	}
}

func (w *wholeMerger) end(c int, died bool) {
	w.ended[c], w.died[c] = true, died
	if !died && !w.ignored[c] {
		w.settle(c, true)
	}
	if !died {
		return
	}
	w.deaths++
	for i := range w.got {
		if !w.died[i] && !w.ignored[i] {
			return
		}
	}
	for i := range w.got {
		if !w.ended[i] {
			w.ignored[i], w.stream = false, w.got[i]
			return
		}
	}
}

func (m *merger) clone() *merger {
	c := *m
	c.replicas = append([]mergedReplica(nil), m.replicas...)
	c.recent = bytes.Clone(m.recent)
	return &c
}

// mergePlay plays replicas that write pieces, in every order, each dying at any moment.
type mergePlay struct {
	t      *testing.T
	pieces [][]string // of each replica
	equal  bool       // all replicas write the same
	plays  int
	reach  map[string]bool // what happened in some play
}

func (p *mergePlay) from(m *merger, w *wholeMerger, shown string, reports int, next []int, path string) {
	if shown != w.shown || reports != w.differences {
		p.t.Fatalf("%q: after%s: printed %q with %d reports, want %q with %d", p.pieces, path, shown, reports, w.shown, w.differences)
	}
	over := true
	for c := range next {
		if w.ended[c] {
			continue
		}
		over = false
		for _, dies := range []bool{false, true} {
			m, w, shown, reports, next := m.clone(), w.clone(), shown, reports, append([]int(nil), next...)
			var how *divergence
			did := ""
			switch {
			case dies:
				how, did = m.end(c, true), "dies"
				w.end(c, true)
			case next[c] == len(p.pieces[c]):
				how, did = m.end(c, false), "ends"
				w.end(c, false)
			default:
				piece := p.pieces[c][next[c]]
				next[c]++
				var out []byte
				out, how = m.write(c, []byte(piece))
				shown += string(out)
				w.write(c, piece)
				did = "writes " + piece
			}
			if how != nil {
				reports++
				p.reach[fmt.Sprint("ignored ", how.ignored)] = true
				p.reach[fmt.Sprint("length ", how.length)] = true
			}
			p.from(m, w, shown, reports, next, fmt.Sprintf("%s, %d %s", path, c, did))
		}
	}
	if over {
		p.plays++
		p.judge(w)
	}
}

// judge checks what must hold at the end, however the merger decides.
func (p *mergePlay) judge(w *wholeMerger) {
	longest, isOne := "", false
	for c, text := range w.got {
		if len(text) > len(longest) {
			longest = text
		}
		isOne = isOne || !w.died[c] && w.shown == text
	}
	if p.equal && (w.shown != longest || w.differences > 0) {
		p.t.Fatalf("%q: equal replicas that wrote %q were printed as %q, with %d reports", p.pieces, w.got, w.shown, w.differences)
	}
	if w.deaths == 0 && !isOne {
		p.t.Fatalf("%q: replicas of which none died were printed as %q", p.pieces, w.shown)
	}
	if w.deaths == 0 && !p.equal && w.differences == 0 {
		p.t.Fatalf("%q: a difference went unseen", p.pieces)
	}
}

// Whatever the order in which replicas write, end and die, each byte is printed once, and differences
// are reported.
func TestMergerInEveryOrder(t *testing.T) {
	reach, plays := map[string]bool{}, 0
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
		p := &mergePlay{t: t, pieces: pieces, equal: true, reach: reach}
		for _, all := range pieces {
			p.equal = p.equal && strings.Join(all, "") == strings.Join(pieces[0], "")
		}
		n := len(pieces)
		p.from(newMerger(n, 100), newWholeMerger(n), "", 0, make([]int, n), "")
		plays += p.plays
	}
	for _, want := range []string{"ignored true", "ignored false", "length true", "length false"} {
		if !reach[want] {
			t.Errorf("no play has a divergence with %s", want)
		}
	}
	t.Logf("%d plays", plays)
}

// Long outputs of equal replicas are printed once, in bounded memory, however far they are apart and
// whichever dies.
func TestMergerIsBounded(t *testing.T) {
	const window, size = 64, 5000
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		text := make([]byte, size)
		for i := range text {
			text[i] = byte(rng.IntN(256))
		}
		n := 2 + rng.IntN(3)
		m, at, dead := newMerger(n, window), make([]int, n), make([]bool, n)
		var shown []byte
		for live := n; at[0] < size || live > 1 && rng.IntN(50) > 0; {
			c := rng.IntN(n)
			switch {
			case dead[c]:
			case c > 0 && rng.IntN(200) == 0: // replica 0 lives
				if how := m.end(c, true); how != nil {
					t.Fatalf("seed %d: a death is a divergence: %+v", seed, how)
				}
				dead[c], live = true, live-1
			default:
				end := min(size, at[c]+rng.IntN(100))
				out, how := m.write(c, text[at[c]:end])
				if how != nil {
					t.Fatalf("seed %d: equal replicas diverge: %+v", seed, how)
				}
				shown, at[c] = append(shown, out...), end
			}
			if len(m.recent) > window {
				t.Fatalf("seed %d: %d bytes are kept, at most %d may be", seed, len(m.recent), window)
			}
		}
		if !bytes.Equal(shown, text) {
			t.Fatalf("seed %d: %d bytes were printed that are not the %d written", seed, len(shown), size)
		}
	}
}

func TestDivergenceSaysWhat(t *testing.T) {
	for want, d := range map[string]divergence{
		"rank 3: replica 1 writes other bytes to stdout than another, from byte 7 on; the others are printed": {replica: 1, offset: 7, ignored: true},
		"replica 0 writes more or less to stdout than another, from byte 9 on; it is printed":                 {offset: 9, length: true},
	} {
		if got := d.describe(3, "stdout"); !strings.Contains(got, want) {
			t.Errorf("%s\nlacks %s", got, want)
		}
	}
}
