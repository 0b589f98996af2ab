package schedule

import (
	"context"
	"testing"
)

// flits is what the head of a place does in a broadcast of n flits over several lanes: it receives
// each piece from another site, forwards it to two ranks of its place and reduces it.
func flits(n, lanes int) *Schedule {
	b := NewBuilder(0, 3+lanes)
	size := n * lanes * 8
	acc := b.Scratch(size)
	for f := range n {
		for l := range lanes {
			cut := func(r Region) Region { return r.Cut((f*lanes+l)*8, (f*lanes+l+1)*8) }
			in, out := cut(Region{Output, 0, size}), cut(acc)
			b.Receive(3+l, in)
			b.Send(1, in)
			b.Send(2, in)
			b.Copy(out, cut(Region{Input, 0, size}))
			b.Reduce(out, in)
			b.Send(1, out)
		}
	}
	return b.Done()
}

func BenchmarkBuild(b *testing.B) {
	for b.Loop() {
		flits(32, 16)
	}
}

// at is a Comm whose messages arrive at once.
type at struct{}

func (at) Isend(int, int, []byte) Request                       { return at{} }
func (at) Irecv(int, int, []byte) Request                       { return at{} }
func (at) WaitAny(context.Context, []Request, int) (int, error) { return 0, nil }
func (at) Wait(context.Context) error                           { return nil }
func (at) Done() bool                                           { return true }

func BenchmarkRun(b *testing.B) {
	s := flits(32, 16)
	m := Memory{make([]byte, 4096), make([]byte, 4096), make([]byte, 4096)}
	b.ReportAllocs()
	for b.Loop() {
		if err := Run(b.Context(), at{}, s, &m, mix); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRunner(b *testing.B) {
	r := NewRunner(flits(32, 16))
	m := Memory{make([]byte, 4096), make([]byte, 4096), make([]byte, 4096)}
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Run(b.Context(), at{}, &m, mix); err != nil {
			b.Fatal(err)
		}
	}
}

// ring is an allgather of n blocks around a ring.
func ring(ranks, n int) (all []*Schedule) {
	for r := range ranks {
		b := NewBuilder(r, ranks)
		piece := func(i int) Region { return Region{Output, (i + ranks) % ranks * n, n} }
		for step := range ranks - 1 {
			b.Send((r+1)%ranks, piece(r-step))
			b.Receive((r-1+ranks)%ranks, piece(r-step-1))
		}
		all = append(all, b.Done())
	}
	return all
}

func BenchmarkSimulate(b *testing.B) {
	all := ring(24, 1000)
	grid := &Grid{IntraSite: Path{Latency: 1000, Rate: 1e9, Each: 100}, InterSite: Path{Latency: 1e7, Rate: 1e8, Each: 100}}
	for r := range all {
		grid.Site = append(grid.Site, r%3)
	}
	steps := 0
	for _, s := range all {
		steps += len(s.Steps)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Simulate(all, grid, nil, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(steps), "ns/step")
}
