package core

import "github.com/isthmus-grid/isthmus/mpilib"

// The values of MPI_Topo_test.
const (
	topologyCart      = int32(211)
	topologyGraph     = int32(212)
	topologyDistGraph = int32(213)
)

// numbersOf reads n numbers of the program's, which what names.
func numbersOf(what string, address uintptr, n int) ([]int, error) {
	if n < 0 {
		return nil, failure(errArg, "%d %s", n, what)
	}
	if n > 0 && address == 0 {
		return nil, failure(errArg, "%d %s at address 0", n, what)
	}
	return integers(address, n, 0), nil
}

// storeNumbers writes numbers where the program has room for so many.
func storeNumbers(what string, address uintptr, room int32, values []int) error {
	if len(values) > int(room) {
		return failure(errArg, "%d %s, and room for %d", len(values), what, room)
	}
	if len(values) > 0 && address == 0 {
		return failure(errArg, "%d %s to address 0", len(values), what)
	}
	out := elements[int32](address, len(values))
	for i, v := range values {
		out[i] = int32(v)
	}
	return nil
}

// logicalsOf reads n logical values.
func logicalsOf(what string, address uintptr, n int) ([]bool, error) {
	numbers, err := numbersOf(what, address, n)
	logicals := make([]bool, len(numbers))
	for i, v := range numbers {
		logicals[i] = v != 0
	}
	return logicals, err
}

// DimsCreate sets the sizes of a grid that are 0 (MPI-5.0, section 8.5.2).
func DimsCreate(nnodes, ndims int32, dims uintptr) int32 {
	sizes, err := sizesOf(dims, ndims)
	if err == nil {
		err = mpilib.DimsCreate(int(nnodes), sizes)
	}
	if err == nil {
		err = storeNumbers("sizes", dims, ndims, sizes)
	}
	return onWorld("MPI_Dims_create", err)
}

// sizesOf reads the sizes of a grid.
func sizesOf(dims uintptr, ndims int32) ([]int, error) {
	if ndims < 0 {
		return nil, failure(errDims, "a grid of %d dimensions", ndims)
	}
	return numbersOf("sizes", dims, int(ndims))
}

// CartCreate makes a communicator whose processes form a grid; MPI_COMM_NULL for those left out
// (MPI-5.0, section 8.5.1).
func CartCreate(comm uintptr, ndims int32, dims, periods uintptr, reorder int32, newcomm uintptr) int32 {
	return onComm("MPI_Cart_create", comm, func(c *communicator) error {
		made, err := c.cart(ndims, dims, periods, reorder != 0)
		return c.create(made, err, newcomm)
	})
}

// cart makes a grid of what the program passed; nil for a process that is left out.
func (c *communicator) cart(ndims int32, dims, periods uintptr, reorder bool) (*mpilib.Comm, error) {
	sizes, err := sizesOf(dims, ndims)
	if err != nil {
		return nil, err
	}
	rings, err := logicalsOf("logical values", periods, int(ndims))
	if err != nil {
		return nil, err
	}
	return c.CartCreate(background, sizes, rings, reorder)
}

// CartMap returns which rank CartCreate with reordering gives the caller, MPI_UNDEFINED if it leaves
// it out. It is a collective call (MPI-5.0, section 8.5.8).
func CartMap(comm uintptr, ndims int32, dims, periods, newrank uintptr) int32 {
	return onComm("MPI_Cart_map", comm, func(c *communicator) error {
		made, err := c.cart(ndims, dims, periods, true)
		return mapped(made, err, newrank)
	})
}

// mapped stores the rank in a communicator that was made to learn it, and frees that.
func mapped(made *mpilib.Comm, err error, newrank uintptr) error {
	if err != nil {
		return err
	}
	if made == nil {
		store(newrank, undefined)
		return nil
	}
	store(newrank, int32(made.Rank()))
	return made.Free()
}

// TopoTest returns which topology a communicator has, MPI_UNDEFINED if none (MPI-5.0, section 8.5.5).
func TopoTest(comm, status uintptr) int32 {
	return onComm("MPI_Topo_test", comm, func(c *communicator) error {
		kind, ok := map[mpilib.TopologyKind]int32{
			mpilib.CartTopology: topologyCart, mpilib.GraphTopology: topologyGraph, mpilib.DistGraphTopology: topologyDistGraph,
		}[c.TopoTest()]
		if !ok {
			kind = undefined
		}
		store(status, kind)
		return nil
	})
}

// CartdimGet returns the number of dimensions.
func CartdimGet(comm, ndims uintptr) int32 {
	return onComm("MPI_Cartdim_get", comm, func(c *communicator) error {
		dims, _, _, err := c.CartGet()
		if err == nil {
			store(ndims, int32(len(dims)))
		}
		return err
	})
}

// CartGet returns the sizes of a grid, which of its dimensions are periodic, and the caller's
// coordinates.
func CartGet(comm uintptr, maxdims int32, dims, periods, coords uintptr) int32 {
	return onComm("MPI_Cart_get", comm, func(c *communicator) error {
		sizes, rings, own, err := c.CartGet()
		if err != nil {
			return err
		}
		logicals := make([]int, len(rings))
		for i, ring := range rings {
			logicals[i] = int(logicalOf(ring))
		}
		if err := storeNumbers("sizes", dims, maxdims, sizes); err != nil {
			return err
		}
		if err := storeNumbers("logical values", periods, maxdims, logicals); err != nil {
			return err
		}
		return storeNumbers("coordinates", coords, maxdims, own)
	})
}

// CartRank returns the rank at some coordinates.
func CartRank(comm, coords, rank uintptr) int32 {
	return onComm("MPI_Cart_rank", comm, func(c *communicator) error {
		dims, _, _, err := c.CartGet()
		if err != nil {
			return err
		}
		at, err := numbersOf("coordinates", coords, len(dims))
		if err != nil {
			return err
		}
		r, err := c.CartRank(at)
		if err == nil {
			store(rank, int32(r))
		}
		return err
	})
}

// CartCoords returns the coordinates of a rank.
func CartCoords(comm uintptr, rank, maxdims int32, coords uintptr) int32 {
	return onComm("MPI_Cart_coords", comm, func(c *communicator) error {
		at, err := c.CartCoords(int(rank))
		if err != nil {
			return err
		}
		return storeNumbers("coordinates", coords, maxdims, at)
	})
}

// CartShift returns the ranks from which and to which a shift along a dimension moves data; MPI_PROC_NULL
// beyond an edge (MPI-5.0, section 8.5.6).
func CartShift(comm uintptr, direction, disp int32, source, dest uintptr) int32 {
	return onComm("MPI_Cart_shift", comm, func(c *communicator) error {
		from, to, err := c.CartShift(int(direction), int(disp))
		if err == nil {
			store(source, sourceFrom(from))
			store(dest, sourceFrom(to))
		}
		return err
	})
}

// CartSub divides a grid into grids of the dimensions that remain (MPI-5.0, section 8.5.7).
func CartSub(comm, remain, newcomm uintptr) int32 {
	return onComm("MPI_Cart_sub", comm, func(c *communicator) error {
		dims, _, _, err := c.CartGet()
		if err != nil {
			return err
		}
		remaining, err := logicalsOf("logical values", remain, len(dims))
		if err != nil {
			return err
		}
		made, err := c.CartSub(background, remaining)
		return c.create(made, err, newcomm)
	})
}
