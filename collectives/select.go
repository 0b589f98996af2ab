package collectives

import (
	"errors"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/collectives/schedule"
)

// Shape is what the choice of an algorithm may depend on. Every rank of a call
// sees the same Shape, so every rank makes the same choice.
type Shape struct {
	// Bytes is the length of the vector (bcast, reduce, allreduce, scan, exscan), of
	// one rank's block (gather, allgather, scatter, alltoall, reduce_scatter_block) or
	// of all blocks together (allgatherv, reduce_scatter). It is zero where ranks need
	// not agree on one: barrier, gatherv, scatterv and alltoallv.
	Bytes int
	// Root is the root's rank, if there is a root.
	Root int
	// Elem is the size of the operator's elements in bytes, if there is an operator.
	Elem int
	// Commutative reports whether the operator is commutative.
	Commutative bool
	// Posts is how many bytes each rank may post at a time on memory that all ranks of the call
	// share, as by SharedBuffer; 0 if there is none.
	Posts int
}

func (c *call) shape(size int) Shape {
	s := Shape{Root: c.root, Elem: max(1, c.elem), Commutative: c.commutative}
	switch c.collective {
	case operation.Bcast, operation.Scatter, operation.ReduceScatterBlock:
		s.Bytes = c.out
	case operation.Reduce, operation.Allreduce, operation.Scan, operation.Exscan, operation.Gather, operation.Allgather, operation.ReduceScatter:
		s.Bytes = c.in
	case operation.Alltoall:
		s.Bytes = c.in / size
	case operation.Allgatherv:
		for _, n := range c.recvCounts {
			s.Bytes += n
		}
	}
	return s
}

// typical returns a call of rank r of size that has the shape, with equal blocks.
func typical(collective operation.Operation, s Shape, r, size int) *call {
	c := &call{collective: collective, inPlace: -1, within: -1, root: s.Root, elem: s.Elem, commutative: s.Commutative}
	n := s.Bytes
	atRoot := func(n int) int {
		if r == s.Root {
			return n
		}
		return 0
	}
	switch collective {
	case operation.Bcast:
		c.out = n
	case operation.Reduce:
		c.in, c.out = n, atRoot(n)
	case operation.Allreduce, operation.Scan, operation.Exscan:
		c.in, c.out = n, n
	case operation.Gather:
		c.in, c.out = n, atRoot(size*n)
	case operation.Allgather:
		c.in, c.out = n, size*n
	case operation.Scatter:
		c.in, c.out = atRoot(size*n), n
	case operation.Alltoall:
		c.in, c.out = size*n, size*n
	case operation.ReduceScatterBlock:
		c.in, c.out = size*n, n
	case operation.ReduceScatter:
		c.recvCounts, _ = equalBlocks(n/s.Elem, size, s.Elem)
		c.in, c.out = n/s.Elem*s.Elem, c.recvCounts[r]
	case operation.Allgatherv:
		c.recvCounts, c.recvDispls = equalBlocks(n, size, 1)
		c.in, c.out = c.recvCounts[r], n
	default: // no length that all ranks know: empty blocks
		empty := make([]int, size)
		c.sendCounts, c.sendDispls, c.recvCounts, c.recvDispls = empty, empty, empty, empty
	}
	return c
}

// equalBlocks cuts n elements into blocks that differ by at most one.
func equalBlocks(n, size, elem int) (counts, displs []int) {
	for r := range size {
		begin := blockStart(n, size, r)
		counts = append(counts, (blockStart(n, size, r+1)-begin)*elem)
		displs = append(displs, begin*elem)
	}
	return counts, displs
}

// class rounds a length down to one of two values per power of two.
func class(n int) int {
	if n < 4 {
		return n
	}
	shift := bits.Len(uint(n)) - 2
	return n >> shift << shift
}

// byTable returns the algorithm for ranks that are together: the first line that fits. A test
// checks that each collective has a line without limits.
func byTable(collective operation.Operation, g group, s Shape) *Algorithm {
	for i := range lines[collective] {
		if a := &lines[collective][i]; a.fitsCall(g, s) {
			return a
		}
	}
	panic("collectives: the table has no line for " + collective.String())
}

func (a *Algorithm) fitsCall(g group, s Shape) bool {
	return !a.Places && a.unmetNeeds(g, s) == 0 && g.size >= a.MinRanks && s.Bytes >= a.MinBytes && (a.MaxBytes == 0 || s.Bytes <= a.MaxBytes)
}

