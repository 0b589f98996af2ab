package allocate

import "slices"

// improve takes the first step that lowers the cost, again and again, until there is none or the
// work is used up.
func (f *field) improve(s start, work int) start {
	for {
		better, ok := f.step(s, &work)
		if !ok {
			return s
		}
		s = better
	}
}

// step tries the steps from s in a fixed order and returns the first that lowers the cost.
func (f *field) step(s start, work *int) (better start, ok bool) {
	// A step that only changes rounding errors could be repeated forever.
	enough := s.cost
	enough.time -= 1e-9 * s.cost.time
	f.neighbours(s.shares, func(shares []Share) bool {
		if *work -= f.work(shares); *work < 0 {
			return false
		}
		if c := f.cost(shares); c.compare(enough) < 0 {
			better, ok = start{slices.Clone(shares), c}, true
		}
		return !ok
	})
	return better, ok
}

// neighbours calls try with every placement that is one step from shares, until it returns false.
// try must not retain the slice.
func (f *field) neighbours(shares []Share, try func([]Share) bool) {
	scratch := make([]Share, 0, len(shares)+1)
	for _, steps := range []func([]Share, []Share, func([]Share) bool) bool{f.exchanges, f.moves, f.reorders} {
		if !steps(shares, scratch, try) {
			return
		}
	}
}

// exchanges gives a share to a host that has none.
func (f *field) exchanges(shares, scratch []Share, try func([]Share) bool) bool {
	used := f.hasShare(shares)
	for i, s := range shares {
		for h, c := range f.Capacity {
			if used[h] || c < s.Processes {
				continue
			}
			next := append(scratch[:0], shares...)
			next[i].Host = h
			if !try(next) {
				return false
			}
		}
	}
	return true
}

// moves takes one process, or as many as fit, from a share and gives them to another, or to a host
// that has none, before any share or last.
func (f *field) moves(shares, scratch []Share, try func([]Share) bool) bool {
	used := f.hasShare(shares)
	for i, from := range shares {
		for j, to := range shares {
			if room := f.Capacity[to.Host] - to.Processes; i == j || room == 0 {
				continue
			} else if !amounts(min(room, from.Processes), func(u int) bool {
				next := append(scratch[:0], shares...)
				next[i].Processes -= u
				next[j].Processes += u
				return try(slices.DeleteFunc(next, func(s Share) bool { return s.Processes == 0 }))
			}) {
				return false
			}
		}
		for h, c := range f.Capacity {
			if used[h] {
				continue
			}
			for at := 0; at <= len(shares); at++ {
				if !amounts(min(c, from.Processes), func(u int) bool {
					next := append(scratch[:0], shares...)
					next[i].Processes -= u
					next = slices.Insert(next, at, Share{h, u})
					return try(slices.DeleteFunc(next, func(s Share) bool { return s.Processes == 0 }))
				}) {
					return false
				}
			}
		}
	}
	return true
}

// amounts tries one and most.
func amounts(most int, try func(int) bool) bool {
	return try(1) && (most == 1 || try(most))
}

// reorders changes the order of numbering: it swaps two shares, moves one, or reverses a range.
// With the dense pattern and one copy of each rank that changes nothing.
func (f *field) reorders(shares, scratch []Share, try func([]Share) bool) bool {
	if f.Job.Pattern == Dense && f.Job.Copies == 1 {
		return true
	}
	for i := range shares {
		for j := range shares {
			if i == j {
				continue
			}
			next := append(scratch[:0], shares...)
			s := next[i]
			next = slices.Insert(slices.Delete(next, i, i+1), j, s)
			if !try(next) {
				return false
			}
			if j < i {
				continue
			}
			next = append(scratch[:0], shares...)
			next[i], next[j] = next[j], next[i]
			if !try(next) {
				return false
			}
			next = append(scratch[:0], shares...)
			slices.Reverse(next[i : j+1])
			if !try(next) {
				return false
			}
		}
	}
	return true
}

// hasShare returns which hosts have a share.
func (f *field) hasShare(shares []Share) []bool {
	used := make([]bool, len(f.Hosts))
	for _, s := range shares {
		used[s.Host] = true
	}
	return used
}
