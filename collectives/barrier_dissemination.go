package collectives

// Dissemination barrier: in round k every rank tells the rank 2^k above that
// it, and all it has heard of, is here. After ceil(log2 p) rounds everyone has
// heard of everyone.
//
// Cost: ceil(log2 p)α, p messages a round. Messages are empty.
func barrierDissemination(p *plan) {
	for k := 1; k < p.size; k *= 2 {
		p.Signal((p.rank + k) % p.size)
		p.Await((p.rank - k + p.size) % p.size)
	}
}
