package collectives

// Two-level allgather: the ranks of each place send to their head, the heads send one another what
// they have, and each spreads all of it within its place. It serves allgatherv too.
//
// Cost with S sites: L + (N-n)mβ + local gather and broadcast; S(S-1) messages per flit between
// sites. Best for small blocks.
func allgatherTwoLevel(p *plan) {
	g := p.places()
	if g == nil {
		allgatherRing(p)
		return
	}
	heads := p.across(g, 0)
	own := p.row(g.ranks[g.mine], p.to)
	for i, r := range g.ranks[g.mine] {
		if head := g.lanes[g.mine][0]; r != head {
			p.pass(r, p.in, head, own.slots[i])
		} else if p.rank == head {
			p.Copy(own.slots[i], p.in)
		}
	}
	for step := range g.ranks { // its own block first
		k := (g.mine + step) % len(g.ranks)
		w := own
		if step > 0 {
			w = p.row(g.ranks[k], p.to)
			if heads != nil {
				to := (g.mine + len(g.ranks) - step) % len(g.ranks)
				for _, flit := range p.pieces(own.whole, p.flits) {
					heads.Send(to, flit)
				}
				for _, flit := range p.pieces(w.whole, p.flits) {
					heads.Receive(k, flit)
				}
			}
		}
		for _, flit := range p.pieces(w.whole, p.flits) {
			p.local(g, 0).spread(flit)
		}
		p.unpack(w)
	}
}
