package datatype

// bounds are the ends of a type map, relative to the base address (MPI-4.1, 5.1.6 to 5.1.8). The
// two kinds are kept apart because marks propagate: a type with a marked part has only the marked
// parts' bounds.
type bounds struct {
	data     bool  // whether the type map has a basic element
	low, top int64 // if data: its first byte, and the one after its last

	marked bool  // whether a part was resized (lb_marker, ub_marker)
	lb, ub int64 // if marked

	align int64 // the strictest alignment of a basic element, at least 1
}

// spread returns b's union over copies displaced by lo to hi.
func (b bounds) spread(lo, hi int64, s *sum) bounds {
	if b.data {
		b.low, b.top = s.add(b.low, lo), s.add(b.top, hi)
	}
	if b.marked {
		b.lb, b.ub = s.add(b.lb, lo), s.add(b.ub, hi)
	}
	return b
}

// join returns the union of b and c.
func (b bounds) join(c bounds) bounds {
	switch {
	case !b.data:
		b.data, b.low, b.top = c.data, c.low, c.top
	case c.data:
		b.low, b.top = min(b.low, c.low), max(b.top, c.top)
	}
	switch {
	case !b.marked:
		b.marked, b.lb, b.ub = c.marked, c.lb, c.ub
	case c.marked:
		b.lb, b.ub = min(b.lb, c.lb), max(b.ub, c.ub)
	}
	b.align = max(b.align, c.align)
	return b
}

// limits returns the lower and upper bound. Without marks the upper one is padded to the alignment
// (the standard's epsilon); an empty type map has both at 0.
func (b bounds) limits(s *sum) (lb, ub int64) {
	switch {
	case b.marked:
		return b.lb, b.ub
	case !b.data:
		return 0, 0
	}
	extent := s.sub(b.top, b.low)
	if rest := extent % b.align; rest != 0 {
		extent = s.add(extent, b.align-rest)
	}
	return b.low, s.add(b.low, extent)
}
