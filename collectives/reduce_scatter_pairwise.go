package collectives

// Pairwise reduce-scatter: every rank sends every other rank its block, and reduces the received
// blocks in rank order.
//
// Cost: (p-1)α + ((p-1)/p)nβ + ((p-1)/p)nγ, all transfers at once. It serves any operator. Best
// within one place.
func reduceScatterPairwise(p *plan) {
	for i := 1; i < p.size; i++ {
		r := (p.rank + i) % p.size
		p.Send(r, p.from(r))
	}
	p.fold(p.out, p.from(p.rank), p.rank, p.size, p.Receive)
}
