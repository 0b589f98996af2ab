package mpilib

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/datatype"
)

// newDatatype wraps the result of a constructor.
func newDatatype(call string, t *datatype.Type, err error) (*Datatype, error) {
	if err != nil {
		return nil, typeError(call, err)
	}
	return &Datatype{t: t}, nil
}

// derive builds a datatype from one other.
func derive(call string, old *Datatype, f func(old *datatype.Type) (*datatype.Type, error)) (*Datatype, error) {
	if err := old.usable(); err != nil {
		return nil, typeError(call, err)
	}
	t, err := f(old.t)
	return newDatatype(call, t, err)
}

// toInt64s and toInts convert lists; an int has 64 bits on every machine that this
// package runs on.
func toInt64s(list []int) []int64 {
	out := make([]int64, len(list))
	for i, v := range list {
		out[i] = int64(v)
	}
	return out
}

func toInts(list []int64) []int {
	out := make([]int, len(list))
	for i, v := range list {
		out[i] = int(v)
	}
	return out
}

// TypeContiguous returns count elements of old, one after the other
// (MPI_Type_contiguous; MPI-4.1, section 5.1.2).
func TypeContiguous(count int, old *Datatype) (*Datatype, error) {
	return derive("TypeContiguous", old, func(t *datatype.Type) (*datatype.Type, error) {
		return datatype.Contiguous(int64(count), t)
	})
}

// TypeVector returns count blocks of length elements, which start stride extents
// of old apart (MPI_Type_vector; MPI-4.1, section 5.1.2).
func TypeVector(count, length, stride int, old *Datatype) (*Datatype, error) {
	return derive("TypeVector", old, func(t *datatype.Type) (*datatype.Type, error) {
		return datatype.Vector(int64(count), int64(length), int64(stride), t)
	})
}

// TypeHvector is TypeVector with the stride in bytes (MPI_Type_create_hvector;
// MPI-4.1, section 5.1.2).
func TypeHvector(count, length, stride int, old *Datatype) (*Datatype, error) {
	return derive("TypeHvector", old, func(t *datatype.Type) (*datatype.Type, error) {
		return datatype.Hvector(int64(count), int64(length), int64(stride), t)
	})
}

// TypeIndexed returns blocks of which the i-th has lengths[i] elements and starts
// displacements[i] extents of old from the base (MPI_Type_indexed; MPI-4.1,
// section 5.1.2). The slices are copied, as in all constructors.
func TypeIndexed(lengths, displacements []int, old *Datatype) (*Datatype, error) {
	return derive("TypeIndexed", old, func(t *datatype.Type) (*datatype.Type, error) {
		return datatype.Indexed(toInt64s(lengths), toInt64s(displacements), t)
	})
}

// TypeHindexed is TypeIndexed with displacements in bytes
// (MPI_Type_create_hindexed; MPI-4.1, section 5.1.2).
func TypeHindexed(lengths, displacements []int, old *Datatype) (*Datatype, error) {
	return derive("TypeHindexed", old, func(t *datatype.Type) (*datatype.Type, error) {
		return datatype.Hindexed(toInt64s(lengths), toInt64s(displacements), t)
	})
}

// TypeIndexedBlock is TypeIndexed with blocks of one length
// (MPI_Type_create_indexed_block; MPI-4.1, section 5.1.2).
func TypeIndexedBlock(length int, displacements []int, old *Datatype) (*Datatype, error) {
	return derive("TypeIndexedBlock", old, func(t *datatype.Type) (*datatype.Type, error) {
		return datatype.IndexedBlock(int64(length), toInt64s(displacements), t)
	})
}

// TypeHindexedBlock is TypeIndexedBlock with displacements in bytes
// (MPI_Type_create_hindexed_block; MPI-4.1, section 5.1.2).
func TypeHindexedBlock(length int, displacements []int, old *Datatype) (*Datatype, error) {
	return derive("TypeHindexedBlock", old, func(t *datatype.Type) (*datatype.Type, error) {
		return datatype.HindexedBlock(int64(length), toInt64s(displacements), t)
	})
}

// TypeStruct returns blocks of different types: the i-th has lengths[i] elements of types[i] and
// starts displacements[i] bytes from the base (MPI_Type_create_struct; MPI-4.1, section 5.1.2).
// TypeOf returns the type of a whole Go struct; for a type of some of its fields, unsafe.Offsetof
// gives the displacements.
func TypeStruct(lengths, displacements []int, types []*Datatype) (*Datatype, error) {
	const call = "TypeStruct"
	inner := make([]*datatype.Type, len(types))
	for i, d := range types {
		if err := d.usable(); err != nil {
			return nil, typeError(call, fmt.Errorf("types[%d]: %w", i, err))
		}
		inner[i] = d.t
	}
	t, err := datatype.Struct(toInt64s(lengths), toInt64s(displacements), inner)
	return newDatatype(call, t, err)
}

// TypeResized returns old with another lower bound and extent
// (MPI_Type_create_resized; MPI-4.1, section 5.1.7).
func TypeResized(old *Datatype, lb, extent int) (*Datatype, error) {
	return derive("TypeResized", old, func(t *datatype.Type) (*datatype.Type, error) {
		return datatype.Resized(t, int64(lb), int64(extent))
	})
}

// Order is the memory layout of an array of several dimensions.
type Order int

