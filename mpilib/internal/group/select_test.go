package group

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// 7.3.2 incl and excl: every list of up to four ranks from -1 to the size, on regular and irregular
// groups, with invalid lists rejected.
func TestInclExclEveryList(t *testing.T) {
	for _, list := range [][]int{{}, {4}, {0, 1, 2}, {5, 0, 3, 1}, {2, 4, 6, 8}} {
		g := must(Of(list))
		everyList(4, -1, len(list), func(ranks []int) {
			incl, inclErr := g.Incl(ranks)
			excl, exclErr := g.Excl(ranks)
			if !legal(len(list), ranks) {
				if inclErr == nil || exclErr == nil {
					t.Fatalf("ranks %v of %v: Incl and Excl say %v and %v", ranks, list, inclErr, exclErr)
				}
				return
			}
			if inclErr != nil || exclErr != nil {
				t.Fatalf("ranks %v of %v: %v, %v", ranks, list, inclErr, exclErr)
			}
			agree(t, "Incl", incl, oracleIncl(list, ranks))
			agree(t, "Excl", excl, oracleExcl(list, ranks))
		})
	}
}

// 7.3.2 incl and excl: every group of up to six of six processes.
func TestInclExclEveryGroup(t *testing.T) {
	all := arrangements(6)
	base := []int{5, 0, 3, 1, 2, 4}
	g := must(Of(base))
	for _, ranks := range all {
		agree(t, "Incl", must(g.Incl(ranks)), oracleIncl(base, ranks))
		agree(t, "Excl", must(g.Excl(ranks)), oracleExcl(base, ranks))
		agree(t, "Excl of all", must(must(Of(ranks)).Excl(nil)), ranks)
	}
}

func TestInclExclRefuse(t *testing.T) {
	g := must(Range(10, 4))
	for _, choose := range []func([]int) (*Group, error){g.Incl, g.Excl} {
		for _, bad := range []int{-1, 4, ProcNull, Undefined, math.MaxInt, math.MinInt} {
			_, err := choose([]int{1, 2, bad})
			refused(t, err, ErrRank, "ranks[2] = ", "the group has ranks 0 to 3")
		}
		_, err := choose([]int{3, 0, 1, 0})
		refused(t, err, ErrArg, "ranks[3] = 0", "ranks[1] is the same")
	}
}

// expand is the standard's sentence: first, first + stride, ..., first + floor((last-first)/stride)
// stride. ok is false for an invalid triplet.
func expand(t Triplet) (ranks []int, ok bool) {
	if t.Stride == 0 || t.First != t.Last && (t.First < t.Last) != (t.Stride > 0) {
		return nil, false
	}
	for i := range (t.Last-t.First)/t.Stride + 1 {
		ranks = append(ranks, t.First+i*t.Stride)
	}
	return ranks, true
}

// 7.3.2 range_incl and range_excl: every triplet around groups of up to four,
// and every pair of triplets around one of three.
func TestRangesEvery(t *testing.T) {
	check := func(list []int, ranges ...Triplet) {
		g := must(Of(list))
		var ranks []int
		good := true
		for _, r := range ranges {
			some, ok := expand(r)
			ranks, good = append(ranks, some...), good && ok
		}
		good = good && legal(len(list), ranks)
		incl, inclErr := g.RangeIncl(ranges)
		excl, exclErr := g.RangeExcl(ranges)
		if (inclErr == nil) != good || (exclErr == nil) != good {
			t.Fatalf("ranges %v of %v: RangeIncl and RangeExcl say %v and %v, legal: %v", ranges, list, inclErr, exclErr, good)
		}
		if good {
			agree(t, "RangeIncl", incl, oracleIncl(list, ranks))
			agree(t, "RangeExcl", excl, oracleExcl(list, ranks))
		}
	}
	triplets := func(low, high int, each func(Triplet)) {
		for first := low; first <= high; first++ {
			for last := low; last <= high; last++ {
				for stride := -4; stride <= 4; stride++ {
					each(Triplet{first, last, stride})
				}
			}
		}
	}
	for _, list := range [][]int{{}, {4}, {7, 2}, {2, 1, 0}, {9, 3, 4, 1}} {
		triplets(-3, len(list)+3, func(r Triplet) { check(list, r) })
	}
	triplets(-1, 3, func(r Triplet) {
		triplets(-1, 3, func(s Triplet) { check([]int{6, 1, 5}, r, s) })
	})
}

