package matrix

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// names returns n different presets.
func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("kind", i)
	}
	return list
}

// check checks that the parts contain each of the pairs once, with exactly the sites that they need
// and no more than a lab holds.
func check(t *testing.T, parts []part, pairs []Pair) {
	t.Helper()
	left := map[Pair]int{}
	for _, p := range pairs {
		left[p]++
	}
	for _, p := range parts {
		if n := len(p.from) + len(p.to); n > perLab {
			t.Errorf("%d pairs: a lab of %d sites", len(pairs), n)
		}
		if len(p.pairs) == 0 {
			t.Errorf("%d pairs: a lab for none", len(pairs))
		}
		for _, pair := range p.pairs {
			if left[pair]--; left[pair] < 0 {
				t.Errorf("%d pairs: %v once too often", len(pairs), pair)
			}
			if !slices.Contains(p.from, pair.From) || !slices.Contains(p.to, pair.To) {
				t.Errorf("%d pairs: no sites for %v", len(pairs), pair)
			}
		}
	}
	for pair, n := range left {
		if n > 0 {
			t.Errorf("%d pairs: %v is missing", len(pairs), pair)
		}
	}
}

func TestSquare(t *testing.T) {
	for n := 1; n <= 60; n++ {
		var pairs []Pair
		for _, from := range names(n) {
			for _, to := range names(n) {
				pairs = append(pairs, Pair{from, to})
			}
		}
		parts := square(names(n))
		check(t, parts, pairs)
		if one := len(parts) == 1; one != (n <= perLab/2) {
			t.Errorf("%d kinds in %d labs", n, len(parts))
		}
	}
}

func TestDeal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 1; n <= 200; n++ {
		var pairs []Pair
		for range n {
			pairs = append(pairs, Pair{fmt.Sprint(rng.IntN(30)), fmt.Sprint(rng.IntN(30))})
		}
		parts := deal(pairs)
		check(t, parts, pairs)
		if n <= perLab/2 && len(parts) > 1 {
			t.Errorf("%d pairs in %d labs", n, len(parts))
		}
	}
}

func TestOccurring(t *testing.T) {
	got := occurring([]Pair{{"b", "a"}, {"a", "c"}, {"b", "b"}})
	if !slices.Equal(got, []string{"b", "a", "c"}) {
		t.Errorf("got %v", got)
	}
}