// The orders: in C's the last dimension is contiguous, in Fortran's the first.
const (
	OrderC       = Order(datatype.OrderC)
	OrderFortran = Order(datatype.OrderFortran)
)

// TypeSubarray returns the part of an array of old with the given sizes that has
// subsizes elements from starts on in each dimension; its bounds are those of
// the whole array (MPI_Type_create_subarray; MPI-4.1, section 5.1.3).
func TypeSubarray(sizes, subsizes, starts []int, order Order, old *Datatype) (*Datatype, error) {
	return derive("TypeSubarray", old, func(t *datatype.Type) (*datatype.Type, error) {
		return datatype.Subarray(toInt64s(sizes), toInt64s(subsizes), toInt64s(starts), datatype.Order(order), t)
	})
}

// Distribution says how a dimension of an array is distributed over processes.
type Distribution int

// The distributions.
const (
	DistributeBlock  = Distribution(datatype.DistributeBlock)  // one block for each process
	DistributeCyclic = Distribution(datatype.DistributeCyclic) // blocks round-robin
	DistributeNone   = Distribution(datatype.DistributeNone)   // not distributed: one process in this dimension
)

// DistributeDefault lets the library choose the block length: as even as possible for blocks, 1 for
// cyclic.
const DistributeDefault = int(datatype.DistributeDefault)

// Darray is an array distributed over a grid of processes. Every slice has an entry for each
// dimension; processes are numbered in row-major order.
type Darray struct {
	Sizes         []int          // of the whole array, in elements
	Distributions []Distribution // how each dimension is distributed
	Arguments     []int          // block lengths, or DistributeDefault
	Processes     []int          // the grid of processes
}

// TypeDarray returns the elements that process rank of size has of an array of
// old; its bounds are those of the whole array (MPI_Type_create_darray; MPI-4.1,
// section 5.1.4).
func TypeDarray(size, rank int, a Darray, order Order, old *Datatype) (*Datatype, error) {
	g := datatype.Grid{Sizes: toInt64s(a.Sizes), Arguments: toInt64s(a.Arguments), Processes: toInt64s(a.Processes)}
	for _, d := range a.Distributions {
		g.Distributions = append(g.Distributions, datatype.Distribution(d))
	}
	return derive("TypeDarray", old, func(t *datatype.Type) (*datatype.Type, error) {
		return datatype.Darray(int64(size), int64(rank), g, datatype.Order(order), t)
	})
}

// Combiner is the constructor that built a type (MPI-4.1, section 5.1.13).
type Combiner uint8

// The combiners.
const (
	CombinerNamed         = Combiner(datatype.CombinerNamed)
	CombinerDup           = Combiner(datatype.CombinerDup)
	CombinerContiguous    = Combiner(datatype.CombinerContiguous)
	CombinerVector        = Combiner(datatype.CombinerVector)
	CombinerHvector       = Combiner(datatype.CombinerHvector)
	CombinerIndexed       = Combiner(datatype.CombinerIndexed)
	CombinerHindexed      = Combiner(datatype.CombinerHindexed)
	CombinerIndexedBlock  = Combiner(datatype.CombinerIndexedBlock)
	CombinerHindexedBlock = Combiner(datatype.CombinerHindexedBlock)
	CombinerStruct        = Combiner(datatype.CombinerStruct)
	CombinerSubarray      = Combiner(datatype.CombinerSubarray)
	CombinerDarray        = Combiner(datatype.CombinerDarray)
	CombinerResized       = Combiner(datatype.CombinerResized)
)

// String returns the standard's name, "MPI_COMBINER_VECTOR".
func (c Combiner) String() string { return datatype.Combiner(c).String() }

// Contents are the arguments of the constructor that made a type, in the order
// of the standard's tables for MPI_Type_get_contents: integers, where the
// lengths of lists come first, then those that are addresses there, then types.
type Contents struct {
	Combiner  Combiner
	Integers  []int
	Addresses []int
	Types     []*Datatype // the caller's, to be freed; named ones are those that TypeNamed returns
}

// Envelope returns which constructor made d and how many arguments of each sort
// it had (MPI_Type_get_envelope; MPI-4.1, section 5.1.13).
func (d *Datatype) Envelope() (combiner Combiner, integers, addresses, types int) {
	c, integers, addresses, types := d.t.Envelope()
	return Combiner(c), integers, addresses, types
}

// Contents returns the arguments of the constructor that made d
// (MPI_Type_get_contents; MPI-4.1, section 5.1.13); for a named type, which none
// made, it is ErrType.
func (d *Datatype) Contents() (Contents, error) {
	if err := d.usable(); err != nil {
		return Contents{}, typeError("Contents", err)
	}
	if c, _, _, _ := d.Envelope(); c == CombinerNamed {
		return Contents{}, typeError("Contents", fmt.Errorf("%w: %v is a named type, which no constructor made", ErrType, d))
	}
	in, err := d.t.Contents()
	if err != nil {
		return Contents{}, typeError("Contents", err)
	}
	out := Contents{Combiner: Combiner(in.Combiner), Integers: toInts(in.Integers), Addresses: toInts(in.Addresses)}
	for _, t := range in.Types {
		old := &Datatype{t: t}
		if c, _, _, _ := t.Envelope(); c == datatype.CombinerNamed {
			old = permanent(t)
		}
		out.Types = append(out.Types, old)
	}
	return out, nil
}
