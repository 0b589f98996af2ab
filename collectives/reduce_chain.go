package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Chain reduce, pipelined: every rank reduces each flit that it receives with its own and forwards
// the result while it receives the next one. Ranks follow one another around from the root; where
// their order matters there are two chains, from either end up to the root.
//
// Cost: (p-2+F)(α + (n/F)(β + γ)). Best for long vectors cut into so many flits that their
// latencies dominate the cost.
func reduceChain(p *plan) {
	in, out := p.pieces(p.in, p.flits), p.rootOnly(p.flits)
	for i := range in {
		if result := p.chainReduce(in[i]); p.rank == p.root {
			p.Copy(out[i], result)
		}
	}
}

// chainReduce returns the region in which the root has the reduction of r. It is read-only.
func (p *plan) chainReduce(r schedule.Region) schedule.Region {
	above, below := p.size-1, 0 // number of ranks of either chain
	if !p.commutative {
		above, below = p.size-1-p.root, p.root
	}
	v := (p.rank - p.root + p.size) % p.size
	next := func(by int) int { return (p.rank + by + p.size) % p.size }
	if v < above {
		in := p.Scratch(r.Len)
		p.Receive(next(+1), in)
		p.Reduce(in, r)
		r = in
	}
	if v == 0 && below > 0 || v > above && v != p.size-below {
		in := p.Scratch(r.Len)
		p.Receive(next(-1), in)
		r = p.join(r, in, false)
	}
	switch {
	case v > above:
		p.Send(next(+1), r)
	case v > 0:
		p.Send(next(-1), r)
	}
	return r
}
