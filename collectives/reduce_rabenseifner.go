package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Rabenseifner reduce: a reduce-scatter by recursive halving, then a binomial gather.
// When p is not a power of two, the lowest 2(p-2^k) ranks first fold in pairs. It keeps
// the order of ranks.
//
// Cost: 2 log2 p α + 2((p-1)/p)nβ + ((p-1)/p)nγ, and α + nβ + nγ more for the fold. Best
// for long vectors.
func reduceRabenseifner(p *plan) {
	h := p.halving(p.root)
	acc, seated := h.ownRegion()
	if !seated {
		return
	}
	acc = h.scatter(acc)
	me, top := h.position(), h.positionOf(p.root)
	last := h.pow2 / 2 // the round in which this rank sends away what it has; 0 at the root
	for last > 0 && me&last == top&last {
		last /= 2
	}
	if 2*last == h.pow2 {
		p.Send(h.rankOf(me^last), acc)
		return
	}
	whole := schedule.Region{Len: p.in.Len}
	mine, all := h.slice(whole, me, 2*last), p.out
	if p.rank != p.root {
		all = p.Scratch(mine.Len)
	}
	at := func(of schedule.Region) schedule.Region { return all.Cut(of.Off-mine.Off, of.Off-mine.Off+of.Len) }
	p.Copy(at(h.slice(whole, me, h.pow2)), acc)
	for bit := h.pow2 / 2; bit > last; bit /= 2 {
		p.Receive(h.rankOf(me^bit), at(h.slice(whole, me^bit, 2*bit)))
	}
	if last > 0 {
		p.Send(h.rankOf(me^last), all)
	}
}
