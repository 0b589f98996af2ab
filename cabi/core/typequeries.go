package core

import "github.com/isthmus-grid/isthmus/cabi/core/datatypes"

// TypeSize returns the bytes of data in an element.
func TypeSize(datatype, size uintptr) int32 {
	d, err := typeOf(datatype)
	if err != nil {
		return onWorld("MPI_Type_size", err)
	}
	store(size, int64(d.Datatype.Size()))
	return success
}

// TypeGetExtent returns the lower bound and the distance between elements.
func TypeGetExtent(datatype, lb, extent uintptr) int32 {
	d, err := typeOf(datatype)
	if err != nil {
		return onWorld("MPI_Type_get_extent", err)
	}
	low, length := d.Datatype.Extent()
	store(lb, int64(low))
	store(extent, int64(length))
	return success
}

// TypeGetTrueExtent returns where the data of an element lies (MPI-5.0, section 5.1.8).
func TypeGetTrueExtent(datatype, lb, extent uintptr) int32 {
	d, err := typeOf(datatype)
	if err != nil {
		return onWorld("MPI_Type_get_true_extent", err)
	}
	store(lb, int64(d.Begin))
	store(extent, int64(d.End-d.Begin))
	return success
}

// TypeGetEnvelope returns how a type was made, and from how many arguments (MPI-5.0, section 5.1.13).
func TypeGetEnvelope(datatype, numIntegers, numAddresses, numTypes, combiner uintptr) int32 {
	d, err := smallTypeOf(datatype)
	if err != nil {
		return onWorld("MPI_Type_get_envelope", err)
	}
	e := d.Envelope()
	store(numIntegers, int32(e.Integers))
	store(numAddresses, int32(e.Addresses))
	store(numTypes, int32(e.Types))
	store(combiner, e.Combiner)
	return success
}

// TypeGetContents returns the arguments that a type was made of (MPI-5.0, section 5.1.13).
func TypeGetContents(datatype uintptr, maxIntegers, maxAddresses, maxTypes int32, integers, addresses, handles uintptr) int32 {
	d, err := smallTypeOf(datatype)
	if err == nil {
		err = storeContents(d, room{int64(maxIntegers), int64(maxAddresses), 0, int64(maxTypes)}, integers, addresses, 0, handles)
	}
	return onWorld("MPI_Type_get_contents", err)
}

// room is how many arguments of each sort a program has room for.
type room struct{ integers, addresses, counts, types int64 }

// storeContents writes the arguments that d was made of.
func storeContents(d *datatypes.Type, r room, integers, addresses, counts, handles uintptr) error {
	a, err := d.Arguments()
	if err != nil {
		return err
	}
	needs := room{int64(len(a.Integers)), int64(len(a.Addresses)), int64(len(a.Counts)), int64(a.Types())}
	if needs.integers > r.integers || needs.addresses > r.addresses || needs.counts > r.counts || needs.types > r.types {
		return failure(errArg, "%d integers, %d addresses, %d large counts and %d types, and room for %d, %d, %d and %d",
			needs.integers, needs.addresses, needs.counts, needs.types, r.integers, r.addresses, r.counts, r.types)
	}
	for i, v := range a.Integers {
		store(integers+uintptr(4*i), int32(v))
	}
	for i, v := range a.Addresses {
		store(addresses+uintptr(8*i), int64(v))
	}
	for i, v := range a.Counts {
		store(counts+uintptr(8*i), int64(v))
	}
	for i := range a.Types() {
		store(handles+uintptr(8*i), a.Handle(i))
	}
	return nil
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
		store(result, int64(f(d.Datatype.Extent())))
	}
	return onWorld(call, err)
}
