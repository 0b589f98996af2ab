package collectives

// Pairwise alltoall: in step i every rank sends to the rank i above and receives from the rank i
// below, each block straight into place. No step waits for the one before: all transfers start at
// once, and a slow pair delays no other. It serves alltoallv too, where no rank knows all lengths.
// Empty blocks are sent as well: ranks that disagree about a count get an error instead of
// blocking.
//
// Cost: (p-1)α + (p-1)nβ and no copies; with unequal blocks the bytes out or in of the busiest
// rank. Best for all but tiny blocks. At most 2(p-1) transfers are in progress.
func alltoallPairwise(p *plan) {
	p.Copy(p.to(p.rank), p.from(p.rank))
	for i := 1; i < p.size; i++ {
		dst, src := (p.rank+i)%p.size, (p.rank-i+p.size)%p.size
		p.exchange(dst, p.from(dst), src, p.to(src))
	}
}
