package collectives

// Recursive doubling allreduce: in round k partners at distance 2^k exchange
// all they have and both fold it, so that after log2 p rounds everyone has the
// whole. When p is not a power of two, the lowest 2(p-2^k) ranks first fold in
// pairs, the upper of each pair takes part for both and hands the result back.
//
// Both partners compute lower op upper, over contiguous runs of ranks: rank
// order is kept for operators that need it, and since everyone groups and
// orders alike, all results have the same bits.
//
// Cost: log2 p (α + nβ + nγ), and 2(α + nβ) + nγ more for the fold.
func allreduceRecursiveDoubling(p *plan) {
	p.Copy(p.out, p.in)
	f := fold{rank: p.rank, pow2: 1}
	for f.pow2*2 <= p.size {
		f.pow2 *= 2
	}
	f.extra = p.size - f.pow2

	if f.foldedAway() {
		p.Send(f.rank+1, p.out)
		p.Receive(f.rank+1, p.out)
		return
	}
	acc, in := p.out, p.Scratch(p.out.Len)
	if f.actsForTwo() {
		p.Receive(f.rank-1, in)
		p.Reduce(acc, in)
	}
	me := f.seat()
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
		p.Send(f.rank-1, acc)
	}
	p.Copy(p.out, acc)
}

// fold maps p ranks to pow2 seats: ranks 2i and 2i+1 below 2*extra share seat
// i, which the odd one takes; each rank above has a seat of its own. Seats are
// in rank order.
type fold struct{ rank, pow2, extra int }

func (f fold) foldedAway() bool { return f.rank < 2*f.extra && f.rank%2 == 0 }
func (f fold) actsForTwo() bool { return f.rank < 2*f.extra && f.rank%2 == 1 }

func (f fold) seat() int {
	if f.rank < 2*f.extra {
		return f.rank / 2
	}
	return f.rank - f.extra
}

func (f fold) rankOf(seat int) int {
	if seat < f.extra {
		return 2*seat + 1
	}
	return seat + f.extra
}
