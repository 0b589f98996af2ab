package agree

// A tree joins the ranks of a communicator that are not excluded. It is a function of the excluded
// ranks, so every member that knows them knows the tree.
//
// Its root is the lowest rank. Positions are counted without the excluded ranks, and shape gives
// each position but the first that of its parent, which is lower.
type tree struct {
	size     int // of the communicator
	excluded Set
	shape    func(position int) int
}

// binomial clears the lowest set bit. A subtree is an aligned run of positions, so if ranks are in
// order of their sites few edges cross between sites, and no path is longer than the number of bits
// of the highest position.
func binomial(position int) int { return position & (position - 1) }

func (t tree) root() int { return t.excluded.lowestOutside() }

// parent returns the rank of rank's parent, or -1 for the root.
func (t tree) parent(rank int) int {
	p := rank - t.excluded.below(rank)
	if p == 0 {
		return -1
	}
	p = t.shape(p)
	for r := t.root(); ; r++ {
		if t.excluded.Has(r) {
			continue
		}
		if p == 0 {
			return r
		}
		p--
	}
}

// children returns the ranks of rank's children in ascending order.
func (t tree) children(rank int) []int {
	var children []int
	parent := rank - t.excluded.below(rank)
	p := parent + 1
	for r := rank + 1; r < t.size; r++ {
		if t.excluded.Has(r) {
			continue
		}
		if t.shape(p) == parent {
			children = append(children, r)
		}
		p++
	}
	return children
}
