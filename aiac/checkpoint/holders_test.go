package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// places reads "a1 a2 b1", each a site and a node; "-" before it: lost.
func places(text ...string) (all []Place) {
	for _, p := range text {
		lost := p[0] == '-'
		if lost {
			p = p[1:]
		}
		all = append(all, Place{Site: p[:1], Node: p[1:], IsLost: lost})
	}
	return all
}

// The classes of holders, where only one task is in the best class.
func TestHolders(t *testing.T) {
	for _, c := range []struct {
		places []Place
		want   []int // of task 0
	}{
		{places("a1"), nil},
		{places("a1", "-a2", "-b1"), nil},
		{places("a1", "b1"), []int{1}},
		{places("a1", "a1"), []int{1}},
		{places("a1", "a2", "b1"), []int{1, 2}},
		{places("a1", "b1", "a2"), []int{2, 1}},
		{places("a1", "a1", "a2", "b1"), []int{2, 3}},         // not on its own node
		{places("a1", "-a2", "a3", "-b1", "c1"), []int{2, 4}}, // not the lost
		{places("a1", "a1", "a2"), []int{2, 1}},               // one site
		{places("a1", "b1", "a1"), []int{1, 2}},               // nobody else on its site
	} {
		if got := Holders(0, c.places, nil); !slices.Equal(got, c.want) {
			t.Errorf("%v: holders %v, want %v", c.places, got, c.want)
		}
	}
}

// Where several tasks are in the best class, the second holder is as far from the first one as is possible.
func TestHoldersKeepApart(t *testing.T) {
	for _, c := range []struct {
		places []Place
		first  []int // one of these
		second []int
	}{
		{places("a1", "a2", "a2", "a1"), []int{1, 2}, []int{1, 2}},
		{places("a1", "a2", "a2", "a3", "a3"), []int{1, 2, 3, 4}, []int{1, 2, 3, 4}},
		{places("a1", "b1", "b1", "c1", "c1"), []int{1, 2, 3, 4}, []int{1, 2, 3, 4}},
		{places("a1", "b1", "b1", "b2", "b2", "a1"), []int{1, 2, 3, 4}, []int{1, 2, 3, 4}},
	} {
		got := Holders(0, c.places, nil)
		if len(got) != 2 || !slices.Contains(c.first, got[0]) || !slices.Contains(c.second, got[1]) {
			t.Errorf("%v: holders %v, want one of %v and one of %v", c.places, got, c.first, c.second)
		} else if len(c.places) > 4 && isSameNode(c.places[got[0]], c.places[got[1]]) {
			t.Errorf("%v: holders %v are on one node", c.places, got)
		}
	}
}

// grid returns so many sites of so many nodes.
func grid(sites, nodes int) (all []Place) {
	for s := range sites {
		for n := range nodes {
			all = append(all, Place{Site: fmt.Sprint("s", s), Node: fmt.Sprint("n", n)})
		}
	}
	return all
}

// A loss changes the holders of those tasks only that had it as a holder.
func TestLossChangesNoOther(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	all := grid(5, 6)
	for i := range all {
		all[i].Power = float64(1 + rng.IntN(8))
	}
	distance := func(a, b string) float64 { return float64(1 + (a[1]^b[1])%3) }
	for round := range 25 {
		before := make([][]int, len(all))
		for task := range all {
			before[task] = Holders(task, all, distance)
		}
		lost := rng.IntN(len(all))
		all[lost].IsLost = true
		for task := range all {
			after := Holders(task, all, distance)
			if !slices.Contains(before[task], lost) && !slices.Equal(before[task], after) {
				t.Fatalf("round %d: the loss of %d changes the holders of %d from %v to %v", round, lost, task, before[task], after)
			}
			if slices.Contains(after, lost) || slices.Contains(after, task) || len(after) == 2 && after[0] == after[1] {
				t.Fatalf("round %d: holders of %d are %v", round, task, after)
			}
		}
	}
}

// How many states a task holds depends on its node's power and its site's distance, and nobody holds many.
func TestHoldersSpread(t *testing.T) {
	all := grid(4, 50)
	for i := range all {
		if all[i].Power = 1; i%2 == 1 {
			all[i].Power = 4
		}
	}
	distance := func(a, b string) float64 {
		if d := int(a[1]) - int(b[1]); d == 1 || d == -1 {
			return 1
		}
		return 4
	}
	held := make([]int, len(all))
	strong, adjacent := 0, 0
	for task, own := range all {
		h := Holders(task, all, distance)
		if all[h[0]].Site != own.Site || h[0] == task || all[h[1]].Site == own.Site {
			t.Fatalf("task %d has the holders %v", task, h)
		}
		if distance(own.Site, all[h[1]].Site) == 1 {
			adjacent++
		}
		for _, k := range h {
			held[k]++
			strong += k % 2
		}
	}
	if most := slices.Max(held); most > 12 {
		t.Errorf("a task holds %d states", most)
	}
	if strong < 280 || strong > 360 { // four fifths of 400
		t.Errorf("the stronger half holds %d of 400 states", strong)
	}
	if adjacent < 110 || adjacent > 180 { // two thirds of those at the ends, eight ninths of the others
		t.Errorf("%d of 200 are at an adjacent site", adjacent)
	}
}
