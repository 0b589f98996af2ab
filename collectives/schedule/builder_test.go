package schedule

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The Builder's dependencies, followed transitively, are those of every pair of steps of which one
// writes bytes that the other touches; and each is such a pair.
func TestDependencies(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		s := random(rng, rng.IntN(14))
		reach := make([][]bool, len(s.Steps))
		for j, step := range s.Steps {
			reach[j] = make([]bool, len(s.Steps))
			for _, i := range step.After {
				if i >= j || !conflict(s.Steps[i], step) {
					t.Fatalf("step %d waits for %d in\n%v", j, i, s)
				}
				reach[j][i] = true
				for k := range i {
					reach[j][k] = reach[j][k] || reach[i][k]
				}
			}
			for i := range j {
				if conflict(s.Steps[i], step) && !reach[j][i] {
					t.Fatalf("step %d does not wait for %d in\n%v", j, i, s)
				}
			}
		}
	}
}

// random returns a schedule of n steps on few bytes.
func random(rng *rand.Rand, n int) *Schedule {
	b := NewBuilder(0, 3)
	switch rng.IntN(3) {
	case 0:
		b.InPlace(rng.IntN(4))
	case 1:
		b.Within(rng.IntN(4))
	}
	region := func(n int, spaces ...Space) Region {
		return Region{spaces[rng.IntN(len(spaces))], rng.IntN(8), n}
	}
	for range n {
		n := 1 + rng.IntN(4)
		from, to := region(n, Input, Output, Scratch), region(n, Output, Scratch)
		if b.real(from).overlaps(b.real(to)) {
			to.Off = from.Off + 16
		}
		switch rng.IntN(4) {
		case 0:
			b.Send(1+rng.IntN(2), from)
		case 1:
			b.Receive(1+rng.IntN(2), to)
		case 2:
			b.Copy(to, from)
		default:
			b.Reduce(to, from)
		}
	}
	return b.Done()
}

// conflict is the definition of a dependency.
func conflict(a, b Step) bool {
	uses := func(s Step) (reads, writes []Region) {
		if s.Kind != Receive {
			reads = append(reads, s.From)
		}
		if s.Kind != Send {
			writes = append(writes, s.To)
		}
		return reads, writes
	}
	meet := func(a, b []Region) bool {
		return slices.ContainsFunc(a, func(r Region) bool { return slices.ContainsFunc(b, r.overlaps) })
	}
	ar, aw := uses(a)
	br, bw := uses(b)
	return meet(aw, append(br, bw...)) || meet(ar, bw)
}

func TestSlots(t *testing.T) {
	b := NewBuilder(1, 3)
	out := Region{Output, 0, 8}
	b.Send(0, out)
	b.Send(2, out)
	b.Send(0, out)
	b.Receive(0, out)
	b.Signal(0)
	b.Await(0)
	b.Signal(2)
	s := b.Done()
	var got []string
	for _, step := range s.Steps {
		got = append(got, step.String())
	}
	want := []string{
		"send out[0:8] to rank 0, message 0", "send out[0:8] to rank 2, message 0", "send out[0:8] to rank 0, message 1",
		"receive out[0:8] from rank 0, message 0", "send in[0:0] to rank 0, message 2", "receive in[0:0] from rank 0, message 1",
		"send in[0:0] to rank 2, message 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	if after := s.Steps[6].After; !slices.Equal(after, []int{3, 5}) {
		t.Errorf("the last signal waits for %v", after)
	}
	if text := s.String(); !strings.Contains(text, "   3  receive out[0:8] from rank 0, message 0  after 0, 1, 2\n") {
		t.Errorf("listed as\n%s", text)
	}
}

func TestImpossible(t *testing.T) {
	for name, f := range map[string]func(b *Builder){
		"to itself":  func(b *Builder) { b.Send(0, Region{Output, 0, 1}) },
		"to nobody":  func(b *Builder) { b.Receive(2, Region{Output, 0, 1}) },
		"lengths":    func(b *Builder) { b.Copy(Region{Output, 0, 1}, Region{Input, 0, 2}) },
		"overlap":    func(b *Builder) { b.Reduce(Region{Output, 0, 2}, Region{Output, 1, 2}) },
		"in place":   func(b *Builder) { b.InPlace(0); b.Copy(Region{Output, 0, 2}, Region{Input, 1, 2}) },
		"a bad cut":  func(b *Builder) { Region{Output, 0, 2}.Cut(1, 3) },
		"no such":    func(*Builder) { NewBuilder(2, 2) },
		"signals it": func(b *Builder) { b.Signal(0) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f(NewBuilder(0, 2))
		}()
	}
}
