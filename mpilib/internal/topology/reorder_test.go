package topology

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// crossings counts, from the definition, the messages between sites when each
// old rank has its new one.
func crossings(newRank, sites []int, n int, neighbours func(rank int) []int) int {
	siteAt := make([]int, len(sites))
	for old, rank := range newRank {
		siteAt[rank] = sites[old]
	}
	count := 0
	for rank := range n {
		for _, to := range neighbours(rank) {
			if siteAt[to] != siteAt[rank] {
				count++
			}
		}
	}
	return count
}

func (c *Cart) listNeighbours(rank int) []int {
	var list []int
	for _, n := range must(c.Neighbourhood(rank)).Out {
		if n.Rank != ProcNull {
			list = append(list, n.Rank)
		}
	}
	return list
}

// checkMapping checks the properties of every mapping: it is a permutation, reports its true cost,
// and costs no more than leaving every process in place.
func checkMapping(t *testing.T, what string, m Mapping, sites []int, n int, neighbours func(rank int) []int) {
	t.Helper()
	sorted := slices.Sorted(slices.Values(m.NewRank))
	if !slices.Equal(sorted, stay(len(sites))) {
		t.Fatalf("%s: %v is no permutation", what, m.NewRank)
	}
	if got := crossings(m.NewRank, sites, n, neighbours); got != m.Crossing {
		t.Fatalf("%s: %s crosses %d times, and says %d", what, m.Method, got, m.Crossing)
	}
	before := crossings(stay(len(sites)), sites, n, neighbours)
	if m.Before != before || m.Crossing > before {
		t.Fatalf("%s: %s crosses %d times, before %d, truly %d", what, m.Method, m.Crossing, m.Before, before)
	}
	if m.Crossing == before && !slices.Equal(m.NewRank, stay(len(sites))) {
		t.Fatalf("%s: ranks change for nothing", what)
	}
}

func stay(n int) []int {
	ranks := make([]int, n)
	for r := range ranks {
		ranks[r] = r
	}
	return ranks
}

func TestReorderEveryGrid(t *testing.T) {
	seed := uint64(0)
	everyGrid(func(c *Cart) {
		for range 6 {
			seed++
			rng := rand.New(rand.NewPCG(9, seed))
			sites := make([]int, c.Size()+rng.IntN(2)*rng.IntN(4))
			for r := range sites {
				sites[r] = 40 - 7*rng.IntN(1+rng.IntN(5)) // few sites or many, any numbers
			}
			checkMapping(t, fmt.Sprint(c.dims, c.periods, sites), must(c.Reorder(sites)), sites, c.Size(), c.listNeighbours)
		}
	})
}

// Grids whose optimum is known, with processes dealt to sites in the worst way.
func TestReorderKnown(t *testing.T) {
	dealt := func(n, sites int) []int {
		list := make([]int, n)
		for r := range list {
			list[r] = r % sites
		}
		return list
	}
	line, ring := []bool{false, false, false}, []bool{true, true, true}
	for _, c := range []struct {
		name  string
		dims  []int
		rings []bool
		sites []int
		want  int
	}{
		{"halves of a square", []int{4, 4}, line, dealt(16, 2), 2 * 4},
		{"quarters of a square", []int{8, 8}, line, dealt(64, 4), 2 * 16},
		{"quarters of a torus", []int{8, 8}, ring, dealt(64, 4), 2 * 32},
		{"halves of a wide grid", []int{2, 16}, line, dealt(32, 2), 2 * 2},
		{"octants of a cube", []int{4, 4, 4}, line, dealt(64, 8), 2 * 48},
		{"two thirds and one", []int{6, 6}, line, slices.Concat(dealt(24, 2), make([]int, 12)), 2 * 6},
		{"one site", []int{3, 3}, line, make([]int, 9), 0},
		{"a chain of three sites", []int{9}, line, dealt(9, 3), 2 * 2},
		{"only the large site is needed", []int{2, 3}, line, []int{1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			grid := must(NewCart(len(c.sites), c.dims, c.rings[:len(c.dims)]))
			m := must(grid.Reorder(c.sites))
			checkMapping(t, c.name, m, c.sites, grid.Size(), grid.listNeighbours)
			if m.Crossing != c.want {
				t.Errorf("%s crosses %d times (before: %d), want %d", m.Method, m.Crossing, m.Before, c.want)
			}
		})
	}
}

