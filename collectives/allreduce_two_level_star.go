package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Two-level star allreduce: every place reduces to its head, the heads send theirs to one of them, which
// reduces in the order of the places and sends them the result, and each spreads it within its place.
//
// Cost with S sites: 2L + 2(S-1)nβ + local reduction and broadcast; 2(S-1) messages per flit between sites,
// the least there can be. Best where the messages of many places take longer than their latency.
func allreduceTwoLevelStar(p *plan) {
	g := p.places()
	if g == nil {
		allreduceRecursiveDoubling(p)
		return
	}
	in, out := p.pieces(p.in, p.flits), p.pieces(p.out, p.flits)
	for i := range in {
		partial := p.local(g, 0).collapse(in[i])
		if heads := p.across(g, 0); heads != nil {
			heads.byRoot(out[i], partial)
		}
		p.local(g, 0).spread(out[i])
	}
}

// byRoot leaves at all ranks, in to, the reduction of a region of all ranks, which the root reduces.
func (p *plan) byRoot(to, own schedule.Region) {
	p.starReduce(to, p.scratchCopy(own))
	p.linear(to)
}
