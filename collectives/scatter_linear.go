package collectives

import "context"

// Linear scatter: the root starts a send to every rank, each straight from its
// place, and everyone else receives. It starts with the rank above its own, so
// that scatters from several roots do not all serve rank 0 first.
//
// Cost at the root: (p-1)α + (p-1)nβ, and no copies. Best for large blocks.
func scatterLinear(ctx context.Context, c Comm, a *Args) error {
	if c.Rank() != a.Root {
		return recv(ctx, c, a.Root, a.Recv)
	}
	n, p := len(a.Recv), c.Size()
	copy(a.Recv, a.Send[a.Root*n:])
	b := batch{c: c, posted: make([]transfer, 0, p-1)}
	for i := 1; i < p; i++ {
		r := (a.Root + i) % p
		b.send(r, a.Send[r*n:(r+1)*n])
	}
	return b.wait(ctx)
}
