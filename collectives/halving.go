package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// halving is the exchange that Rabenseifner's algorithms consist of: in round k partners at
// distance 2^k, counted in the seats of a fold, each send the other its half of the slice that both
// have, so that every seat ends with the reduction over all ranks in a slice of its own. The ranks
// of a seat's operands are always consecutive, so rank order is kept.
type halving struct {
	p *plan
	fold
}

// halving returns the plan's halving. If root is one of two ranks that fold, it takes the seat.
func (p *plan) halving(root int) halving { return halving{p, newFold(p.rank, p.size, root)} }

// slice returns the part of a vector that a seat has before the round of a bit.
func (h halving) slice(whole schedule.Region, seat, bit int) schedule.Region {
	first, count := 0, h.pow2
	for b := 1; b < bit; b *= 2 {
		if count /= 2; seat&b != 0 {
			first += count
		}
	}
	return h.p.run(whole, first, first+count, h.pow2)
}

// ownRegion returns this rank's contribution: its own vector, or the reduction of that and its
// partner's. At a rank that is folded away it returns false.
func (h halving) ownRegion() (acc schedule.Region, seated bool) {
	p := h.p
	switch {
	case h.foldedAway():
		p.Send(h.partner(), p.in)
		return acc, false
	case h.actsForTwo():
		in := p.Scratch(p.in.Len)
		p.Receive(h.partner(), in)
		return p.join(p.in, in, h.partner() > p.rank), true
	}
	return p.in, true
}

// scatter returns the reduction of all ranks' vectors in this seat's slice. The region is
// read-only.
func (h halving) scatter(acc schedule.Region) schedule.Region {
	p, me := h.p, h.position()
	whole := schedule.Region{Len: acc.Len}
	for bit := 1; bit < h.pow2; bit *= 2 {
		partner := me ^ bit
		have, keep, give := h.slice(whole, me, bit), h.slice(whole, me, 2*bit), h.slice(whole, partner, 2*bit)
		part := func(of schedule.Region) schedule.Region { return acc.Cut(of.Off-have.Off, of.Off-have.Off+of.Len) }
		in := p.Scratch(keep.Len)
		p.exchange(h.rankOf(partner), part(give), h.rankOf(partner), in)
		acc = p.join(part(keep), in, partner > me)
	}
	return acc
}

// join returns the reduction of two regions: own, which must not be changed, and got, received from
// ranks above or below. The result is read-only.
func (p *plan) join(own, got schedule.Region, above bool) schedule.Region {
	if above || p.commutative {
		p.Reduce(got, own)
		return got
	}
	sum := p.Scratch(own.Len)
	p.Copy(sum, own)
	p.Reduce(sum, got)
	return sum
}
