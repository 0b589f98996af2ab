package collectives

import "context"

// Linear gatherv: the linear gather with blocks of any length. Only the root
// knows the lengths, so no tree can be built without asking first. Empty
// blocks are sent too: a rank that disagrees about its count is then an error
// and not a wait.
//
// Cost at the root: (p-1)α + (sum of counts)β, and no copies.
func gathervLinear(ctx context.Context, c Comm, a *Args) error {
	return collect(ctx, c, a, func(r int) []byte { return blockOf(a.Recv, a.RecvCounts, a.RecvDispls, r) })
}
