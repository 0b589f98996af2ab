package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Two-level scan: a scan at each place; the last rank of each sends the sum to the last ranks of
// all later places, which reduce what they receive and spread it within their place. It needs an
// ordered layout. It serves exscan too.
//
// Cost with S sites: L + (S-1)nβ + local scan and broadcast; S(S-1)/2 messages between sites.
func scanTwoLevel(p *plan) {
	acc := p.Scratch(p.in.Len)
	p.Copy(acc, p.in)
	p.prefixByPlaces(acc)
	p.Copy(p.out, acc)
}

// Two-level exscan. See scanTwoLevel.
func exscanTwoLevel(p *plan) {
	acc := p.Scratch(p.in.Len)
	p.Copy(acc, p.in)
	if below := p.prefixByPlaces(acc); p.rank > 0 {
		p.Copy(p.out, below)
	}
}

// prefixByPlaces is prefix, place by place.
func (p *plan) prefixByPlaces(acc schedule.Region) (below schedule.Region) {
	g := p.places()
	if g == nil {
		return p.prefixFlat(acc)
	}
	local := g.ranks[g.mine]
	last := local[len(local)-1]
	below = p.withinPlace(g, last).prefixByPlaces(acc)
	for k := g.mine + 1; k < len(g.ranks); k++ {
		p.pass(last, acc, g.ranks[k][len(g.ranks[k])-1], acc)
	}
	if g.mine == 0 {
		return below
	}
	before := p.Scratch(acc.Len) // the reduction of all earlier places
	if p.rank == last {
		for k := g.mine - 1; k >= 0; k-- {
			from := g.ranks[k][len(g.ranks[k])-1]
			if k == g.mine-1 {
				p.Receive(from, before)
				continue
			}
			in := p.Scratch(acc.Len)
			p.Receive(from, in)
			p.Reduce(before, in)
		}
	}
	p.withinPlace(g, last).spread(before)
	p.Reduce(acc, before)
	if p.rank == local[0] {
		return before
	}
	p.Reduce(below, before)
	return below
}
