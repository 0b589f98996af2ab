package collectives

import "context"

// Bruck alltoall: a block that must travel d ranks upwards makes one hop for
// each bit set in d. In the round of a bit every rank packs all blocks whose
// remaining way has that bit, as one message to the rank that far above. The
// slot of a block is its distance, which is the same at every stop, so what
// comes in takes the slots of what went out.
//
// Cost: ceil(log2 p)(α + (p/2)nβ) and two copies a round. Best for tiny
// blocks, where the number of messages is what costs.
func alltoallBruck(ctx context.Context, c Comm, a *Args) error {
	rank, p := c.Rank(), c.Size()
	n := len(a.Send) / p
	slots := make([]byte, 0, p*n) // slot d holds a block with distance d to go or gone
	slots = append(append(slots, a.Send[rank*n:]...), a.Send[:rank*n]...)

	out, in := make([]byte, 0, p*n), make([]byte, p*n)
	for bit := 1; bit < p; bit *= 2 {
		out = out[:0]
		for d := bit; d < p; d++ {
			if d&bit != 0 {
				out = append(out, slots[d*n:(d+1)*n]...)
			}
		}
		rest := in[:len(out)]
		if err := sendrecv(ctx, c, (rank+bit)%p, out, (rank-bit+p)%p, rest); err != nil {
			return err
		}
		for d := bit; d < p; d++ {
			if d&bit != 0 {
				rest = rest[copy(slots[d*n:(d+1)*n], rest):]
			}
		}
	}
	// Slot d now holds the block that came from d ranks below.
	for d := range p {
		src := (rank - d + p) % p
		copy(a.Recv[src*n:(src+1)*n], slots[d*n:])
	}
	return nil
}
