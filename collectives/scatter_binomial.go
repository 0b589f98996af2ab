package collectives

import "context"

// Binomial scatter: the binomial gather run backwards. A rank receives the
// blocks of its whole subtree as one message, keeps the first and hands each
// child its run, the largest subtree first.
//
// Cost: ceil(log2 p)α + (p-1)nβ, and one copy of everything at a root other
// than 0. Best for small blocks.
func scatterBinomial(ctx context.Context, c Comm, a *Args) error {
	p, n := c.Size(), len(a.Recv)
	v := (c.Rank() - a.Root + p) % p
	size := subtree(v, p)
	run := a.Recv // blocks of v, v+1, ...
	switch {
	case v == 0 && a.Root == 0:
		run = a.Send
	case v == 0:
		run = append(append(make([]byte, 0, p*n), a.Send[a.Root*n:]...), a.Send[:a.Root*n]...)
	case size > 1:
		run = make([]byte, size*n)
	}
	bit := 1
	for ; bit < p && v&bit == 0; bit *= 2 {
	}
	if v != 0 {
		if err := recv(ctx, c, (v-bit+a.Root)%p, run); err != nil {
			return err
		}
	}
	for bit /= 2; bit > 0; bit /= 2 {
		if v+bit < p {
			child := run[bit*n : (bit+subtree(v+bit, p))*n]
			if err := send(ctx, c, (v+bit+a.Root)%p, child); err != nil {
				return err
			}
		}
	}
	copy(a.Recv, run[:n])
	return nil
}
