package collectives

import "github.com/isthmus-grid/isthmus/collectives/schedule"

// steps is the part of a plan that writes down one rank's steps, by the ranks of the plan.
type steps struct {
	b          *schedule.Builder
	rank, size int
	members    []int // the plan's ranks as ranks of the communicator; nil: all
}

// member returns a rank's number in the communicator.
func (s *steps) member(rank int) int {
	if s.members == nil {
		return rank
	}
	return s.members[rank]
}

// The steps of the schedule, by ranks of the plan. See schedule.Builder.

func (s *steps) Send(to int, r schedule.Region)      { s.b.Send(s.member(to), r) }
func (s *steps) Receive(from int, r schedule.Region) { s.b.Receive(s.member(from), r) }
func (s *steps) Signal(to int)                       { s.b.Signal(s.member(to)) }
func (s *steps) Await(from int)                      { s.b.Await(s.member(from)) }
func (s *steps) Copy(to, from schedule.Region)       { s.b.Copy(to, from) }
func (s *steps) Reduce(to, from schedule.Region)     { s.b.Reduce(to, from) }
func (s *steps) Scratch(n int) schedule.Region       { return s.b.Scratch(n) }

// exchange sends to one rank and receives from another.
func (s *steps) exchange(dst int, from schedule.Region, src int, to schedule.Region) {
	s.Receive(src, to)
	s.Send(dst, from)
}

// pass adds a message from one rank to another: a send at src and a receive at dst.
func (s *steps) pass(src int, from schedule.Region, dst int, to schedule.Region) {
	switch s.rank {
	case src:
		s.Send(dst, from)
	case dst:
		s.Receive(src, to)
	}
}

// elements is the part of a plan that cuts regions: between elements, never inside one.
type elements struct {
	elem int // bytes of the operator's elements; 1 where there is no operator
}

// piece returns piece i of n into which a region is cut between elements, the longer ones first.
// Their lengths differ by at most one element.
func (e elements) piece(whole schedule.Region, i, n int) schedule.Region {
	return e.run(whole, i, i+1, n)
}

// run returns pieces first to end-1 of n.
func (e elements) run(whole schedule.Region, first, end, n int) schedule.Region {
	elems := whole.Len / e.elem
	return whole.Cut(blockStart(elems, n, first)*e.elem, blockStart(elems, n, end)*e.elem)
}

// pieces cuts a region into n pieces, fewer if they would be empty, at least one.
func (e elements) pieces(whole schedule.Region, n int) []schedule.Region {
	n = max(1, min(n, whole.Len/e.elem))
	all := make([]schedule.Region, n)
	for i := range all {
		all[i] = e.piece(whole, i, n)
	}
	return all
}
