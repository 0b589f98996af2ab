package collectives

import "context"

// Linear gather: the root posts a receive for every rank, each straight into
// its place, and everyone else sends.
//
// Cost at the root: (p-1)α + (p-1)nβ, and no copies; messages may come in any
// order. Best for large blocks, where the root's link is the limit anyway.
func gatherLinear(ctx context.Context, c Comm, a *Args) error {
	n := len(a.Send)
	return collect(ctx, c, a, func(r int) []byte { return a.Recv[r*n : (r+1)*n] })
}

// collect is the linear gather with the place of each rank's block at the root
// given by place.
func collect(ctx context.Context, c Comm, a *Args, place func(rank int) []byte) error {
	if c.Rank() != a.Root {
		return send(ctx, c, a.Root, a.Send)
	}
	copy(place(a.Root), a.Send)
	b := batch{c: c, posted: make([]transfer, 0, c.Size()-1)}
	for r := range c.Size() {
		if r != a.Root {
			b.recv(r, place(r))
		}
	}
	return b.wait(ctx)
}
