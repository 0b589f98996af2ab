package collectives

import (
	"slices"

	"github.com/isthmus-grid/isthmus/collectives/schedule"
)

// plan is where an algorithm writes down what one rank does in one call. Its ranks are those of a
// communicator, or of a part of one: an algorithm does not see the difference, so it can do a part
// of another's work.
type plan struct {
	steps
	elements
	root    int
	in, out schedule.Region // the buffers to send from and to receive into, as long as the caller's
	inPlace bool            // in is a part of out

	// from and to return a rank's block of in and out, where those consist of blocks.
	from, to func(rank int) schedule.Region

	commutative bool

	layout Layout
	flits  int // how many pieces to cut messages between places into, at least 1
	found  *places
}

// newPlan requires a checked call.
func newPlan(rank, size int, l Layout, flits int, c *call) *plan {
	p := &plan{steps: steps{b: schedule.NewBuilder(rank, size), rank: rank, size: size}, elements: elements{max(1, c.elem)}, root: c.root, layout: l, flits: max(1, flits),
		inPlace: c.inPlace >= 0, commutative: c.commutative,
		in:  schedule.Region{Space: schedule.Input, Len: c.in},
		out: schedule.Region{Space: schedule.Output, Len: c.out}}
	if c.inPlace >= 0 {
		p.b.InPlace(c.inPlace)
	} else if c.within >= 0 {
		p.b.Within(c.within)
	}
	if c.overwrites() {
		in := p.Scratch(c.in) // results would overwrite data not yet sent
		p.Copy(in, p.in)
		p.in = in
	}
	p.from, p.to = c.blocks(p.in, p.out, size)
	return p
}

// subPlan returns the plan of some of the ranks, this one among them, for a part of the same call.
// Ranks, including root, are renumbered.
func (p *plan) subPlan(ranks []int, root int) *plan {
	q := *p
	q.rank, q.size, q.root = slices.Index(ranks, p.rank), len(ranks), slices.Index(ranks, root)
	q.layout, q.found = p.layout.subLayout(ranks), nil
	q.members = make([]int, len(ranks))
	for i, r := range ranks {
		q.members[i] = p.member(r)
	}
	return &q
}

// block returns block r of a region of equal ones, of n bytes each.
func block(whole schedule.Region, r, n int) schedule.Region { return whole.Cut(r*n, (r+1)*n) }

// blocks returns n equal blocks from the first on.
func blocks(whole schedule.Region, first, count, n int) schedule.Region {
	return whole.Cut(first*n, (first+count)*n)
}

// blockStart returns where block i of p begins when n elements are cut into blocks that differ by
// at most one element, the longer ones first.
func blockStart(n, p, i int) int {
	return i*(n/p) + min(i, n%p)
}
