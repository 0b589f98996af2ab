package factor

import (
	"slices"

	"github.com/isthmus-grid/isthmus/overlay"
)

// A layout is how the rows of the matrix lie on the ranks of a job. Ranks that
// factor rows together, column by column, are a domain; the factors of the
// domains are combined in pairs, up a tree.
type layout struct {
	sites   int
	domain  []int  // of each rank, counted from 0 in the order of their first ranks
	leaders []int  // first ranks of the domains
	steps   []step // in an order in which every rank can go through its own
	places  []overlay.NodeID
}

// A step of the tree: a leader sends its factor to another, which combines the
// two and has the result from then on.
type step struct{ from, to int }

// perRank asks for as many domains as ranks; oneForAll for a single one, which
// is the method without a tree.
const (
	perRank   = 0
	oneForAll = -1
)

// newLayout cuts the ranks of each cluster, in rank order, into so many domains,
// or as many as there are ranks if these are fewer. clusters has that of each rank.
func newLayout(places []overlay.NodeID, clusters []int, domains int) layout {
	l := layout{domain: make([]int, len(places)), places: places}
	_, sites := grouped(ranks(len(places)), func(r int) overlay.SiteID { return places[r].Site })
	l.sites = len(sites)
	ofCluster, order := grouped(ranks(len(places)), func(r int) int { return clusters[r] })
	label := make([]int, len(places)) // not yet in order
	labels := 0
	for _, cluster := range order {
		members := ofCluster[cluster]
		parts := min(domains, len(members))
		if domains == perRank {
			parts = len(members)
		}
		for i, r := range members {
			if domains != oneForAll {
				label[r] = labels + i*parts/len(members)
			}
		}
		labels += max(parts, 0)
	}
	ofDomain, domainOrder := grouped(ranks(len(places)), func(r int) int { return label[r] })
	for i, d := range domainOrder {
		l.leaders = append(l.leaders, ofDomain[d][0])
		for _, r := range ofDomain[d] {
			l.domain[r] = i
		}
	}
	l.steps = tree(places, l.leaders)
	return l
}

// tree combines within nodes, then among the nodes of a site, then among
// sites: each site but the root's sends one message out of it. The root is the
// first rank.
func tree(places []overlay.NodeID, leaders []int) (steps []step) {
	node := func(r int) overlay.NodeID { return places[r] }
	site := func(r int) overlay.NodeID { return overlay.NodeID{Site: places[r].Site} }
	grid := func(int) overlay.NodeID { return overlay.NodeID{} }
	heads := leaders
	for _, level := range []func(int) overlay.NodeID{node, site, grid} {
		members, order := grouped(heads, level)
		heads = nil
		for _, place := range order {
			steps = append(steps, binomial(members[place])...)
			heads = append(heads, members[place][0])
		}
	}
	return steps
}

// binomial combines neighbours, then those at distance two, and so on. A last
// one without a partner waits for a later round, so any number will do.
func binomial(members []int) (steps []step) {
	for distance := 1; distance < len(members); distance *= 2 {
		for i := 0; i+distance < len(members); i += 2 * distance {
			steps = append(steps, step{from: members[i+distance], to: members[i]})
		}
	}
	return steps
}

// grouped sorts ranks by what key says of them, and returns the keys in the
// order of their first ranks.
func grouped[K comparable](ranks []int, key func(rank int) K) (members map[K][]int, order []K) {
	members = make(map[K][]int)
	for _, r := range ranks {
		k := key(r)
		if !slices.Contains(order, k) {
			order = append(order, k)
		}
		members[k] = append(members[k], r)
	}
	return members, order
}

func ranks(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
