package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Full-lane allreduce: the vector is cut into as many pieces as there are lanes. Every place
// reduces each piece at its rank of that lane, the ranks of a lane send theirs to one another and
// reduce in the order of the places, each for itself, and each place puts its pieces together.
//
// Cost with S sites: L + (S-1)nβ, with the work and the bytes shared by all lanes. With 2 sites no
// algorithm sends fewer bytes between sites.
func allreduceFullLane(p *plan) { p.allreduceOverLanes(0, nil) }

// allreduceOverLanes is the allreduce whose pieces are reduced across the lanes by far for the
// first flits, and by an exchange of all pairs for the others.
func (p *plan) allreduceOverLanes(first int, far func(lane *plan, to, own schedule.Region)) {
	g := p.places()
	if g == nil {
		allreduceRecursiveDoubling(p)
		return
	}
	in, out := p.pieces(p.in, p.flits), p.pieces(p.out, p.flits)
	for i := range in {
		cross := (*plan).allPairs
		if i < first {
			cross = far
		}
		for j := range g.width {
			partial := p.local(g, j).collapse(p.piece(in[i], j, g.width))
			result := p.piece(out[i], j, g.width)
			if lane := p.across(g, j); lane != nil {
				cross(lane, result, partial)
			}
			p.local(g, j).spread(result)
		}
	}
}
