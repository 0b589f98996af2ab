package collectives

// Linear gather: the root posts a receive for every rank, each directly into its place, and all
// others send. It serves gatherv too, where only the root knows the lengths, so that no tree can be
// built without an extra exchange. Empty blocks are sent as well: a rank that disagrees about its
// count then causes an error instead of blocking.
//
// Cost at the root: (p-1)α + (p-1)nβ, and no copies; messages may arrive in any order. Best for
// large blocks, where the root's link is the limit anyway: every rank of a site then uses a lane of
// its own.
func gatherLinear(p *plan) {
	if p.rank != p.root {
		p.Send(p.root, p.in)
		return
	}
	for i := 1; i < p.size; i++ {
		r := (p.root + i) % p.size
		p.Receive(r, p.to(r))
	}
	p.Copy(p.to(p.root), p.in)
}
