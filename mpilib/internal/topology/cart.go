package topology

import (
	"fmt"
	"slices"
)

// A Cart is a Cartesian grid of processes (8.5.1). Its places are ranked in row-major order: the
// last coordinate varies fastest (8.2).
type Cart struct {
	dims    []int
	periods []bool
	size    int // the product of dims
}

// NewCart returns the grid of the given sizes, in which the dimensions that periods selects are
// rings (MPI_Cart_create, 8.5.1). procs is the number of processes; those of rank Size and above
// have no place. No dimensions make a grid of one process. NewCart does not keep the slices.
func NewCart(procs int, dims []int, periods []bool) (*Cart, error) {
	if len(periods) != len(dims) {
		return nil, fmt.Errorf("topology: NewCart: %w: %d periods for %d dimensions", ErrArg, len(periods), len(dims))
	}
	if procs < 1 || procs > maxProcesses {
		return nil, fmt.Errorf("topology: NewCart: %w: %d processes, must be 1 to %d", ErrArg, procs, maxProcesses)
	}
	size := 1
	for i, d := range dims {
		if d <= 0 {
			return nil, fmt.Errorf("topology: NewCart: dims[%d] = %d: %w: a size is at least 1", i, d, ErrDims)
		}
		if d > procs/size { // size*d > procs, without overflow
			return nil, fmt.Errorf("topology: NewCart: %w: a grid of %v needs more than the %d processes there are", ErrDims, dims, procs)
		}
		size *= d
	}
	return &Cart{slices.Clone(dims), slices.Clone(periods), size}, nil
}

// Size returns the number of places.
func (c *Cart) Size() int { return c.size }

// Dims returns a copy of the sizes (MPI_Cart_get, 8.5.5).
func (c *Cart) Dims() []int { return slices.Clone(c.dims) }

// Periods returns a copy of which dimensions are rings (MPI_Cart_get, 8.5.5).
func (c *Cart) Periods() []bool { return slices.Clone(c.periods) }

// Rank returns the rank at some coordinates (MPI_Cart_rank, 8.5.5). Coordinates of a periodic
// dimension may lie outside and wrap; others may not.
func (c *Cart) Rank(coords []int) (int, error) {
	if len(coords) != len(c.dims) {
		return 0, fmt.Errorf("topology: Rank: %w: %d coordinates in a grid of %d dimensions", ErrDims, len(coords), len(c.dims))
	}
	rank := 0
	for i, x := range coords {
		d := c.dims[i]
		if x < 0 || x >= d {
			if !c.periods[i] {
				return 0, fmt.Errorf("topology: Rank: coords[%d] = %d: %w: must be 0 to %d in a dimension that is not periodic", i, x, ErrArg, d-1)
			}
			x = wrap(x, d)
		}
		rank = rank*d + x
	}
	return rank, nil
}

// Coords returns the coordinates of a rank (MPI_Cart_coords, 8.5.5). The caller owns the slice.
func (c *Cart) Coords(rank int) ([]int, error) {
	if err := c.check(rank); err != nil {
		return nil, fmt.Errorf("topology: Coords: %w", err)
	}
	return c.coords(rank), nil
}

func (c *Cart) coords(rank int) []int {
	coords := make([]int, len(c.dims))
	for i := len(c.dims) - 1; i >= 0; i-- {
		coords[i] = rank % c.dims[i]
		rank /= c.dims[i]
	}
	return coords
}

// Shift returns the rank that rank receives from and the rank it sends to when every process sends
// disp places up a dimension (MPI_Cart_shift, 8.5.6): ProcNull where that leads off a dimension
// that is not periodic.
func (c *Cart) Shift(rank, dim, disp int) (source, dest int, err error) {
	if err := c.check(rank); err != nil {
		return 0, 0, fmt.Errorf("topology: Shift: %w", err)
	}
	if dim < 0 || dim >= len(c.dims) {
		return 0, 0, fmt.Errorf("topology: Shift: dimension %d: %w: the grid has %d", dim, ErrDims, len(c.dims))
	}
	if c.periods[dim] {
		disp %= c.dims[dim] // so that neither the sums below nor the negation overflows
		return c.neighbourAlong(rank, dim, -disp), c.neighbourAlong(rank, dim, disp), nil
	}
	// A step of at least the whole size leads off the grid, in both directions.
	disp = max(-c.dims[dim], min(disp, c.dims[dim]))
	return c.neighbourAlong(rank, dim, -disp), c.neighbourAlong(rank, dim, disp), nil
}

// neighbourAlong returns the rank disp places from rank; disp is at most the size.
func (c *Cart) neighbourAlong(rank, dim, disp int) int {
	stride := 1
	for _, d := range c.dims[dim+1:] {
		stride *= d
	}
	d := c.dims[dim]
	x := rank / stride % d
	y := x + disp
	if y < 0 || y >= d {
		if !c.periods[dim] {
			return ProcNull
		}
		y = wrap(y, d)
	}
	return rank + (y-x)*stride
}

// Neighbourhood returns the neighbours of rank in neighbourhood collectives: for each dimension in
// turn the one below and the one above, ProcNull where there is none (8.6). A message sent down
// arrives from above, also on a ring of one or two, where both neighbours are the same process.
func (c *Cart) Neighbourhood(rank int) (Neighbourhood, error) {
	if err := c.check(rank); err != nil {
		return Neighbourhood{}, fmt.Errorf("topology: Neighbourhood: %w", err)
	}
	n := Neighbourhood{make([]Neighbour, 2*len(c.dims)), make([]Neighbour, 2*len(c.dims))}
	for i := range n.Out {
		other := c.neighbourAlong(rank, i/2, i%2*2-1)
		n.Out[i] = Neighbour{other, i}
		n.In[i] = Neighbour{other, i ^ 1}
	}
	return n, nil
}

// Sub cuts the grid into grids of lower dimension, which keep the dimensions that remain selects
// (MPI_Cart_sub, 8.5.7). It returns the grid that rank is in and its rank there; those with equal
// slice numbers are in one grid, so that a split by slice and place makes the communicators. Sub
// does not keep remain.
func (c *Cart) Sub(rank int, remain []bool) (sub *Cart, slice, place int, err error) {
	if err := c.check(rank); err != nil {
		return nil, 0, 0, fmt.Errorf("topology: Sub: %w", err)
	}
	if len(remain) != len(c.dims) {
		return nil, 0, 0, fmt.Errorf("topology: Sub: %w: %d entries for %d dimensions", ErrDims, len(remain), len(c.dims))
	}
	sub = &Cart{size: 1}
	for i, x := range c.coords(rank) {
		d := c.dims[i]
		if !remain[i] {
			slice = slice*d + x
			continue
		}
		place = place*d + x
		sub.dims, sub.periods, sub.size = append(sub.dims, d), append(sub.periods, c.periods[i]), sub.size*d
	}
	return sub, slice, place, nil
}

func (c *Cart) check(rank int) error {
	if rank < 0 || rank >= c.size {
		return fmt.Errorf("rank %d: %w: the grid has 0 to %d", rank, ErrRank, c.size-1)
	}
	return nil
}

// wrap returns x modulo d, 0 to d-1.
func wrap(x, d int) int {
	if x %= d; x < 0 {
		x += d
	}
	return x
}
