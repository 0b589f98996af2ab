package group

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The oracle: groups are slices of world ranks, and every rule is the standard's sentence.

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func worlds(g *Group) []int { return slices.AppendSeq(make([]int, 0, g.Size()), g.WorldRanks()) }

// arrangements returns every ordered selection of up to n of the ranks 0 to n-1.
func arrangements(n int) [][]int {
	all := [][]int{{}}
	for i := 0; i < len(all); i++ {
		for r := range n {
			if !slices.Contains(all[i], r) {
				all = append(all, append(slices.Clone(all[i]), r))
			}
		}
	}
	return all
}

// indexed returns g searched through an index, however small.
func indexed(g *Group) *Group {
	h := *g
	if h.ranks = h.worlds.invert(); h.ranks == nil {
		h.ranks = table{}
	}
	return &h
}

func oracleUnion(a, b []int) []int { return append(slices.Clone(a), oracleDifference(b, a)...) }

func oracleIntersection(a, b []int) []int {
	both := []int{}
	for _, w := range a {
		if slices.Contains(b, w) {
			both = append(both, w)
		}
	}
	return both
}

func oracleDifference(a, b []int) []int {
	rest := []int{}
	for _, w := range a {
		if !slices.Contains(b, w) {
			rest = append(rest, w)
		}
	}
	return rest
}

func oracleCompare(a, b []int) Comparison {
	switch {
	case slices.Equal(a, b):
		return Identical
	case len(a) == len(b) && len(oracleDifference(a, b)) == 0:
		return Similar
	}
	return Unequal
}

func oracleIncl(a, ranks []int) []int {
	out := []int{}
	for _, r := range ranks {
		out = append(out, a[r])
	}
	return out
}

func oracleExcl(a, ranks []int) []int {
	out := []int{}
	for r, w := range a {
		if !slices.Contains(ranks, r) {
			out = append(out, w)
		}
	}
	return out
}

// legal reports whether ranks may be given to Incl and Excl of n processes.
func legal(n int, ranks []int) bool {
	for i, r := range ranks {
		if r < 0 || r >= n || slices.Contains(ranks[:i], r) {
			return false
		}
	}
	return true
}

// agree compares a group with the oracle's list, through every kind of lookup.
func agree(t *testing.T, what string, g *Group, want []int) {
	t.Helper()
	if g.Size() != len(want) || !slices.Equal(worlds(g), want) {
		t.Fatalf("%s: %v of size %d, want %v", what, worlds(g), g.Size(), want)
	}
	for r, w := range want {
		if g.WorldRank(r) != w || g.Rank(w) != r {
			t.Fatalf("%s: WorldRank(%d) = %d, Rank(%d) = %d in %v", what, r, g.WorldRank(r), w, g.Rank(w), want)
		}
	}
	if g.WorldRank(-1) != Undefined || g.WorldRank(len(want)) != Undefined {
		t.Fatalf("%s: %v has ranks outside 0 to %d", what, want, len(want)-1)
	}
	if canonical := must(Of(want)); !slices.Equal(canonical.worlds, g.worlds) {
		t.Fatalf("%s: segments %v, made afresh %v", what, g.worlds, canonical.worlds)
	}
}

// irregular returns a list of distinct world ranks below n that mixes ranges,
// strides, reversals and noise.
func irregular(rng *rand.Rand, n int) []int {
	var list []int
	seen := make([]bool, n)
	take := func(w int) {
		if w >= 0 && w < n && !seen[w] {
			seen[w] = true
			list = append(list, w)
		}
	}
	for range 1 + rng.IntN(12) {
		first, step, count := rng.IntN(n), rng.IntN(9)-4, rng.IntN(n/4+1)
		switch rng.IntN(3) {
		case 0:
			step = 1
		case 1:
			for range count / 4 {
				take(rng.IntN(n))
			}
		}
		for i := range count {
			take(first + i*step)
		}
	}
	return list
}
