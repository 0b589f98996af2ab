package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Recursive-doubling scan: in round k every rank sends what it has, the reduction of the
// 2^k ranks up to its own, to the rank 2^k above. It serves exscan too, and any
// operator.
//
// Cost: ceil(log2 p)(α + nβ + nγ).
func scanRecursiveDoubling(p *plan) {
	own := p.scratchCopy(p.in)
	p.Copy(p.out, own)
	p.prefix(p.out)
}

// Recursive-doubling exscan. See scanRecursiveDoubling.
func exscanRecursiveDoubling(p *plan) {
	acc := p.Scratch(p.in.Len)
	p.Copy(acc, p.in)
	if below := p.prefix(acc); p.rank > 0 {
		p.Copy(p.out, below)
	}
}

// prefix reduces acc with those of all lower ranks. below, which rank 0 does not have, is the
// reduction of the lower ranks alone.
func (p *plan) prefix(acc schedule.Region) (below schedule.Region) {
	for bit := 1; bit < p.size; bit *= 2 {
		if p.rank+bit < p.size {
			p.Send(p.rank+bit, acc)
		}
		if p.rank < bit {
			continue
		}
		in := p.Scratch(acc.Len)
		p.Receive(p.rank-bit, in)
		p.Reduce(acc, in)
		if below.Len == 0 {
			below = p.Scratch(acc.Len)
			p.Copy(below, in)
		} else {
			p.Reduce(below, in)
		}
	}
	return below
}
