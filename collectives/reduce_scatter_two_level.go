package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Two-level reduce-scatter: every place reduces the whole vector at its head, the heads send each
// other the blocks of the other's ranks, reduce in the order of the places, and distribute the
// result.
//
// Cost with S sites: L + ((S-1)/S)nβ + the local reduction of everything; S(S-1) messages between
// sites. Best for short vectors. An operator that is not commutative needs an ordered layout.
func reduceScatterTwoLevel(p *plan) {
	g := p.places()
	if g == nil {
		reduceScatterPairwise(p)
		return
	}
	partial := p.local(g, 0).collapse(p.in)
	block := func(r int) schedule.Region {
		b := p.from(r)
		return partial.Cut(b.Off-p.in.Off, b.Off-p.in.Off+b.Len)
	}
	heads := p.across(g, 0)
	if heads == nil {
		p.Receive(g.lanes[g.mine][0], p.out)
		return
	}
	for step := 1; step < len(g.ranks); step++ {
		k := (g.mine + step) % len(g.ranks)
		w := p.row(g.ranks[k], block)
		p.pack(w)
		heads.Send(k, w.whole)
	}
	own := p.row(g.ranks[g.mine], block)
	p.pack(own)
	sum := p.Scratch(own.whole.Len)
	heads.fold(sum, own.whole, g.mine, len(g.ranks), heads.Receive)
	for _, r := range g.ranks[g.mine] {
		n := p.from(r).Len
		if r == p.rank {
			p.Copy(p.out, sum.Cut(0, n))
		} else {
			p.Send(r, sum.Cut(0, n))
		}
		sum = sum.Cut(n, sum.Len)
	}
}
