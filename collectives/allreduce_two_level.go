package collectives

// Two-level allreduce: every place reduces to its head, the heads send theirs to one another and
// reduce in the order of the places, each for itself, and spread the result within their place.
//
// Cost with S sites: L + (S-1)nβ + local reduction and broadcast; S(S-1) messages per flit between
// sites. Best for short vectors.
func allreduceTwoLevel(p *plan) {
	g := p.places()
	if g == nil {
		allreduceRecursiveDoubling(p)
		return
	}
	in, out := p.pieces(p.in, p.flits), p.pieces(p.out, p.flits)
	for i := range in {
		partial := p.local(g, 0).collapse(in[i])
		if heads := p.across(g, 0); heads != nil {
			heads.allPairs(out[i], partial)
		}
		p.local(g, 0).spread(out[i])
	}
}