// Choice is an algorithm and the predicted duration of a call with it.
type Choice struct {
	Algorithm Algorithm
	Predicted time.Duration // of the slowest rank; 0 if nothing was predicted
	far       int           // bytes between sites, if predicted
}

// minFlit is the minimum size of a flit in bytes: messages are not cut into smaller ones.
const minFlit = 4 << 10

// candidates returns the algorithms that may be chosen for a call.
func candidates(collective operation.Operation, g group, s Shape) (all []Algorithm) {
	for _, a := range lines[collective] {
		if a.unmetNeeds(g, s) != 0 || s.Bytes < a.MinBytes {
			continue
		}
		all = append(all, a)
		for flits := 2 * a.Flits; a.Flits > 0 && flits <= 32 && s.Bytes/flits >= minFlit; flits *= 2 {
			all = append(all, a.cut(flits))
		}
	}
	return all
}

// worthNaming bounds the choices that are reported: those predicted to take at most this many times
// as long as the best one.
const worthNaming = 4

// rank simulates a call of ranks that are at several places with every algorithm and returns them,
// the best one first.
func (m *Model) rank(collective operation.Operation, s Shape, l Layout) []Choice {
	g := group{size: len(l[0]), apart: true, ordered: l.Ordered()}
	sample, s := reduced(collective, l, s)
	grid := m.grid(sample)
	size := len(sample[0])
	var choices []Choice
	best := time.Duration(math.MaxInt64 / worthNaming)
	for _, a := range candidates(collective, g, s) {
		all := make([]*schedule.Schedule, size)
		for r := range all {
			all[r] = a.schedule(r, size, sample, typical(collective, s, r, size))
		}
		out, err := schedule.SimulateUntil(all, grid, worthNaming*best)
		if errors.Is(err, schedule.ErrLate) {
			continue
		}
		if err != nil {
			panic(err) // a test simulates every algorithm
		}
		t := m.corrected(a, s.Bytes, out.End())
		best = min(best, t)
		_, far := out.Far()
		choices = append(choices, Choice{a, t, far})
	}
	first := simplest(choices)
	slices.SortStableFunc(choices, func(a, b Choice) int { return int(a.Predicted - b.Predicted) })
	k := slices.IndexFunc(choices, func(c Choice) bool { return c.Algorithm.Name == first.Algorithm.Name })
	return slices.Insert(slices.Delete(choices, k, k+1), 0, first)
}

// negligibleBytes is the number of bytes between sites that is ignored in comparisons.
const negligibleBytes = 4 << 10

// simplest returns the first choice that is hardly worse than the best one and does not send much
// more between sites than another such choice: links may be slower than known, and others may use
// them. Candidates come in the table's order, and with few flits first.
func simplest(choices []Choice) Choice {
	best := slices.MinFunc(choices, func(a, b Choice) int { return int(a.Predicted - b.Predicted) })
	good := func(c Choice) bool { return c.Predicted <= best.Predicted+best.Predicted/32 }
	least := best.far
	for _, c := range choices {
		if good(c) {
			least = min(least, c.far)
		}
	}
	for _, c := range choices {
		if good(c) && c.far <= least+least/4+negligibleBytes {
			return c
		}
	}
	return best // not reached: the choice that sends least qualifies
}

// maxSimulated is the maximum number of ranks of a simulation.
const maxSimulated = 24

// reduced returns a layout with so few ranks that simulations are quick, the same number at every
// place that has them, and a shape with which as much crosses between places.
func reduced(collective operation.Operation, l Layout, s Shape) (Layout, Shape) {
	parts, _ := l.parts()
	each := max(2, maxSimulated/len(parts))
	var keep []int
	root, size := 0, len(l[0])
	for _, ranks := range parts {
		for i, r := range ranks[:min(each, len(ranks))] {
			if r == s.Root || i == 0 && slices.Contains(ranks, s.Root) {
				root = r
			}
			keep = append(keep, r)
		}
	}
	slices.Sort(keep)
	s.Root = slices.Index(keep, root)
	switch collective {
	case operation.Gather, operation.Allgather, operation.Scatter, operation.Alltoall, operation.ReduceScatterBlock:
		s.Bytes = s.Bytes * size / len(keep) / s.Elem * s.Elem
	}
	return l.subLayout(keep), s
}
