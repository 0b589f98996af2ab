package collectives

import "context"

// Ring allreduce: reduce-scatter, then allgather, each p-1 steps around the
// ring, one block of the vector a step.
//
// Cost: 2(p-1)α + 2((p-1)/p)nβ + ((p-1)/p)nγ. Best for long vectors; latency
// grows with p. Each block starts its tour at a different rank, so the
// operator must be commutative. A block is finished by one rank and copied to
// the others, so all have the same bits. Blocks differ by at most one element
// when p does not divide n.
func allreduceRing(ctx context.Context, c Comm, a *Args) error {
	copy(a.Recv, a.Send)
	rank, p := c.Rank(), c.Size()
	n := len(a.Recv) / a.Op.Elem
	block := func(i int) []byte {
		i = (i%p + p) % p
		return a.Recv[blockStart(n, p, i)*a.Op.Elem : blockStart(n, p, i+1)*a.Op.Elem]
	}
	next, prev := (rank+1)%p, (rank-1+p)%p

	in := make([]byte, (n+p-1)/p*a.Op.Elem)
	for step := range p - 1 {
		mine := block(rank - step - 1)
		theirs := in[:len(mine)]
		if err := sendrecv(ctx, c, next, block(rank-step), prev, theirs); err != nil {
			return err
		}
		if err := a.Op.apply(mine, theirs); err != nil {
			return err
		}
	}
	// Rank r now holds the finished block r+1.
	for step := range p - 1 {
		if err := sendrecv(ctx, c, next, block(rank+1-step), prev, block(rank-step)); err != nil {
			return err
		}
	}
	return nil
}

// blockStart is where block i of p begins when n elements are cut into blocks
// that differ by at most one element, the longer ones first.
func blockStart(n, p, i int) int {
	return i*(n/p) + min(i, n%p)
}