// Small grids, where exhaustive search gives the optimum: the total distance of the heuristic from
// it must not grow unnoticed.
func TestReorderAgainstBruteForce(t *testing.T) {
	total, least := 0, 0
	for _, dims := range [][]int{{9}, {3, 3}, {2, 4}, {2, 5}, {2, 2, 2}} {
		for bits := range 2 {
			periods := slices.Repeat([]bool{bits == 1}, len(dims))
			size := len(listed(dims))
			c := must(NewCart(size, dims, periods))
			for seed := range uint64(8) {
				rng := rand.New(rand.NewPCG(10, seed))
				sites := make([]int, size)
				for r := range sites {
					sites[r] = rng.IntN(2 + int(seed%2))
				}
				m := must(c.Reorder(sites))
				total += m.Crossing
				least += fewest(c, sites)
			}
		}
	}
	t.Logf("messages between sites: %d, the least possible %d", total, least)
	if total*100 > least*105 {
		t.Errorf("messages between sites: %d, more than 5 %% above the least possible %d", total, least)
	}
}

// fewest tries every assignment of places to sites.
func fewest(c *Cart, sites []int) int {
	left := make(map[int]int)
	for _, s := range sites {
		left[s]++
	}
	layout := make([]int, c.size)
	best := -1
	var fill func(place, crossing int)
	fill = func(place, crossing int) {
		if best >= 0 && crossing >= best {
			return
		}
		if place == c.size {
			best = crossing
			return
		}
		for site := range 3 {
			if left[site] == 0 {
				continue
			}
			left[site]--
			layout[place] = site
			more := 0
			for _, to := range c.listNeighbours(place) {
				if to < place && layout[to] != site {
					more += 2 // one each way
				}
			}
			fill(place+1, crossing+more)
			left[site]++
		}
	}
	fill(0, 0)
	return best
}

// Two clusters of nodes that were numbered alternately are separated.
func TestReorderGraph(t *testing.T) {
	const n = 12
	var index, edges []int
	for u := range n { // every node is linked to all of its parity, and 0 to 1
		for v := range n {
			if u != v && u%2 == v%2 || u+v == 1 {
				edges = append(edges, v)
			}
		}
		index = append(index, len(edges))
	}
	g := must(NewGraph(n, index, edges))
	sites := []int{3, 3, 3, 3, 3, 3, 8, 8, 8, 8, 8, 8}
	m := must(g.Reorder(sites))
	checkMapping(t, "clusters", m, sites, n, g.neighbours)
	if m.Crossing != 2 {
		t.Errorf("%s crosses %d times (before: %d), want 2", m.Method, m.Crossing, m.Before)
	}
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(11, seed))
		n := 1 + rng.IntN(20)
		var index, edges []int
		for range n {
			for range rng.IntN(5) {
				edges = append(edges, rng.IntN(n))
			}
			index = append(index, len(edges))
		}
		sites := make([]int, n+rng.IntN(3))
		for r := range sites {
			sites[r] = rng.IntN(4)
		}
		g := must(NewGraph(len(sites), index, edges))
		checkMapping(t, fmt.Sprint("seed ", seed), must(g.Reorder(sites)), sites, n, g.neighbours)
	}
}

func TestReorderRefuses(t *testing.T) {
	_, err := must(NewCart(1<<30, []int{1 << 30}, []bool{true})).Reorder([]int{0, 1})
	refused(t, err, ErrArg, "the sites of 2 processes for a topology of 1073741824")
	_, err = must(NewGraph(2, []int{1, 2}, []int{1, 0})).Reorder([]int{0})
	refused(t, err, ErrArg, "the sites of 1 processes for a topology of 2")
}

// 100,000 processes of 16 sites, dealt in turn, in a cube.
func BenchmarkReorder(b *testing.B) {
	c := must(NewCart(100_000, []int{50, 50, 40}, make([]bool, 3)))
	sites := make([]int, 100_000)
	for r := range sites {
		sites[r] = r % 16
	}
	b.ReportAllocs()
	for b.Loop() {
		m := must(c.Reorder(sites))
		b.ReportMetric(float64(m.Crossing)/float64(m.Before), "crossing/before")
	}
}
