package agree

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// Sets compared with maps.
func TestSet(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	draw := func() (Set, map[int]bool) {
		m := map[int]bool{}
		for range r.IntN(6) {
			m[r.IntN(200)] = true
		}
		return SetOf(slices.Collect(maps.Keys(m))...), m
	}
	check := func(what string, s Set, want func(int) bool) {
		var ranks []int
		lowest := -1
		for i := range 300 {
			if s.below(i) != len(ranks) {
				t.Fatalf("%s %v: %d below %d", what, s, s.below(i), i)
			}
			if want(i) {
				ranks = append(ranks, i)
			} else if lowest < 0 {
				lowest = i
			}
			if s.Has(i) != want(i) {
				t.Fatalf("%s %v: Has(%d) = %v", what, s, i, s.Has(i))
			}
		}
		if !slices.Equal(slices.Collect(s.Ranks()), ranks) || s.Len() != len(ranks) || s.Empty() != (len(ranks) == 0) ||
			!s.Equal(SetOf(ranks...)) || s.lowestOutside() != lowest || s.Has(-1) {
			t.Fatalf("%s: %v, want %v", what, s, ranks)
		}
	}
	for range 2000 {
		a, am := draw()
		b, bm := draw()
		check("union", a.Union(b), func(i int) bool { return am[i] || bm[i] })
		check("intersection", a.Intersect(b), func(i int) bool { return am[i] && bm[i] })
		check("difference", a.Minus(b), func(i int) bool { return am[i] && !bm[i] })
		check("first", a, func(i int) bool { return am[i] })
		if got := a.In(b); got != a.Minus(b).Empty() {
			t.Fatalf("%v in %v: %v", a, b, got)
		}
		n := r.IntN(200)
		check("all", all(n), func(i int) bool { return i < n })
	}
}

// parent and children are each other's inverse, whichever ranks are excluded, and lead from every
// rank to the root.
func TestTree(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		tr := tree{size: 1 + r.IntN(140), shape: []func(int) int{binomial, chain}[r.IntN(2)]}
		var out []int
		for i := range tr.size {
			if r.IntN(3) == 0 {
				out = append(out, i)
			}
		}
		if len(out) == tr.size {
			continue
		}
		tr.excluded = SetOf(out...)
		for i := range tr.size {
			if tr.excluded.Has(i) {
				continue
			}
			p := tr.parent(i)
			if (p < 0) != (i == tr.root()) || p >= i || tr.excluded.Has(p) || p >= 0 && !slices.Contains(tr.children(p), i) {
				t.Fatalf("%d without %v: the parent of %d is %d", tr.size, tr.excluded, i, p)
			}
			for _, c := range tr.children(i) {
				if tr.excluded.Has(c) || tr.parent(c) != i {
					t.Fatalf("%d without %v: %d is a child of %d", tr.size, tr.excluded, c, i)
				}
			}
		}
	}
}
