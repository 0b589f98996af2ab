package core

import (
	"strconv"
	"sync"

	"github.com/isthmus-grid/isthmus/cabi/api"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// TypeSizeX is TypeSize with a size of 64 bits.
func TypeSizeX(datatype, size uintptr) int32 { return TypeSize(datatype, size) }

// TypeGetExtentX is TypeGetExtent with numbers of 64 bits.
func TypeGetExtentX(datatype, lb, extent uintptr) int32 { return TypeGetExtent(datatype, lb, extent) }

// TypeGetTrueExtent returns where the data of an element lies (MPI-5.0, section 5.1.8).
func TypeGetTrueExtent(datatype, lb, extent uintptr) int32 {
	d, err := typeOf(datatype)
	if err != nil {
		return onWorld("MPI_Type_get_true_extent", err)
	}
	store(lb, int64(d.begin))
	store(extent, int64(d.end-d.begin))
	return success
}

// TypeGetTrueExtentX is TypeGetTrueExtent with numbers of 64 bits.
func TypeGetTrueExtentX(datatype, lb, extent uintptr) int32 {
	return TypeGetTrueExtent(datatype, lb, extent)
}

// constantValues has the values of the standard's constants, handles included, by name.
var constantValues = sync.OnceValue(func() map[string]int32 {
	all := map[string]int32{}
	for _, c := range api.Constants() {
		if v, err := strconv.ParseInt(c.Value, 0, 32); err == nil {
			all[c.Name] = int32(v)
		}
	}
	return all
})

// TypeGetEnvelope returns how a type was made, and from how many arguments (MPI-5.0, section 5.1.13).
func TypeGetEnvelope(datatype, numIntegers, numAddresses, numTypes, combiner uintptr) int32 {
	d, err := smallTypeOf(datatype)
	if err != nil {
		return onWorld("MPI_Type_get_envelope", err)
	}
	c, integers, addresses, _, types := d.envelope()
	store(numIntegers, int32(integers))
	store(numAddresses, int32(addresses))
	store(numTypes, int32(types))
	store(combiner, c)
	return success
}

// TypeGetContents returns the arguments that a type was made of (MPI-5.0, section 5.1.13).
func TypeGetContents(datatype uintptr, maxIntegers, maxAddresses, maxTypes int32, integers, addresses, handles uintptr) int32 {
	d, err := smallTypeOf(datatype)
	if err == nil {
		err = d.storeContents(room{int64(maxIntegers), int64(maxAddresses), 0, int64(maxTypes)}, integers, addresses, 0, handles)
	}
	return onWorld("MPI_Type_get_contents", err)
}

// room is how many arguments of each sort a program has room for.
type room struct{ integers, addresses, counts, types int64 }

// storeContents writes the arguments that d was made of.
func (d *datatype) storeContents(r room, integers, addresses, counts, handles uintptr) error {
	c, err := d.contents()
	if err != nil {
		return err
	}
	standardValues(c)
	ints, places, large := d.sorts(c)
	needs := room{int64(len(ints)), int64(len(places)), int64(len(large)), int64(len(c.Types))}
	if needs.integers > r.integers || needs.addresses > r.addresses || needs.counts > r.counts || needs.types > r.types {
		return failure(errArg, "%d integers, %d addresses, %d large counts and %d types, and room for %d, %d, %d and %d",
			needs.integers, needs.addresses, needs.counts, needs.types, r.integers, r.addresses, r.counts, r.types)
	}
	for i, v := range ints {
		store(integers+uintptr(4*i), int32(v))
	}
	for i, v := range places {
		store(addresses+uintptr(8*i), int64(v))
	}
	for i, v := range large {
		store(counts+uintptr(8*i), int64(v))
	}
	for i, t := range c.Types {
		store(handles+uintptr(8*i), again(d.from[i], t))
	}
	return nil
}

// contents returns the arguments that d was made of.
func (d *datatype) contents() (mpilib.Contents, error) {
	if d.asked == nil {
		return d.t.Contents()
	}
	var c mpilib.Contents
	for _, v := range d.asked.integers() {
		c.Integers = append(c.Integers, int(v))
	}
	return c, nil
}

// isPredefined reports whether d is the standard's, which programs do not free.
func (d *datatype) isPredefined() bool { return d.handle < firstDynamic || d.asked != nil }

// again returns the handle of a predefined type, and a new one of t, which is old, of another.
func again(old *datatype, t *mpilib.Datatype) uintptr {
	if old.isPredefined() {
		return old.handle
	}
	handle := addType(t, old.from...)
	if made, ok := types.get(handle); ok {
		made.large = old.large
	}
	return handle
}

// standardValues gives orders and distributions the standard's values.
func standardValues(c mpilib.Contents) {
	if c.Combiner != mpilib.CombinerSubarray && c.Combiner != mpilib.CombinerDarray {
		return
	}
	last := &c.Integers[len(c.Integers)-1]
	for ours, theirs := range orders {
		if mpilib.Order(*last) == theirs {
			*last = int(ours)
			break
		}
	}
	if c.Combiner != mpilib.CombinerDarray {
		return
	}
	n := c.Integers[2] // dimensions, after the numbers of processes and of this one; sizes follow
	for i := 3 + n; i < 3+2*n; i++ {
		c.Integers[i] = distributionFrom(mpilib.Distribution(c.Integers[i]))
		if c.Integers[i+n] == mpilib.DistributeDefault {
			c.Integers[i+n] = int(distributeDefault)
		}
	}
}

// distributionFrom returns the standard's value of a distribution.
func distributionFrom(d mpilib.Distribution) int {
	for ours, theirs := range distributions {
		if d == theirs {
			return ours
		}
	}
	return int(undefined)
}

// TypeExtent returns the distance between elements, as TypeGetExtent does; it, TypeLb and TypeUb are MPI-1's.
func TypeExtent(datatype, extent uintptr) int32 {
	return onBounds("MPI_Type_extent", datatype, extent, func(_, length int) int { return length })
}

// TypeLb returns the lower bound.
func TypeLb(datatype, displacement uintptr) int32 {
	return onBounds("MPI_Type_lb", datatype, displacement, func(low, _ int) int { return low })
}

// TypeUb returns the upper bound.
func TypeUb(datatype, displacement uintptr) int32 {
	return onBounds("MPI_Type_ub", datatype, displacement, func(low, length int) int { return low + length })
}

func onBounds(call string, datatype, result uintptr, f func(low, length int) int) int32 {
	d, err := typeOf(datatype)
	if err == nil {
		store(result, int64(f(d.t.Extent())))
	}
	return onWorld(call, err)
}
