package collectives

// Two-level broadcast: the root sends to the head of every other place, and each
// spreads it at home. Cut into flits, the places pass on what they have while the rest
// is under way.
//
// Cost with S sites: L + (S-1)nβ + (n/F)b + local latencies; S-1 messages a flit
// between sites. With 2 sites nothing crosses less; with more it is best for what is
// short against Lβ⁻¹/(S-2).
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
