package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Scatter-allgather broadcast (van de Geijn): the vector is cut into a piece for every rank, a
// binomial tree scatters the pieces, and a ring passes them around.
//
// Cost: (ceil(log2 p) + p-1)α + 2((p-1)/p)nβ. Best for long vectors: no rank sends or receives a
// byte more than twice.
func bcastScatterAllgather(p *plan) { p.scatterAllgather(p.out) }

// scatterAllgather takes a region from the root to all. Ranks are counted from the root, so that a
// subtree gets one contiguous run of pieces. No rank gets a piece twice.
func (p *plan) scatterAllgather(r schedule.Region) {
	v := (p.rank - p.root + p.size) % p.size
	rank := func(v int) int { return (v + p.root + p.size) % p.size }
	run := func(v int) schedule.Region { return p.run(r, v, v+subtree(v, p.size), p.size) }
	bit := 1
	for ; bit < p.size && v&bit == 0; bit *= 2 {
	}
	if v != 0 {
		p.Receive(rank(v-bit), run(v))
	}
	for bit /= 2; bit > 0; bit /= 2 {
		if v+bit < p.size {
			p.Send(rank(v+bit), run(v+bit))
		}
	}
	hand := func(from, piece int) { // if the next rank does not have it already from its run
		to := (from + 1) % p.size
		if piece < to || piece >= to+subtree(to, p.size) {
			p.pass(rank(from), p.piece(r, piece, p.size), rank(to), p.piece(r, piece, p.size))
		}
	}
	for step := range p.size - 1 {
		hand((v+p.size-1)%p.size, (v+2*p.size-step-1)%p.size)
		hand(v, (v+p.size-step)%p.size)
	}
}
