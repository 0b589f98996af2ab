package core

import (
	"github.com/isthmus-grid/isthmus/cabi/core/datatypes"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// firstPage is the size of the page at address 0, which no program has.
const firstPage = 4096

// typeOf returns the datatype of a handle.
func typeOf(handle uintptr) (*datatypes.Type, error) {
	d, ok := datatypes.Get(handle)
	if !ok {
		return nil, failure(errType, "%#x is no datatype, or one that this library does not have", handle)
	}
	return d, nil
}

// partOf is count elements of d in the program's memory.
func partOf(d *datatypes.Type, address uintptr, count int64) (mpilib.Part, error) {
	if count < 0 {
		return mpilib.Part{}, failure(errCount, "%d elements", count)
	}
	if count == 0 || d.Begin == d.End {
		return mpilib.PartAs[byte](nil, 0, d.Datatype), nil
	}
	low, high := d.Span(int(count))
	first := address + uintptr(low) // address is 0 where displacements are addresses (MPI_BOTTOM)
	if first < firstPage {
		return mpilib.Part{}, failure(errBuffer, "%d elements at address %#x", count, first)
	}
	return mpilib.PartAt(elements[byte](first, high-low), -low, int(count), d.Datatype), nil
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
		address += uintptr(first * int64(d.Extent))
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

func (b *builder) make(d *datatypes.Type, err error, address uintptr, count int64) mpilib.Part {
	if err != nil {
		b.failed(err)
		return mpilib.Part{}
	}
	p, err := partOf(d, address, count)
	b.failed(err)
	return p
}
