package core

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/isthmus-grid/isthmus/cabi/api"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// datatype is what a handle of a datatype names.
type datatype struct {
	handle     uintptr
	t          *mpilib.Datatype
	extent     int     // from an element to the next
	begin, end int     // where the bytes of one element lie
	reduce     reducer // of predefined operations; nil if there is none

	name atomic.Pointer[string] // nil: none

	attributes attributes

	from  []*datatype // what a constructor made it of, in the order of its arguments
	asked *precise    // of a predefined type without a name: the arguments; otherwise nil
	large bool        // whether that was one with counts of 64 bits
}

// firstPage is the size of the page at address 0, which no program has.
const firstPage = 4096

var types objects[*datatype]

// standardTypes makes the predefined types, at first use.
var standardTypes = sync.OnceValue(func() error {
	for _, c := range api.Constants() {
		if c.Type != "MPI_Datatype" {
			continue
		}
		handle, err := strconv.ParseUint(c.Value, 0, 64)
		if err != nil {
			return fmt.Errorf("cabi/core: %s: %w", c.Name, err)
		}
		if t := named(c.Name); t != nil {
			types.put(uintptr(handle), describe(uintptr(handle), c.Name, t))
		}
	}
	return nil
})

// sized are Fortran's types with a size in their names, by the types that have the same form.
var sized = map[string]string{
	"MPI_INTEGER1": "MPI_INT8_T", "MPI_INTEGER2": "MPI_INT16_T", "MPI_INTEGER4": "MPI_INT32_T", "MPI_INTEGER8": "MPI_INT64_T",
	"MPI_LOGICAL1": "MPI_INT8_T", "MPI_LOGICAL2": "MPI_INT16_T", "MPI_LOGICAL4": "MPI_INT32_T", "MPI_LOGICAL8": "MPI_INT64_T",
	"MPI_REAL4": "MPI_FLOAT", "MPI_REAL8": "MPI_DOUBLE", "MPI_COMPLEX8": "MPI_C_FLOAT_COMPLEX", "MPI_COMPLEX16": "MPI_C_DOUBLE_COMPLEX",
}

// named returns a predefined type, nil if mpilib does not have it.
func named(name string) *mpilib.Datatype {
	if name == "MPI_PACKED" {
		return mpilib.Packed
	}
	if same, ok := sized[name]; ok {
		name = same
	}
	t, err := mpilib.TypeNamed(name)
	if err != nil {
		return nil
	}
	return t
}

// describe returns what calls need to know of a type; name is empty for the program's.
func describe(handle uintptr, name string, t *mpilib.Datatype) *datatype {
	_, extent := t.Extent()
	begin, length := t.TrueExtent()
	d := &datatype{handle: handle, t: t, extent: extent, begin: begin, end: begin + length}
	if name != "" {
		d.name.Store(&name)
	}
	if d.reduce = reducers[name]; d.reduce == nil {
		d.reduce = reducers[sized[name]]
	}
	return d
}

// typeOf returns the datatype of a handle.
func typeOf(handle uintptr) (*datatype, error) {
	if err := standardTypes(); err != nil {
		return nil, err
	}
	d, ok := types.get(handle)
	if !ok {
		return nil, failure(errType, "%#x is no datatype, or one that this library does not have", handle)
	}
	return d, nil
}

// part is count elements of d in the program's memory.
func (d *datatype) part(address uintptr, count int64) (mpilib.Part, error) {
	if count < 0 {
		return mpilib.Part{}, failure(errCount, "%d elements", count)
	}
	if count == 0 || d.begin == d.end {
		return mpilib.PartAs[byte](nil, 0, d.t), nil
	}
	rest := int(count-1) * d.extent // where the last element begins
	low := min(d.begin, rest+d.begin)
	high := max(d.end, rest+d.end)
	first := address + uintptr(low) // address is 0 where displacements are addresses (MPI_BOTTOM)
	if first < firstPage {
		return mpilib.Part{}, failure(errBuffer, "%d elements at address %#x", count, first)
	}
	return mpilib.PartAt(elements[byte](first, high-low), -low, int(count), d.t), nil
}

// TypeSize returns the bytes of data in an element.
func TypeSize(datatype, size uintptr) int32 {
	d, err := typeOf(datatype)
	if err != nil {
		return onWorld("MPI_Type_size", err)
	}
	store(size, int64(d.t.Size()))
	return success
}

// TypeGetExtent returns the lower bound and the distance between elements.
func TypeGetExtent(datatype, lb, extent uintptr) int32 {
	d, err := typeOf(datatype)
	if err != nil {
		return onWorld("MPI_Type_get_extent", err)
	}
	low, length := d.t.Extent()
	store(lb, int64(low))
	store(extent, int64(length))
	return success
}

// A builder makes the parts of one call, and keeps the first error.
type builder struct {
	err  error
	user bool // the call calls a function of the program's
}

// failed keeps an error, if it is the first.
func (b *builder) failed(err error) {
	if b.err == nil {
		b.err = err
	}
}

// part is count elements of a datatype at an address.
func (b *builder) part(address uintptr, count int64, datatype uintptr) mpilib.Part {
	return b.block(address, 0, count, datatype)
}

// block is count elements of a datatype, from the first-th on.
func (b *builder) block(address uintptr, first, count int64, datatype uintptr) mpilib.Part {
	d, err := typeOf(datatype)
	if err == nil && address != 0 {
		address += uintptr(first * int64(d.extent))
	}
	return b.make(d, err, address, count)
}

// bytesFrom is count elements of a datatype that begin some bytes behind an address.
func (b *builder) bytesFrom(address uintptr, offset, count int64, datatype uintptr) mpilib.Part {
	d, err := typeOf(datatype)
	if address != 0 {
		address += uintptr(offset)
	}
	return b.make(d, err, address, count)
}

func (b *builder) make(d *datatype, err error, address uintptr, count int64) mpilib.Part {
	if err != nil {
		b.failed(err)
		return mpilib.Part{}
	}
	p, err := d.part(address, count)
	b.failed(err)
	return p
}
