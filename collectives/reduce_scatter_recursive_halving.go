package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Recursive-halving reduce-scatter: in each round partners, at first half of all ranks apart, then
// a quarter, send each other the blocks of the other's half. When p is not a power of two, the
// lowest 2(p-2^k) ranks first fold in pairs, and the upper of each pair sends the other its block.
// Operands of ranks that are not consecutive are combined, so the operator must be commutative.
//
// Cost: log2 p α + ((p-1)/p)n(β + γ), and 2α + n(β + γ) more for the fold. Best for short blocks.
func reduceScatterRecursiveHalving(p *plan) {
	f := newFold(p.rank, p.size, -1)
	if f.foldedAway() {
		p.Send(f.partner(), p.in)
		p.Receive(f.partner(), p.out)
		return
	}
	acc, base := p.in, p.in.Off // base is where acc begins in the vector
	if f.actsForTwo() {
		acc = p.Scratch(p.in.Len)
		p.Receive(f.partner(), acc)
		p.Reduce(acc, p.in)
	}
	begin := func(seat int) int { // offset of the seat's blocks in the vector
		if seat == f.pow2 {
			return p.in.Off + p.in.Len
		}
		first := f.rankOf(seat)
		if seat < f.extra {
			first--
		}
		return p.from(first).Off
	}
	me := f.position()
	for half := f.pow2 / 2; half > 0; half /= 2 {
		of := func(seat int) schedule.Region {
			first := seat &^ (half - 1)
			return acc.Cut(begin(first)-base, begin(first+half)-base)
		}
		keep, partner := of(me), f.rankOf(me^half)
		in := p.Scratch(keep.Len)
		p.exchange(partner, of(me^half), partner, in)
		p.Reduce(in, keep)
		acc, base = in, begin(me&^(half-1))
	}
	own := p.from(p.rank)
	if f.actsForTwo() {
		other := p.from(f.partner())
		p.Send(f.partner(), acc.Cut(other.Off-base, other.Off-base+other.Len))
	}
	p.Copy(p.out, acc.Cut(own.Off-base, own.Off-base+own.Len))
}
