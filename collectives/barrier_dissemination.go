package collectives

// Dissemination barrier: in round k every rank tells the rank 2^k above that it, and every rank it
// has heard of, has entered. After ceil(log2 p) rounds every rank has heard of every other.
//
// Cost: ceil(log2 p)α, p messages per round. Messages are empty.
func barrierDissemination(p *plan) {
	for k := 1; k < p.size; k *= 2 {
		p.Signal((p.rank + k) % p.size)
		p.Await((p.rank - k + p.size) % p.size)
	}
}
