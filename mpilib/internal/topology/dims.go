package topology

import (
	"fmt"
	"math"
	"slices"
)

// Dims fills in the sizes of a grid of nnodes processes (MPI_Dims_create, 8.5.2). A positive size
// is kept; sizes of 0 are set so that the product of all is nnodes, in non-increasing order and as
// close to each other as possible: the difference between the largest and the smallest of those set
// is minimal and, among several such choices, the largest is minimal, then the next one. At worst,
// beyond twenty dimensions, the search takes about 0.1 s. On an error dims is unchanged.
func Dims(nnodes int, dims []int) error {
	if nnodes <= 0 || nnodes > maxProcesses {
		return fmt.Errorf("topology: Dims: %w: %d nodes, must be 1 to %d", ErrArg, nnodes, maxProcesses)
	}
	remaining, free := nnodes, 0
	for i, d := range dims {
		switch {
		case d < 0:
			return fmt.Errorf("topology: Dims: dims[%d] = %d: %w: it is negative", i, d, ErrDims)
		case d == 0:
			free++
		case remaining%d != 0:
			return fmt.Errorf("topology: Dims: dims[%d] = %d: %w: %d nodes are no multiple of the sizes given up to here", i, d, ErrDims, nnodes)
		default:
			remaining /= d
		}
	}
	if free == 0 && remaining != 1 {
		return fmt.Errorf("topology: Dims: %w: %d nodes, but the sizes given make %d and none is 0", ErrDims, nnodes, nnodes/remaining)
	}
	set := balanced(remaining, free)
	for i, d := range dims {
		if d == 0 {
			dims[i], set = set[0], set[1:]
		}
	}
	return nil
}

// maxFactors exceeds the number of prime factors of any 31-bit number: further sizes are 1.
const maxFactors = 31

// balanced returns n as a product of k non-increasing factors, chosen as Dims describes.
func balanced(n, k int) []int {
	s := factoring{cur: make([]int, min(k, maxFactors)), spread: math.MaxInt}
	for d := 1; d*d <= n; d++ {
		if n%d == 0 {
			s.divisors = append(s.divisors, d, n/d)
		}
	}
	slices.Sort(s.divisors)
	if k > 0 {
		s.choose(0, n, n)
	}
	for len(s.best) < k {
		s.best = append(s.best, 1)
	}
	return s.best
}

// A factoring is a search through the non-increasing factorisations, smaller first factors first.
// It prunes a branch as soon as even its most even result would be no better than the best so far.
type factoring struct {
	divisors []int // of the whole, ascending
	cur      []int // factors chosen
	best     []int
	spread   int // of best: its first factor minus its last
}

// choose tries every factor for position i onwards, where remaining is the product still to be factored
// and no factor may exceed limit.
func (s *factoring) choose(i, remaining, limit int) {
	places := len(s.cur) - i
	if places == 1 {
		if s.cur[i] = remaining; remaining <= limit && s.cur[0]-remaining < s.spread {
			s.best, s.spread = slices.Clone(s.cur), s.cur[0]-remaining
		}
		return
	}
	start, _ := slices.BinarySearch(s.divisors, floorRoot(remaining, places))
	for _, d := range s.divisors[start:] {
		if d > limit {
			return
		}
		if remaining%d != 0 || !powerReaches(d, places, remaining) {
			continue
		}
		s.cur[i] = d
		// The smallest factor is at most the mean of the remaining ones.
		if s.cur[0]-floorRoot(remaining/d, places-1) >= s.spread {
			if i == 0 {
				return // a larger first factor makes it worse
			}
			continue
		}
		s.choose(i+1, remaining/d, d)
	}
}

// floorRoot returns the largest r with r^k <= n, for n >= 1.
func floorRoot(n, k int) int {
	r := int(math.Pow(float64(n), 1/float64(k)))
	for power(r+1, k, n) <= n {
		r++
	}
	for power(r, k, n) > n {
		r--
	}
	return r
}

// powerReaches reports whether d^k >= n.
func powerReaches(d, k, n int) bool { return power(d, k, n) >= n }

// power returns d^k, or more than n as soon as it is more than n.
func power(d, k, n int) int {
	p := 1
	for range k {
		if p *= d; p > n {
			return p
		}
	}
	return p
}
