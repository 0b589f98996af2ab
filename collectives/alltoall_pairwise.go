package collectives

// Pairwise alltoall: p-1 steps; in step i every rank sends to the rank i above
// and receives from the rank i below, so that each link carries one block at a
// time and each block goes straight into place.
//
// Cost: (p-1)α + (p-1)nβ and no copies. Best for all but tiny blocks.
func alltoallPairwise(p *plan) {
	n := p.in.Len / p.size
	p.Copy(block(p.out, p.rank, n), block(p.in, p.rank, n))
	for i := 1; i < p.size; i++ {
		dst, src := (p.rank+i)%p.size, (p.rank-i+p.size)%p.size
		p.exchange(dst, block(p.in, dst, n), src, block(p.out, src, n))
	}
}
