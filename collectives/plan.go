package collectives

import (
	"slices"

	"github.com/isthmus-grid/isthmus/collectives/schedule"
)

// plan is where an algorithm writes down what one rank does in one call. Its ranks are those of a
// communicator, or of a part of one: an algorithm does not see the difference, so it can do a part
// of another's work.
type plan struct {
	b                *schedule.Builder
	rank, size, root int
	in, out          schedule.Region // the buffers to send from and to receive into, as long as the caller's
	inPlace          bool            // in is a part of out

	// from and to return a rank's block of in and out, where those consist of blocks.
	from, to func(rank int) schedule.Region

	elem        int // bytes of the operator's elements; 1 where there is no operator
	commutative bool

	layout  Layout
	members []int // the plan's ranks as ranks of the communicator; nil: all
	flits   int   // how many pieces to cut messages between places into, at least 1
	found   *places
}

// newPlan requires a checked call.
func newPlan(rank, size int, l Layout, flits int, c *call) *plan {
	p := &plan{b: schedule.NewBuilder(rank, size), rank: rank, size: size, root: c.root, layout: l, flits: max(1, flits),
		inPlace: c.inPlace >= 0, elem: max(1, c.elem), commutative: c.commutative,
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

// member returns a rank's number in the communicator.
func (p *plan) member(rank int) int {
	if p.members == nil {
		return rank
	}
	return p.members[rank]
}

// The steps of the schedule, by ranks of the plan. See schedule.Builder.

func (p *plan) Send(to int, r schedule.Region)      { p.b.Send(p.member(to), r) }
func (p *plan) Receive(from int, r schedule.Region) { p.b.Receive(p.member(from), r) }
func (p *plan) Signal(to int)                       { p.b.Signal(p.member(to)) }
func (p *plan) Await(from int)                      { p.b.Await(p.member(from)) }
func (p *plan) Copy(to, from schedule.Region)       { p.b.Copy(to, from) }
func (p *plan) Reduce(to, from schedule.Region)     { p.b.Reduce(to, from) }
func (p *plan) Scratch(n int) schedule.Region       { return p.b.Scratch(n) }

// exchange sends to one rank and receives from another.
func (p *plan) exchange(dst int, from schedule.Region, src int, to schedule.Region) {
	p.Receive(src, to)
	p.Send(dst, from)
}

// pass adds a message from one rank to another: a send at src and a receive at dst.
func (p *plan) pass(src int, from schedule.Region, dst int, to schedule.Region) {
	switch p.rank {
	case src:
		p.Send(dst, from)
	case dst:
		p.Receive(src, to)
	}
}

// block returns block r of a region of equal ones, of n bytes each.
func block(whole schedule.Region, r, n int) schedule.Region { return whole.Cut(r*n, (r+1)*n) }

// blocks returns n equal blocks from the first on.
func blocks(whole schedule.Region, first, count, n int) schedule.Region {
	return whole.Cut(first*n, (first+count)*n)
}

// piece returns piece i of n into which a region is cut between elements, the longer ones first.
// Their lengths differ by at most one element.
func (p *plan) piece(whole schedule.Region, i, n int) schedule.Region {
	return p.run(whole, i, i+1, n)
}

// run returns pieces first to end-1 of n.
func (p *plan) run(whole schedule.Region, first, end, n int) schedule.Region {
	elems := whole.Len / p.elem
	return whole.Cut(blockStart(elems, n, first)*p.elem, blockStart(elems, n, end)*p.elem)
}

// pieces cuts a region into n pieces, fewer if they would be empty, at least one.
func (p *plan) pieces(whole schedule.Region, n int) []schedule.Region {
	n = max(1, min(n, whole.Len/p.elem))
	all := make([]schedule.Region, n)
	for i := range all {
		all[i] = p.piece(whole, i, n)
	}
	return all
}

// blockStart returns where block i of p begins when n elements are cut into blocks that differ by
// at most one element, the longer ones first.
func blockStart(n, p, i int) int {
	return i*(n/p) + min(i, n%p)
}
