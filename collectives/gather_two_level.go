package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Two-level gather: the ranks of each place send to their head, and the heads send one message for
// their place to the root. When cut into flits, a head forwards what it has while the rest is in
// transit.
//
// Cost with S sites: L + l + (N-n)mβ + (nm/F)b; S-1 messages per flit between sites. Best for
// blocks so small that messages cost more than their bytes; for others the lanes of the linear
// gather send as few bytes without copies.
func gatherTwoLevel(p *plan) {
	g := p.places()
	if g == nil {
		gatherBinomial(p)
		return
	}
	for k, ranks := range g.ranks {
		switch {
		case k == g.home && g.mine == g.home:
			p.subPlan(ranks, p.root).gatherHome(ranks, p.to)
		case k == g.home:
		case p.rank == p.root:
			p.receiveRow(g.lanes[k][0], p.row(ranks, p.to))
		case k == g.mine:
			p.sendRow(g, ranks)
		}
	}
}

// gatherHome is the linear gather within the root's place.
func (p *plan) gatherHome(ranks []int, to func(rank int) schedule.Region) {
	p.to = func(r int) schedule.Region { return to(ranks[r]) }
	gatherLinear(p)
}

// receiveRow makes the root receive the blocks of a place, flit by flit.
func (p *plan) receiveRow(head int, w *row) {
	for _, flit := range p.pieces(w.whole, p.flits) {
		p.Receive(head, flit)
	}
	p.unpack(w)
}

// sendRow collects the blocks of this place at its head, which sends them.
func (p *plan) sendRow(g *places, ranks []int) {
	head := g.lanes[g.mine][0]
	w := p.packet(ranks, p.in.Len, head)
	for _, flit := range p.pieces(w.whole, p.flits) {
		w.each(flit, p.in, func(i int, part, own schedule.Region) {
			if ranks[i] != head {
				p.pass(ranks[i], own, head, part)
			} else if p.rank == head {
				p.Copy(part, own)
			}
		})
		p.pass(head, flit, p.root, flit)
	}
}
