package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Linear gather: the root posts a receive for every rank, each straight into
// its place, and everyone else sends.
//
// Cost at the root: (p-1)α + (p-1)nβ, and no copies; messages may come in any
// order. Best for large blocks, where the root's link is the limit anyway.
func gatherLinear(p *plan) {
	n := p.in.Len
	p.collect(func(r int) schedule.Region { return block(p.out, r, n) })
}

// collect is the linear gather with the place of each rank's block at the root
// given by place.
func (p *plan) collect(place func(rank int) schedule.Region) {
	if p.rank != p.root {
		p.Send(p.root, p.in)
		return
	}
	for r := range p.size {
		if r != p.root {
			p.Receive(r, place(r))
		}
	}
	p.Copy(place(p.root), p.in)
}
