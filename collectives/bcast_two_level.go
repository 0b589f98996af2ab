package collectives

// Two-level broadcast: the root sends to the head of every other place, and each head spreads it
// within its place. When the vector is cut into flits, a place forwards what it has while the rest
// is in transit.
//
// Cost with S sites: L + (S-1)nβ + (n/F)b + local latencies; S-1 messages per flit between sites.
// With 2 sites no algorithm sends fewer bytes between sites; with more it is best for vectors short
// against Lβ⁻¹/(S-2).
func bcastTwoLevel(p *plan) {
	g := p.places()
	if g == nil {
		p.tree(p.out)
		return
	}
	for _, flit := range p.pieces(p.out, p.flits) {
		if heads := p.across(g, 0); heads != nil {
			heads.linear(flit)
		}
		p.local(g, 0).spread(flit)
	}
}
