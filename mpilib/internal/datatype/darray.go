package datatype

import (
	"fmt"
	"slices"
)

// A Distribution says how a dimension of an array is distributed over processes.
type Distribution int64

// The distributions.
const (
	DistributeBlock  Distribution = iota // one block for each process
	DistributeCyclic                     // blocks round robin
	DistributeNone                       // not at all: one process in this dimension
)

// DistributeDefault is the distribution argument that leaves the block length
// to MPI: as even as possible for blocks, 1 for cyclic.
const DistributeDefault int64 = -1

// A Grid is an array that is distributed over a grid of processes; each slice has an entry for each
// dimension. Processes are numbered in row-major order.
type Grid struct {
	Sizes         []int64        // of the whole array, in elements
	Distributions []Distribution // how each dimension is distributed
	Arguments     []int64        // block lengths, or DistributeDefault
	Processes     []int64        // the grid of processes
}

// Darray returns the elements that process rank of size has of the array g of
// old. Its bounds are those of the whole array (MPI_Type_create_darray;
// MPI-4.1, 5.1.4). The slices are copied.
func Darray(size, rank int64, g Grid, order Order, old *Type) (*Type, error) {
	const fn = "Darray"
	if err := arrayArgs(fn, "Sizes", g.Sizes, order, old); err != nil {
		return nil, err
	}
	if err := g.check(fn, size, rank); err != nil {
		return nil, err
	}
	t, place := old, g.place(rank)
	for _, d := range order.fromContiguous(len(g.Sizes)) {
		var err error
		if t, err = dealt(g.Sizes[d], g.block(d), g.Processes[d], place[d], t); err != nil {
			return nil, fmt.Errorf("datatype: %s: Sizes: dimension %d: %w", fn, d, err)
		}
	}
	ints := slices.Concat([]int64{size, rank, int64(len(g.Sizes))}, g.Sizes)
	for _, how := range g.Distributions {
		ints = append(ints, int64(how))
	}
	ints = slices.Concat(ints, g.Arguments, g.Processes, []int64{int64(order)})
	t.contents = Contents{CombinerDarray, ints, nil, []*Type{old}}
	return t, nil
}

func (g *Grid) check(fn string, size, rank int64) error {
	dims := len(g.Sizes)
	if len(g.Distributions) != dims || len(g.Arguments) != dims || len(g.Processes) != dims {
		return badArg(fn, "Distributions, Arguments and Processes", "have %d, %d and %d dimensions where Sizes has %d",
			len(g.Distributions), len(g.Arguments), len(g.Processes), dims)
	}
	total := int64(1)
	for d, p := range g.Processes {
		if p < 1 {
			return badArg(fn, "Processes", "has %d in dimension %d", p, d)
		}
		var ok bool
		if total, ok = mulOK(total, p); !ok {
			return badArg(fn, "Processes", "are beyond 64 bits in dimension %d", d)
		}
		if err := g.checkArgument(fn, d); err != nil {
			return err
		}
	}
	if total != size {
		return badArg(fn, "Processes", "make a grid of %d where size is %d", total, size)
	}
	if rank < 0 || rank >= size {
		return badArg(fn, "rank", "is %d of %d", rank, size)
	}
	return nil
}

// checkArgument checks the distribution of dimension d.
func (g *Grid) checkArgument(fn string, d int) error {
	arg, p := g.Arguments[d], g.Processes[d]
	if arg != DistributeDefault && arg < 1 {
		return badArg(fn, "Arguments", "has %d in dimension %d", arg, d)
	}
	switch g.Distributions[d] {
	case DistributeCyclic:
		return nil
	case DistributeBlock:
		// Blocks with p*arg below the size would leave elements without a process.
		if arg != DistributeDefault && arg < (g.Sizes[d]-1)/p+1 {
			return badArg(fn, "Arguments", "has blocks of %d in dimension %d: %d processes have no place for %d", arg, d, p, g.Sizes[d])
		}
		return nil
	case DistributeNone:
		if p != 1 {
			return badArg(fn, "Processes", "has %d in dimension %d, which is not distributed", p, d)
		}
		return nil
	}
	return badArg(fn, "Distributions", "has %d in dimension %d", g.Distributions[d], d)
}

// block returns how many consecutive elements of dimension d a process has.
func (g *Grid) block(d int) int64 {
	size, p, arg := g.Sizes[d], g.Processes[d], g.Arguments[d]
	switch {
	case g.Distributions[d] == DistributeNone:
		return size
	case arg != DistributeDefault:
		return min(arg, size) // a longer block has no more elements
	case g.Distributions[d] == DistributeBlock:
		return (size-1)/p + 1
	}
	return 1
}

// place returns rank's coordinates in the grid of processes.
func (g *Grid) place(rank int64) []int64 {
	at := make([]int64, len(g.Processes))
	for d, p := range slices.Backward(g.Processes) {
		at[d] = rank % p
		rank /= p
	}
	return at
}

// dealt returns the share of process at, of p, in size elements of old that are distributed in
// blocks: full blocks, one round apart, and possibly a shorter one after them (the standard's
// cyclic function).
func dealt(size, block, p, at int64, old *Type) (*Type, error) {
	var s sum
	bytes := s.mul(size, old.extent)
	blocks := size / block // number of full blocks in total
	full := blocks / p
	if at < blocks%p {
		full++
	}
	short := int64(0)
	if blocks%p == at {
		short = size % block
	}
	// If no block starts, nothing is displaced: p*block may exceed size.
	var round, first, rest int64
	if full > 1 {
		round = s.mul(s.mul(p, block), old.extent)
	}
	if full > 0 {
		first = s.mul(s.mul(at, block), old.extent)
	}
	if short > 0 {
		rest = s.mul(size-short, old.extent)
	}
	if s.overflow {
		return nil, badArg("Darray", "Sizes", "make an array beyond 64 bits")
	}
	v, err := Hvector(full, block, round, old)
	if err != nil {
		return nil, err
	}
	t, err := Struct([]int64{1, short}, []int64{first, rest}, []*Type{v, old})
	if err != nil {
		return nil, err
	}
	return Resized(t, 0, bytes)
}
