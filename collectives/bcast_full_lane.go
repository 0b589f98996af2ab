package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Full-lane broadcast: the vector is cut into as many pieces as there are lanes, and each crosses
// on its own: from the root to a rank of its place, from there to one rank of every other place,
// and from that rank to all of its place.
//
// Cost as for the two-level broadcast, but no rank sends or receives more than its share: for use
// when one rank, or one connection, cannot fill a site's link.
func bcastFullLane(p *plan) { p.overLanes(0, nil) }

// overLanes is the broadcast whose pieces cross the lanes by far for the first flits, and directly
// for the others.
func (p *plan) overLanes(first int, far func(*plan, schedule.Region)) {
	g := p.places()
	if g == nil {
		p.tree(p.out)
		return
	}
	for i, flit := range p.pieces(p.out, p.flits) {
		cross := (*plan).linear
		if i < first {
			cross = far
		}
		for j := range g.width {
			piece := p.piece(flit, j, g.width)
			if j > 0 {
				p.pass(p.root, piece, g.lanes[g.home][j], piece)
			}
			if lane := p.across(g, j); lane != nil {
				cross(lane, piece)
			}
			p.share(g, j, piece)
		}
	}
}

// share takes a piece from the rank in lane j to all other ranks of its place that do not have it.
func (p *plan) share(g *places, j int, piece schedule.Region) {
	switch {
	case j == 0 || g.mine != g.home:
		p.local(g, j).spread(piece)
	case p.rank != p.root:
		p.subPlan(g.lanes[g.mine][1:], g.lanes[g.mine][j]).spread(piece)
	}
}
