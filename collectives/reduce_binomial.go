package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Binomial reduce: the broadcast tree run backwards. Each rank folds in its
// children, nearest first, and passes the result to its parent, so that a rank
// always holds the product of a contiguous run of ranks starting at itself.
//
// Counted from the root that run wraps around from p-1 to 0, which only a
// commutative operator allows; for others the tree stands on rank 0, which
// hands the result to the root.
//
// Cost: ceil(log2 p)(α + nβ + nγ), and α + nβ more if ordered with root not 0.
func reduceBinomial(p *plan) {
	top := p.root
	if !p.op.Commutative {
		top = 0
	}
	result, mine := p.reduceTree(top)
	switch {
	case mine && p.rank == p.root:
		p.Copy(p.out, result)
	case mine:
		p.Send(p.root, result)
	case p.rank == p.root:
		p.Receive(top, p.out)
	}
}

// reduceTree returns where top has the whole reduction; mine reports whether it is
// this rank.
func (p *plan) reduceTree(top int) (result schedule.Region, mine bool) {
	v := (p.rank - top + p.size) % p.size
	acc := p.in // to read only; later results alternate between two regions
	var regions [2]schedule.Region
	next := 0
	for bit := 1; bit < p.size; bit *= 2 {
		if v&bit != 0 {
			p.Send((v-bit+top)%p.size, acc)
			return acc, false
		}
		if v+bit >= p.size {
			continue
		}
		if regions[next].Len == 0 {
			regions[next] = p.Scratch(acc.Len)
		}
		in := regions[next]
		p.Receive((v+bit+top)%p.size, in)
		p.Reduce(in, acc) // the child's ranks are above ours: acc op in
		acc, next = in, 1-next
	}
	return acc, true
}
