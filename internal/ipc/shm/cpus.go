package shm

import "math/bits"

// CPUs is a set of processors: number n is bit n%64 of word n/64.
type CPUs [16]uint64

// Count returns how many there are.
func (c CPUs) Count() int {
	n := 0
	for _, word := range c {
		n += bits.OnesCount64(word)
	}
	return n
}

// Common returns how many are in both sets.
func (c CPUs) Common(d CPUs) int {
	for i := range c {
		c[i] &= d[i]
	}
	return c.Count()
}

// Crowded reports whether more processes than processors want to run where one
// process may, whose set is own and which is one of them. Each of the others is taken to run
// on all of its processors alike; what an unknown set has, an empty one, is on every processor.
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
