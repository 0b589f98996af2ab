package collectives

import "context"

// Bruck allgather: every rank collects blocks in the order rank, rank+1, ...
// In a round it sends all it has to the rank that far below and receives as
// many from the rank that far above, so the run doubles; the last round moves
// only what is missing. At the end the run is turned so that block 0 is first.
//
// Cost: ceil(log2 p)α + (p-1)nβ and one copy of everything. Best for small
// blocks; works for every p.
func allgatherBruck(ctx context.Context, c Comm, a *Args) error {
	rank, p, n := c.Rank(), c.Size(), len(a.Send)
	run := make([]byte, p*n)
	copy(run, a.Send)
	for have := 1; have < p; have *= 2 {
		more := min(have, p-have)
		err := sendrecv(ctx, c, (rank-have+p)%p, run[:more*n], (rank+have)%p, run[have*n:(have+more)*n])
		if err != nil {
			return err
		}
	}
	split := (p - rank) * n
	copy(a.Recv[rank*n:], run[:split])
	copy(a.Recv, run[split:])
	return nil
}
