package collectives

// Bruck allgather: every rank collects blocks in the order rank, rank+1, ...
// In a round it sends all it has to the rank that far below and receives as
// many from the rank that far above, so the run doubles; the last round moves
// only what is missing. At the end the run is turned so that block 0 is first.
//
// Cost: ceil(log2 p)α + (p-1)nβ and one copy of everything. Best for small
// blocks; works for every p.
func allgatherBruck(p *plan) {
	n := p.in.Len
	run := p.Scratch(p.size * n)
	p.Copy(block(run, 0, n), p.in)
	for have := 1; have < p.size; have *= 2 {
		more := min(have, p.size-have)
		p.exchange((p.rank-have+p.size)%p.size, blocks(run, 0, more, n), (p.rank+have)%p.size, blocks(run, have, more, n))
	}
	p.rotate(run, p.rank, n)
}
