package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Two-hop reduce: the two-hop broadcast in reverse. Of each lane's piece every site but the root's
// receives one part from all others, reduces it, and sends the result to the root's site.
//
// Cost with S sites: 2L + nβ + (n/F)β. Best where n > Lβ⁻¹/(S-2).
func reduceTwoHop(p *plan) { p.reduceOverLanes(p.flits, (*plan).twoHopReduce) }

// twoHopReduce leaves at the root, in to, the reduction of a region of all ranks, each part reduced
// at another rank.
func (p *plan) twoHopReduce(to, own schedule.Region) {
	if p.size < 3 {
		p.starReduce(to, own)
		return
	}
	for i := range p.size - 1 {
		via := (p.root + 1 + i) % p.size
		part := p.piece(own, i, p.size-1)
		var result schedule.Region
		switch p.rank {
		case via:
			result = p.Scratch(part.Len)
			p.fold(result, part, p.rank, p.size, p.Receive)
		case p.root:
			p.Send(via, part)
			result = p.piece(to, i, p.size-1)
		default:
			p.Send(via, part)
		}
		p.pass(via, result, p.root, result)
	}
}
