package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// Binomial reduce: the broadcast tree run backwards. Each rank folds in its children, nearest
// first, and passes the result to its parent, so a rank always holds the reduction of a contiguous
// run of ranks starting at itself.
//
// Counted from the root that run wraps around from p-1 to 0, which only a commutative operator
// allows; for others the tree's root is rank 0, which sends the result to the root.
//
// Cost: ceil(log2 p)(α + nβ + nγ), and α + nβ more if ordered with root not 0.
func reduceBinomial(p *plan) {
	if result := p.reduceToRoot(p.in); p.rank == p.root {
		p.Copy(p.out, result)
	}
}

// reduceToRoot returns the region in which the root has the reduction of r. It is read-only.
func (p *plan) reduceToRoot(r schedule.Region) schedule.Region {
	top := p.root
	if !p.commutative {
		top = 0
	}
	result := p.reduceTree(top, r)
	if top == p.root {
		return result
	}
	if p.rank == p.root {
		result = p.Scratch(r.Len)
	}
	p.pass(top, result, p.root, result)
	return result
}

// reduceTree returns the region in which top has the reduction of acc.
func (p *plan) reduceTree(top int, acc schedule.Region) schedule.Region {
	v := (p.rank - top + p.size) % p.size
	var regions [2]schedule.Region // acc is read-only; results alternate between these
	next := 0
	for bit := 1; bit < p.size; bit *= 2 {
		if v&bit != 0 {
			p.Send((v-bit+top)%p.size, acc)
			return acc
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
	return acc
}
