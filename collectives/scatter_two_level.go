package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Two-level scatter: the two-level gather in reverse. The root sends one message to the head of
// every other place, with the blocks of all its ranks.
//
// Cost with S sites: L + l + (N-n)mβ + (nm/F)b; S-1 messages per flit between sites. Best for
// blocks so small that messages cost more than their bytes.
func scatterTwoLevel(p *plan) {
	g := p.places()
	if g == nil {
		scatterBinomial(p)
		return
	}
	for k, ranks := range g.ranks {
		switch {
		case k == g.home && g.mine == g.home:
			home := p.subPlan(ranks, p.root)
			home.from = func(r int) schedule.Region { return p.from(ranks[r]) }
			scatterLinear(home)
		case k == g.home:
		case p.rank == p.root:
			w := p.row(ranks, p.from)
			p.pack(w)
			for _, flit := range p.pieces(w.whole, p.flits) {
				p.Send(g.lanes[k][0], flit)
			}
		case k == g.mine:
			p.dealRow(g, ranks)
		}
	}
}

// dealRow distributes what the head of this place receives to the ranks it belongs to.
func (p *plan) dealRow(g *places, ranks []int) {
	head := g.lanes[g.mine][0]
	w := p.packet(ranks, p.out.Len, head)
	for _, flit := range p.pieces(w.whole, p.flits) {
		p.pass(p.root, flit, head, flit)
		w.each(flit, p.out, func(i int, part, own schedule.Region) {
			if ranks[i] != head {
				p.pass(head, part, ranks[i], own)
			} else if p.rank == head {
				p.Copy(own, part)
			}
		})
	}
}
