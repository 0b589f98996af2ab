package collectives

import "context"

// Pairwise alltoallv: all p-1 receives and p-1 sends are started at once, in
// the order of the pairwise exchange: rank+1, rank+2, ... so that not everyone
// begins with the same target. A slow pair delays nobody else, which steps
// with unequal blocks would. Empty blocks are sent too: ranks that disagree
// about a count get an error and not a wait.
//
// Cost: about α(p-1) + β max(bytes out, bytes in) of the busiest rank, no
// copies. At most 2(p-1) transfers are under way.
func alltoallvPairwise(ctx context.Context, c Comm, a *Args) error {
	rank, p := c.Rank(), c.Size()
	copy(blockOf(a.Recv, a.RecvCounts, a.RecvDispls, rank), blockOf(a.Send, a.SendCounts, a.SendDispls, rank))
	b := batch{c: c, posted: make([]transfer, 0, 2*(p-1))}
	for i := 1; i < p; i++ {
		src := (rank - i + p) % p
		b.recv(src, blockOf(a.Recv, a.RecvCounts, a.RecvDispls, src))
	}
	for i := 1; i < p; i++ {
		dst := (rank + i) % p
		b.send(dst, blockOf(a.Send, a.SendCounts, a.SendDispls, dst))
	}
	return b.wait(ctx)
}
