package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Two-hop broadcast: every other site gets a part of each lane's piece from the root's site and
// forwards it to the remaining ones, so no link carries more than the vector once.
//
// Cost with S sites: 2L + nβ + (n/F)β; (S-1)^2 messages per flit and lane between sites. Best where
// n > Lβ⁻¹/(S-2).
func bcastTwoHop(p *plan) { p.overLanes(p.flits, (*plan).twoHop) }

// twoHop takes a region from the root to all, each part through another rank.
func (p *plan) twoHop(r schedule.Region) {
	if p.size < 3 {
		p.linear(r)
		return
	}
	part := func(i int) schedule.Region { return p.piece(r, i, p.size-1) }
	via := func(i int) int { return (p.root + 1 + i) % p.size }
	for i := range p.size - 1 {
		p.pass(p.root, part(i), via(i), part(i))
	}
	for i := range p.size - 1 {
		for k := 1; k < p.size-1; k++ {
			p.pass(via(i), part(i), via((i+k)%(p.size-1)), part(i))
		}
	}
}
