package collectives

import "context"

// Binomial gather: the broadcast tree run backwards, each rank passing on its
// own block and those of its subtree as one message. Counted from the root, a
// subtree is a contiguous run of ranks, so blocks stay in order; the root
// turns the run so that rank 0 comes first.
//
// Cost: ceil(log2 p)α + (p-1)nβ, and every block is copied at most once more
// at the root. Best for small blocks.
func gatherBinomial(ctx context.Context, c Comm, a *Args) error {
	p, n := c.Size(), len(a.Send)
	v := (c.Rank() - a.Root + p) % p
	run := a.Send // blocks of v, v+1, ... as far as they have come in
	if size := subtree(v, p); size > 1 {
		run = make([]byte, size*n)
		copy(run, a.Send)
	}
	for bit := 1; bit < p; bit *= 2 {
		if v&bit != 0 {
			return send(ctx, c, (v-bit+a.Root)%p, run)
		}
		if v+bit < p {
			child := run[bit*n : (bit+subtree(v+bit, p))*n]
			if err := recv(ctx, c, (v+bit+a.Root)%p, child); err != nil {
				return err
			}
		}
	}
	// Only the root comes here; run starts with its own block.
	split := (p - a.Root) * n
	copy(a.Recv[a.Root*n:], run[:split])
	copy(a.Recv, run[split:])
	return nil
}

// subtree is the number of ranks in the binomial subtree of v, itself
// included, among p ranks counted from the root.
func subtree(v, p int) int {
	if v == 0 {
		return p
	}
	return min(v&-v, p-v)
}
