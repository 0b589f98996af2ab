package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Ring allreduce: reduce-scatter, then allgather, each p-1 steps around the ring, one block of the
// vector per step.
//
// Cost: 2(p-1)α + 2((p-1)/p)nβ + ((p-1)/p)nγ. Best for long vectors; latency grows with p. Each
// block starts its tour at a different rank, so the operator must be commutative. One rank finishes
// each block and the others copy it, so all ranks have the same bits. Blocks differ by at most one
// element when p does not divide n.
func allreduceRing(p *plan) {
	p.Copy(p.out, p.in)
	block := func(i int) schedule.Region { return p.piece(p.out, (i%p.size+p.size)%p.size, p.size) }
	next, prev := (p.rank+1)%p.size, (p.rank-1+p.size)%p.size
	longest := p.piece(p.out, 0, p.size).Len
	in := [2]schedule.Region{p.Scratch(longest), p.Scratch(longest)} // one is filled while the other is reduced
	for step := range p.size - 1 {
		mine := block(p.rank - step - 1)
		theirs := in[step%2].Cut(0, mine.Len)
		p.exchange(next, block(p.rank-step), prev, theirs)
		p.Reduce(mine, theirs)
	}
	// Rank r now holds the finished block r+1.
	for step := range p.size - 1 {
		p.exchange(next, block(p.rank+1-step), prev, block(p.rank-step))
	}
}
