package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Two-step allreduce: the full-lane allreduce with each lane's piece cut once more: every site
// receives one part from all others, reduces it and sends the result to all others.
//
// Cost with S sites: 2L + 2((S-1)/S)nβ. Best where n > Lβ⁻¹S/((S-1)(S-2)), with more than 2 sites.
func allreduceTwoStep(p *plan) { p.allreduceOverLanes(p.flits, (*plan).twoStep) }

// twoStep leaves in to, at all ranks, the reduction of every rank's own.
func (p *plan) twoStep(to, own schedule.Region) {
	own = p.scratchCopy(own)
	for i := 1; i < p.size; i++ {
		r := (p.rank + i) % p.size
		p.Send(r, p.piece(own, r, p.size))
	}
	mine := p.piece(to, p.rank, p.size)
	p.fold(mine, p.piece(own, p.rank, p.size), p.rank, p.size, p.Receive)
	for i := 1; i < p.size; i++ {
		p.Send((p.rank+i)%p.size, mine)
	}
	for i := 1; i < p.size; i++ {
		r := (p.rank + i) % p.size
		p.Receive(r, p.piece(to, r, p.size))
	}
}
