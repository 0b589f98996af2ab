package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Full-lane scan: the vector is cut into as many pieces as there are lanes. Every place reduces
// each piece at its rank of that lane, the ranks of a lane send theirs to those of all later
// places, which reduce what they receive and spread it within their place; meanwhile each place
// scans its own vectors. It needs an ordered layout. It serves exscan too.
//
// Cost with S sites: L + (S-1)nβ + local scan and broadcast, with the bytes shared by all lanes:
// for use when one rank, or one connection, cannot fill a site's link. S(S-1)/2 messages per flit
// and lane between sites.
func scanFullLane(p *plan) { p.scanOverLanes(p.placeFlit) }

// Full-lane exscan. See scanFullLane.
func exscanFullLane(p *plan) { p.scanOverLanes(p.placeBelow) }

func (p *plan) placeFlit(out, acc, _ schedule.Region) { p.Copy(out, acc) }

func (p *plan) placeBelow(out, _, below schedule.Region) {
	if p.rank > 0 {
		p.Copy(out, below)
	}
}

// scanOverLanes calls place to write each flit of the result: acc is the reduction up to this rank,
// and below, which rank 0 does not have, that of all lower ranks.
func (p *plan) scanOverLanes(place func(out, acc, below schedule.Region)) {
	in, out := p.pieces(p.in, p.flits), p.pieces(p.out, p.flits)
	for i := range in {
		own := p.scratchCopy(in[i])
		acc := p.Scratch(own.Len)
		p.Copy(acc, own)
		place(out[i], acc, p.prefixOverLanes(own, acc))
	}
}

// prefixOverLanes is prefix, with what crosses between places shared by their lanes. own is the
// initial value of acc.
func (p *plan) prefixOverLanes(own, acc schedule.Region) (below schedule.Region) {
	g := p.places()
	if g == nil {
		return p.prefixFlat(acc)
	}
	var before schedule.Region // the reduction of all earlier places
	if g.mine > 0 {
		before = p.Scratch(acc.Len)
	}
	share := func(j int) schedule.Region { return p.piece(before, j, g.width) }
	for j := range g.width {
		partial := p.piece(own, j, g.width)
		if g.mine < len(g.ranks)-1 { // no rank needs the last one's
			partial = p.local(g, j).collapse(partial)
		}
		if lane := p.across(g, j); lane != nil {
			lane.sendPrefixes(share(j), partial)
		}
	}
	local := g.ranks[g.mine]
	below = p.withinPlace(g, local[0]).prefixByPlaces(acc)
	if g.mine == 0 {
		return below
	}
	for j := range g.width {
		p.local(g, j).spread(share(j))
	}
	p.Reduce(acc, before)
	if p.rank == local[0] {
		return before
	}
	p.Reduce(below, before)
	return below
}

// sendPrefixes leaves at every rank but the first, in before, the reduction of a region of all lower
// ranks, each of which sends its own to all above.
func (p *plan) sendPrefixes(before, own schedule.Region) {
	for r := p.rank + 1; r < p.size; r++ {
		p.Send(r, own)
	}
	if p.rank > 0 {
		p.fold(before, before, -1, p.rank, p.Receive)
	}
}
