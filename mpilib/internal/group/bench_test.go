package group

import (
	"math/rand/v2"
	"testing"
)

// Finding a member, in groups that are regular, nearly regular and irregular.
func BenchmarkRank(b *testing.B) {
	const n = 100_000
	world := must(Range(0, n))
	for _, c := range []struct {
		name string
		g    *Group
	}{
		{"all", world},
		{"without-100", must(world.RangeExcl([]Triplet{{500, n - 1, 1000}}))},
		{"shuffled", must(Of(rand.New(rand.NewPCG(1, 2)).Perm(n)))},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.ReportMetric(float64(len(c.g.worlds)+len(c.g.ranks))*20, "B/group")
			for i := 0; b.Loop(); i++ {
				c.g.Rank(i * 7919 % n)
			}
		})
	}
}

// One process's part in the split of a large world into nodes.
func BenchmarkSplitOff(b *testing.B) {
	const n = 100_000
	world := must(Range(0, n))
	choices := make([]Choice, n)
	for r := range choices {
		choices[r].Colour = r / 64
	}
	b.ReportAllocs()
	for b.Loop() {
		must(SplitOff(world, choices, 77))
	}
}
