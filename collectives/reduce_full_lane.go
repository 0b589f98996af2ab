package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Full-lane reduce: the vector is cut into as many pieces as there are lanes. Every place reduces
// each piece at its rank of that lane, these send theirs to the root's place, which reduces in the
// order of the places and collects the results at the root.
//
// Cost as for the two-level reduce, with the work and the bytes shared by all lanes.
func reduceFullLane(p *plan) { p.reduceOverLanes(0, nil) }

// reduceOverLanes is the reduce whose pieces are reduced across the lanes by far for the first
// flits, and directly at the root's place for the others.
func (p *plan) reduceOverLanes(first int, far func(lane *plan, to, own schedule.Region)) {
	g := p.places()
	if g == nil {
		reduceBinomial(p)
		return
	}
	in, out := p.pieces(p.in, p.flits), p.rootOnly(p.flits)
	for i := range in {
		cross := (*plan).starReduce
		if i < first {
			cross = far
		}
		for j := range g.width {
			own := p.piece(in[i], j, g.width)
			partial := p.local(g, j).collapse(own)
			var to, result schedule.Region
			if p.rank == p.root {
				result = p.piece(out[i], j, g.width)
			}
			lane := p.across(g, j)
			switch {
			case lane == nil:
			case p.rank == p.root:
				to = result
			case g.mine == g.home:
				to = p.Scratch(own.Len)
			}
			if lane != nil {
				cross(lane, to, lane.scratchCopy(partial))
			}
			if j > 0 {
				p.pass(g.lanes[g.home][j], to, p.root, result)
			}
		}
	}
}
