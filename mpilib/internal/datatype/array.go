package datatype

import (
	"fmt"
	"slices"
)

// An Order is the memory layout of an array of several dimensions.
type Order int64

// The orders: in C's the last dimension is contiguous, in Fortran's the first.
const (
	OrderC Order = iota
	OrderFortran
)

// fromContiguous returns the dimensions from the contiguous one outwards.
func (o Order) fromContiguous(dims int) []int {
	all := make([]int, dims)
	for i := range all {
		all[i] = i
		if o == OrderC {
			all[i] = dims - 1 - i
		}
	}
	return all
}

// Subarray returns the part of an array of old with the given sizes that has
// subsizes elements from starts on in each dimension. Its bounds are those of
// the whole array (MPI_Type_create_subarray; MPI-4.1, 5.1.3). The slices are
// copied.
func Subarray(sizes, subsizes, starts []int64, order Order, old *Type) (*Type, error) {
	const fn = "Subarray"
	if err := subarrayArgs(fn, sizes, subsizes, starts, order, old); err != nil {
		return nil, err
	}
	t, step, first := old, old.extent, int64(0)
	for _, d := range order.fromContiguous(len(sizes)) {
		var err error
		if t, err = Hvector(subsizes[d], 1, step, t); err != nil {
			return nil, fmt.Errorf("datatype: %s: dimension %d: %w", fn, d, err)
		}
		var s sum
		first = s.add(first, s.mul(starts[d], step))
		if step = s.mul(step, sizes[d]); s.overflow {
			return nil, badArg(fn, "sizes", "make an array beyond 64 bits in dimension %d", d)
		}
	}
	t, err := withArrayBounds(t, first, step)
	if err != nil {
		return nil, fmt.Errorf("datatype: %s: %w", fn, err)
	}
	t.contents = Contents{CombinerSubarray,
		slices.Concat([]int64{int64(len(sizes))}, sizes, subsizes, starts, []int64{int64(order)}), nil, []*Type{old}}
	return t, nil
}

// withArrayBounds returns part displaced by first, with the bounds of an array of size
// bytes.
func withArrayBounds(part *Type, first, size int64) (*Type, error) {
	t, err := HindexedBlock(1, []int64{first}, part)
	if err != nil {
		return nil, err
	}
	return Resized(t, 0, size)
}

func subarrayArgs(fn string, sizes, subsizes, starts []int64, order Order, old *Type) error {
	if err := arrayArgs(fn, "sizes", sizes, order, old); err != nil {
		return err
	}
	if len(subsizes) != len(sizes) {
		return badArg(fn, "subsizes", "has %d dimensions where sizes has %d", len(subsizes), len(sizes))
	}
	if len(starts) != len(sizes) {
		return badArg(fn, "starts", "has %d dimensions where sizes has %d", len(starts), len(sizes))
	}
	for d, size := range sizes {
		if subsizes[d] < 1 || subsizes[d] > size {
			return badArg(fn, "subsizes", "has %d in dimension %d, which has %d", subsizes[d], d, size)
		}
		if starts[d] < 0 || starts[d] > size-subsizes[d] {
			return badArg(fn, "starts", "has %d in dimension %d, where %d of %d elements leave 0 to %d",
				starts[d], d, subsizes[d], size, size-subsizes[d])
		}
	}
	return nil
}

// arrayArgs checks the arguments that subarrays and distributed arrays share.
func arrayArgs(fn, arg string, sizes []int64, order Order, old *Type) error {
	if old == nil {
		return badArg(fn, "old", "is nil")
	}
	if order != OrderC && order != OrderFortran {
		return badArg(fn, "order", "is %d, neither OrderC nor OrderFortran", order)
	}
	if len(sizes) == 0 {
		return badArg(fn, arg, "has no dimension")
	}
	for d, size := range sizes {
		if size < 1 {
			return badArg(fn, arg, "has %d in dimension %d", size, d)
		}
	}
	return nil
}
