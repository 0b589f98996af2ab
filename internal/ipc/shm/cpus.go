package shm

import "math/bits"

// CPUs is a set of processors: number n is bit n%64 of word n/64.
type CPUs [16]uint64

// Count returns the number of processors in the set.
func (c CPUs) Count() int {
	n := 0
	for _, word := range c {
		n += bits.OnesCount64(word)
	}
	return n
}

// Common returns the number of processors in both sets.
func (c CPUs) Common(d CPUs) int {
	for i := range c {
		c[i] &= d[i]
	}
	return c.Count()
}

// Crowded reports whether more processes than processors contend where one process may run, whose
// set is own and which is one of them. Each of the others is assumed to spread evenly over its
// processors; an empty set means unknown, and counts as all processors.
func Crowded(own CPUs, others []CPUs) bool {
	have := own.Count()
	if have == 0 {
		return false
	}
	wanted := 1.0
	for _, other := range others {
		if n := other.Count(); n > 0 {
			wanted += float64(own.Common(other)) / float64(n)
		} else {
			wanted++
		}
	}
	return wanted > float64(have)+0.5
}
