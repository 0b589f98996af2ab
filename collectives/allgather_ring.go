package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Ring allgather: p-1 steps, in each of which every rank passes to the rank above the block that it
// got in the step before, starting with its own.
//
// Cost: (p-1)α + (p-1)nβ, no copies, and only neighbours communicate. Best for large blocks. It
// serves allgatherv too.
func allgatherRing(p *plan) {
	place := func(i int) schedule.Region { return p.to((i + p.size) % p.size) }
	p.Copy(place(p.rank), p.in)
	for step := range p.size - 1 {
		p.exchange((p.rank+1)%p.size, place(p.rank-step), (p.rank-1+p.size)%p.size, place(p.rank-step-1))
	}
}
