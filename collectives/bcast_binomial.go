package collectives

import "context"

// Binomial broadcast: a rank that has the vector sends it to the rank half the
// remaining distance away, then a quarter, and so on. Counted from the root, a
// rank hears from the one whose number lacks its lowest set bit.
//
// Cost: ceil(log2 p)(α + nβ). Best for short vectors; long ones cross the
// root's link log2 p times.
func bcastBinomial(ctx context.Context, c Comm, a *Args) error {
	p := c.Size()
	v := (c.Rank() - a.Root + p) % p // the root is 0
	bit := 1
	for ; bit < p && v&bit == 0; bit *= 2 {
	}
	if v != 0 {
		if err := recv(ctx, c, (v-bit+a.Root)%p, a.Recv); err != nil {
			return err
		}
	}
	// The subtree below v is v+1 .. v+bit-1; its far half is served first.
	for bit /= 2; bit > 0; bit /= 2 {
		if v+bit < p {
			if err := send(ctx, c, (v+bit+a.Root)%p, a.Recv); err != nil {
				return err
			}
		}
	}
	return nil
}
