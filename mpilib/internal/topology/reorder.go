package topology

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
)

// A Mapping says which process takes which place of a topology, as the
// standard allows where reorder is true (8.5.1, 8.5.3; MPI_Cart_map and
// MPI_Graph_map, 8.5.8).
type Mapping struct {
	NewRank  []int  // of each old rank; a permutation. Ranks from the topology's Size on have no place.
	Crossing int    // messages between sites when every process sends one to each neighbour
	Before   int    // the same number if every process kept its rank; Crossing is never more
	Method   string // how it was found, for display
}

// Reorder gives processes places in the grid so that neighbours are on one site where they can be.
// sites[r] is the site of old rank r, any number; there are at least Size of them. Processes beyond
// Size are left out, from the smallest sites first.
//
// Three methods are tried besides leaving every process in place, and the one with the fewest
// messages between sites is taken: slabs, which give each site consecutive places along one
// dimension; bisection, which cuts the places along the dimension where the cut is cheapest and the
// sites into halves, and so on for the halves; and growth, as for a Graph. For n places, k
// dimensions and m sites this takes O(k² n log m + k n log n) time and O(k n) memory; for 100,000
// places in three dimensions, a fraction of a second. The result is not optimal; an optimum would
// be hard to find. All processes get the same result for the same sites.
func (c *Cart) Reorder(sites []int) (Mapping, error) {
	if err := checkSites(sites, c.size); err != nil {
		return Mapping{}, err
	}
	a := c.adjacency()
	return reorder(a, sites, func(shares []share, try func(method string, layout []int32)) {
		for dim, d := range c.dims {
			if d > 1 {
				try(fmt.Sprintf("slabs along dimension %d", dim), layOut(shares, c.slabs(dim)))
			}
		}
		try("bisection", bisect(c, a, shares))
		try("growth", grow(a.undirected(), shares))
	}), nil
}

// Reorder gives processes nodes of the graph so that neighbours are on one site where they can be;
// sites is as for a Cart. Besides leaving every process in place it tries to grow each site from a
// node, always by the node that adds the fewest messages between sites. For e edges this takes O(e
// log e) time and O(e) memory.
func (g *Graph) Reorder(sites []int) (Mapping, error) {
	if err := checkSites(sites, len(g.index)); err != nil {
		return Mapping{}, err
	}
	a := g.adjacency()
	return reorder(a, sites, func(shares []share, try func(method string, layout []int32)) {
		try("growth", grow(a.undirected(), shares))
	}), nil
}

// A share is the processes of one site that have places.
type share []int32 // the old ranks, ascending

// reorder returns the best of the layouts that candidates tries; a layout holds the index in shares
// of each place.
func reorder(a adjacency, sites []int, candidates func(shares []share, try func(method string, layout []int32))) Mapping {
	n := a.size()
	numbers, shares := sharesOf(sites, n)
	best := Mapping{Method: "every process keeps its rank"}
	best.Before = a.crossing(numbers[:n])
	best.Crossing = best.Before
	var layout []int32
	if best.Before > 0 {
		candidates(shares, func(method string, l []int32) {
			if crossing := a.crossing(l); crossing < best.Crossing {
				best.Crossing, best.Method, layout = crossing, method, l
			}
		})
	}
	best.NewRank = assignRanks(len(sites), shares, layout)
	return best
}

func checkSites(sites []int, places int) error {
	if len(sites) < places || len(sites) > maxProcesses {
		return fmt.Errorf("topology: Reorder: %w: the sites of %d processes for a topology of %d", ErrArg, len(sites), places)
	}
	return nil
}

// sharesOf numbers the sites from 0 and returns each process's number, and the processes of each
// site that have one of n places, largest share first.
func sharesOf(sites []int, n int) (numbers []int32, shares []share) {
	known := make(map[int]int32)
	numbers = make([]int32, len(sites))
	for r, site := range sites {
		number, ok := known[site]
		if !ok {
			number = int32(len(shares))
			known[site] = number
			shares = append(shares, nil)
		}
		numbers[r] = number
		shares[number] = append(shares[number], int32(r))
	}
	slices.SortStableFunc(shares, func(a, b share) int { return cmp.Compare(len(b), len(a)) })
	for surplus := len(sites) - n; surplus > 0; {
		last := &shares[len(shares)-1]
		cut := min(surplus, len(*last))
		*last = (*last)[:len(*last)-cut]
		if surplus -= cut; len(*last) == 0 {
			shares = shares[:len(shares)-1]
		}
	}
	return numbers, shares
}

// assignRanks gives every place of the layout the lowest unassigned old rank of its share, and the
// processes without a place the ranks after those. A nil layout leaves every process in place.
func assignRanks(processes int, shares []share, layout []int32) []int {
	newRank := make([]int, processes)
	if layout == nil {
		for r := range newRank {
			newRank[r] = r
		}
		return newRank
	}
	for r := range newRank {
		newRank[r] = -1
	}
	taken := make([]int, len(shares))
	for place, s := range layout {
		newRank[shares[s][taken[s]]] = place
		taken[s]++
	}
	next := len(layout)
	for r := range newRank {
		if newRank[r] < 0 {
			newRank[r] = next
			next++
		}
	}
	return newRank
}

// layOut gives each share the next of the places.
func layOut(shares []share, places []int32) []int32 {
	layout := make([]int32, len(places))
	for s, who := range shares {
		for _, place := range places[:len(who)] {
			layout[place] = int32(s)
		}
		places = places[len(who):]
	}
	return layout
}

// Split returns the processes of g that are in a layout of size places, by their new
// ranks, or nil where this process, of rank rank in g, is not. The zero Mapping leaves
// every process's rank as it is.
func (m Mapping) Split(g *group.Group, rank, size int) (*group.Group, error) {
	places := make([]group.Choice, g.Size()) // key: the new rank
	for r := range places {
		places[r].Key = r
	}
	for r, to := range m.NewRank {
		places[r].Key = to
	}
	for r := range places {
		if places[r].Key >= size {
			places[r].Colour = group.Undefined
		}
	}
	if places[rank].Colour == group.Undefined {
		return nil, nil
	}
	return group.SplitOff(g, places, 0)
}
