package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Full-lane reduce-scatter: every place reduces each block at one of its ranks, in turn, which
// sends it to the rank that the block belongs to; that rank reduces in the order of the places.
//
// Cost with S sites: L + ((S-1)/S)nβ + local reduction. An operator that is not commutative needs
// an ordered layout.
func reduceScatterFullLane(p *plan) {
	g := p.places()
	if g == nil {
		reduceScatterPairwise(p)
		return
	}
	local := g.ranks[g.mine]
	for step := range g.ranks { // other places' first
		k := (g.mine + 1 + step) % len(g.ranks)
		for i, r := range g.ranks[k] {
			at := local[i%len(local)]
			partial := p.withinPlace(g, at).collapse(p.from(r))
			switch {
			case k != g.mine && p.rank == at:
				p.Send(r, partial)
			case k == g.mine && p.rank == r:
				p.fold(p.out, partial, k, len(g.ranks), func(place int, in schedule.Region) {
					p.Receive(g.ranks[place][i%len(g.ranks[place])], in)
				})
			}
		}
	}
}
