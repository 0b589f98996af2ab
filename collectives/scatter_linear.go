package collectives

// Linear scatter: the root starts a send to every rank, each directly from its place, and all
// others receive. It starts with the rank above its own, so that scatters from several roots do not
// all serve rank 0 first.
//
// It serves scatterv too.
//
// Cost at the root: (p-1)α + (p-1)nβ, and no copies. Best for large blocks.
func scatterLinear(p *plan) {
	if p.rank != p.root {
		p.Receive(p.root, p.out)
		return
	}
	for i := 1; i < p.size; i++ {
		r := (p.root + i) % p.size
		p.Send(r, p.from(r))
	}
	p.Copy(p.out, p.from(p.root))
}
