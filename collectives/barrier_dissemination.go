package collectives

import "context"

// Dissemination barrier: in round k every rank tells the rank 2^k above that
// it, and all it has heard of, is here. After ceil(log2 p) rounds everyone has
// heard of everyone.
//
// Cost: ceil(log2 p)α, p messages a round. Messages are empty.
func barrierDissemination(ctx context.Context, c Comm, _ *Args) error {
	rank, p := c.Rank(), c.Size()
	for k := 1; k < p; k *= 2 {
		if err := sendrecv(ctx, c, (rank+k)%p, nil, (rank-k+p)%p, nil); err != nil {
			return err
		}
	}
	return nil
}