// Last need not be a rank; only what the steps reach must be (7.3.2).
func TestRangeLastBeyond(t *testing.T) {
	g := must(Range(0, 10))
	agree(t, "up", must(g.RangeIncl([]Triplet{{1, 12, 6}})), []int{1, 7})
	agree(t, "down", must(g.RangeIncl([]Triplet{{8, -5, -7}})), []int{8, 1})
	agree(t, "far", must(g.RangeIncl([]Triplet{{3, math.MaxInt, math.MaxInt - 2}, {2, math.MinInt + 3, math.MinInt}})), []int{3, 2})
}

func TestRangesRefuse(t *testing.T) {
	g := must(Range(0, 10))
	for _, choose := range []func([]Triplet) (*Group, error){g.RangeIncl, g.RangeExcl} {
		for _, c := range []struct {
			bad  Triplet
			kind error
			says string
		}{
			{Triplet{3, 5, 0}, ErrArg, "the stride is zero"},
			{Triplet{3, 5, -1}, ErrArg, "stride -1 does not lead from 3 to 5"},
			{Triplet{5, 3, 1}, ErrArg, "stride 1 does not lead from 5 to 3"},
			{Triplet{-1, 3, 1}, ErrRank, "first rank -1"},
			{Triplet{10, 3, -1}, ErrRank, "first rank 10"},
			{Triplet{4, 12, 3}, ErrRank, "after rank 7"},
			{Triplet{4, -2, -3}, ErrRank, "after rank 1"},
			{Triplet{0, math.MaxInt, 1}, ErrRank, "after rank 9"},
			{Triplet{9, math.MinInt, -1}, ErrRank, "after rank 0"},
			{Triplet{8, 2, -3}, ErrArg, "rank 2 is in ranges[1], too"},
		} {
			_, err := choose([]Triplet{{0, 1, 1}, {2, 2, 5}, c.bad})
			refused(t, err, c.kind, "ranges[2] = ", c.says)
		}
	}
}

func TestLargeInclExcl(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(6, seed))
		list := irregular(rng, 1+rng.IntN(800))
		g := must(Of(list))
		ranks := rng.Perm(len(list))[:rng.IntN(len(list)+1)]
		agree(t, "Incl", must(g.Incl(ranks)), oracleIncl(list, ranks))
		agree(t, "Excl", must(g.Excl(ranks)), oracleExcl(list, ranks))
		back := must(must(g.Incl(ranks)).Translate(identity(len(ranks)), g))
		if !slices.Equal(back, ranks) {
			t.Fatalf("seed %d: ranks %v come back as %v", seed, ranks, back)
		}
	}
}

// No argument makes a constructor panic or loop, and what it accepts agrees with the oracle.
func FuzzArguments(f *testing.F) {
	f.Add(5, 0, 4, 1, 2, 2, 1)
	f.Add(1, 0, 0, 0, 0, 0, 0)
	f.Add(9, 8, math.MinInt, -3, math.MaxInt, 1, math.MinInt)
	f.Fuzz(func(t *testing.T, n, a, b, c, d, e, s int) {
		n = max(0, n%100)
		g := must(Range(0, n))
		Of([]int{a, b, c})
		Range(a, b)
		g.Rank(a)
		g.WorldRank(b)
		g.Translate([]int{a, b, c}, g)
		SplitOff(g, []Choice{{a, b}, {c, d}}, e)
		if _, err := g.Excl([]int{a, b, c}); (err == nil) != legal(n, []int{a, b, c}) {
			t.Fatalf("Excl(%d, %d, %d) of %d: %v", a, b, c, n, err)
		}
		h, err := g.RangeIncl([]Triplet{{a, b, c}, {d, e, s}})
		if err != nil {
			return
		}
		one, _ := expand(Triplet{a, b, c})
		two, _ := expand(Triplet{d, e, s})
		agree(t, "RangeIncl", h, append(one, two...))
	})
}

func identity(n int) []int {
	id := make([]int, n)
	for i := range id {
		id[i] = i
	}
	return id
}

// everyList calls f with every list of up to n numbers from low to high.
func everyList(n, low, high int, f func([]int)) {
	var extend func(list []int)
	extend = func(list []int) {
		f(list)
		if len(list) < n {
			for v := low; v <= high; v++ {
				extend(append(slices.Clip(list), v))
			}
		}
	}
	extend(nil)
}
