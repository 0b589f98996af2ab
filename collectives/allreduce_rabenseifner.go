package collectives

// Rabenseifner allreduce: a reduce-scatter by recursive halving, then an allgather by recursive
// doubling. When p is not a power of two, the lowest 2(p-2^k) ranks first fold in pairs, as in
// recursive doubling. It keeps the order of ranks, and one rank finishes each slice, so all ranks
// have the same bits.
//
// Cost: 2 log2 p α + 2((p-1)/p)nβ + ((p-1)/p)nγ, and 2(α + nβ) + nγ more for the fold. Best for
// long vectors, above all with operators that are not commutative.
func allreduceRabenseifner(p *plan) {
	h := p.halving(-1)
	acc, seated := h.ownRegion()
	if !seated {
		p.Receive(h.partner(), p.out)
		return
	}
	me := h.position()
	p.Copy(h.slice(p.out, me, h.pow2), h.scatter(acc))
	for bit := h.pow2 / 2; bit > 0; bit /= 2 {
		partner := h.rankOf(me ^ bit)
		p.exchange(partner, h.slice(p.out, me, 2*bit), partner, h.slice(p.out, me^bit, 2*bit))
	}
	if h.actsForTwo() {
		p.Send(h.partner(), p.out)
	}
}
