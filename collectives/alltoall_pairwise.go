package collectives

import "context"

// Pairwise alltoall: p-1 steps; in step i every rank sends to the rank i above
// and receives from the rank i below, so that each link carries one block at a
// time and each block goes straight into place.
//
// Cost: (p-1)α + (p-1)nβ and no copies. Best for all but tiny blocks.
func alltoallPairwise(ctx context.Context, c Comm, a *Args) error {
	rank, p := c.Rank(), c.Size()
	n := len(a.Send) / p
	copy(a.Recv[rank*n:(rank+1)*n], a.Send[rank*n:])
	for i := 1; i < p; i++ {
		dst, src := (rank+i)%p, (rank-i+p)%p
		err := sendrecv(ctx, c, dst, a.Send[dst*n:(dst+1)*n], src, a.Recv[src*n:(src+1)*n])
		if err != nil {
			return err
		}
	}
	return nil
}
