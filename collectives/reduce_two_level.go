package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Two-level reduce: every place reduces to its head, the heads send to the root's, which reduces in
// the order of the places.
//
// Cost with S sites: L + (S-1)nβ + local reduction; S-1 messages per flit between sites. Best for
// short vectors. An operator that is not commutative needs an ordered layout.
func reduceTwoLevel(p *plan) {
	g := p.places()
	if g == nil {
		reduceBinomial(p)
		return
	}
	in, out := p.pieces(p.in, p.flits), p.rootOnly(p.flits)
	for i := range in {
		partial := p.local(g, 0).collapse(in[i])
		if heads := p.across(g, 0); heads != nil {
			heads.starReduce(out[i], heads.scratchCopy(partial))
		}
	}
}

// rootOnly returns the pieces of the root's result; at other ranks, whose receive buffer is
// ignored, regions that must not be used.
func (p *plan) rootOnly(n int) []schedule.Region {
	if p.rank == p.root {
		return p.pieces(p.out, n)
	}
	return make([]schedule.Region, n)
}
