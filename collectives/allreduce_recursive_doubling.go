package collectives

// Recursive doubling allreduce: in round k partners at distance 2^k exchange all they have and both
// fold it, so after log2 p rounds every rank has the whole. When p is not a power of two, the
// lowest 2(p-2^k) ranks first fold in pairs, the upper of each pair takes part for both and sends
// the result back.
//
// Both partners compute lower op upper, over contiguous runs of ranks: rank order is kept for
// operators that need it, and since all ranks group and order alike, all results have the same
// bits.
//
// Cost: log2 p (α + nβ + nγ), and 2(α + nβ) + nγ more for the fold.
func allreduceRecursiveDoubling(p *plan) {
	p.Copy(p.out, p.in)
	f := newFold(p.rank, p.size, -1)
	if f.foldedAway() {
		p.Send(f.partner(), p.out)
		p.Receive(f.partner(), p.out)
		return
	}
	acc, in := p.out, p.Scratch(p.out.Len)
	if f.actsForTwo() {
		p.Receive(f.partner(), in)
		p.Reduce(acc, in)
	}
	me := f.position()
	for bit := 1; bit < f.pow2; bit *= 2 {
		partner := f.rankOf(me ^ bit)
		p.exchange(partner, acc, partner, in)
		lower, upper := in, acc
		if me&bit == 0 {
			lower, upper = acc, in
		}
		p.Reduce(upper, lower)
		acc, in = upper, lower
	}
	if f.actsForTwo() {
		p.Send(f.partner(), acc)
	}
	p.Copy(p.out, acc)
}
