package collectives

import "context"

// Ring allgather: p-1 steps, in each of which every rank passes to the rank
// above the block that it got in the step before, starting with its own.
//
// Cost: (p-1)α + (p-1)nβ, no copies, and only neighbours talk. Best for large
// blocks.
func allgatherRing(ctx context.Context, c Comm, a *Args) error {
	rank, p, n := c.Rank(), c.Size(), len(a.Send)
	block := func(i int) []byte {
		i = (i + p) % p
		return a.Recv[i*n : (i+1)*n]
	}
	copy(block(rank), a.Send)
	for step := range p - 1 {
		err := sendrecv(ctx, c, (rank+1)%p, block(rank-step), (rank-1+p)%p, block(rank-step-1))
		if err != nil {
			return err
		}
	}
	return nil
}
