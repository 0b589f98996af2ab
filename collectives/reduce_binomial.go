package collectives

import "context"

// Binomial reduce: the broadcast tree run backwards. Each rank folds in its
// children, nearest first, and passes the result to its parent, so that a rank
// always holds the product of a contiguous run of ranks starting at itself.
//
// Counted from the root that run wraps around from p-1 to 0, which only a
// commutative operator allows; for others the tree stands on rank 0, which
// hands the result to the root.
//
// Cost: ceil(log2 p)(α + nβ + nγ), and α + nβ more if ordered with root not 0.
func reduceBinomial(ctx context.Context, c Comm, a *Args) error {
	top := a.Root
	if !a.Op.Commutative {
		top = 0
	}
	result, err := reduceTree(ctx, c, a, top)
	if err != nil {
		return err
	}
	rank := c.Rank()
	switch {
	case rank == top && rank == a.Root:
		copy(a.Recv, result)
	case rank == top:
		return send(ctx, c, a.Root, result)
	case rank == a.Root:
		return recv(ctx, c, top, a.Recv)
	}
	return nil
}

// reduceTree returns the whole reduction at top and nothing of use elsewhere.
// It does not change a.Send and may return it.
func reduceTree(ctx context.Context, c Comm, a *Args, top int) ([]byte, error) {
	p := c.Size()
	v := (c.Rank() - top + p) % p
	acc := a.Send // ours only to read; later results alternate between the two buffers
	var bufs [2][]byte
	next := 0
	for bit := 1; bit < p; bit *= 2 {
		if v&bit != 0 {
			return nil, send(ctx, c, (v-bit+top)%p, acc)
		}
		if v+bit >= p {
			continue
		}
		if bufs[next] == nil {
			bufs[next] = make([]byte, len(acc))
		}
		in := bufs[next]
		if err := recv(ctx, c, (v+bit+top)%p, in); err != nil {
			return nil, err
		}
		// The child's ranks are above ours: acc op in, which lands in in.
		if err := a.Op.apply(in, acc); err != nil {
			return nil, err
		}
		acc, next = in, 1-next
	}
	return acc, nil
}
