package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Allgather scan: every rank gets the vectors of all and reduces those up to its own. It serves
// exscan too, any operator, and ranks that lie anywhere.
//
// Cost: that of the full-lane allgather, L + (N-n)mβ with sites. Best for short vectors with ranks
// dealt to sites round robin, where every prefix needs all sites.
func scanAllgather(p *plan) { p.prefixOfAll(p.rank + 1) }

// Allgather exscan. See scanAllgather.
func exscanAllgather(p *plan) { p.prefixOfAll(p.rank) }

// prefixOfAll reduces the vectors of the first n ranks.
func (p *plan) prefixOfAll(n int) {
	all := p.Scratch(p.size * p.in.Len)
	q := *p
	q.found = nil
	q.to = func(r int) schedule.Region { return block(all, r, p.in.Len) }
	allgatherFullLane(&q)
	if n == 0 {
		return
	}
	p.Copy(p.out, q.to(n-1))
	for r := n - 2; r >= 0; r-- {
		p.Reduce(p.out, q.to(r))
	}
}
