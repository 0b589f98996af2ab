package core

import (
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// Types remember that a constructor with counts of 64 bits made them: its arguments are returned as large
// counts, and by MPI_Type_get_envelope_c and MPI_Type_get_contents_c only (MPI-5.0, section 5.1.13).

// smallTypeOf is typeOf that takes no such type.
func smallTypeOf(handle uintptr) (*datatype, error) {
	d, err := typeOf(handle)
	if err == nil && d.large {
		err = failure(errType, "%#x was made by a function with large counts; MPI_Type_get_envelope_c and MPI_Type_get_contents_c have its arguments", handle)
	}
	return d, err
}

// counted is where the counts are among n integers of a constructor; its addresses are counts, too.
func counted(c mpilib.Combiner, n int) (from, to int) {
	switch c {
	case mpilib.CombinerSubarray: // between the number of dimensions and the order
		return 1, n - 1
	case mpilib.CombinerDarray: // the sizes; of the other lists, none has counts
		return 3, 3 + (n-4)/4
	}
	return 0, n
}

// envelope returns how d was made, and how many arguments of each sort there are.
func (d *datatype) envelope() (combiner int32, integers, addresses, counts, types int) {
	if d.asked != nil {
		return constantValues()[d.asked.combiner], len(d.asked.integers()), 0, 0, 0
	}
	c, integers, addresses, types := d.t.Envelope()
	combiner = constantValues()[c.String()]
	if !d.large {
		return combiner, integers, addresses, 0, types
	}
	from, to := counted(c, integers)
	return combiner, integers - (to - from), 0, to - from + addresses, types
}

// sorts returns the arguments of d as a program gets them.
func (d *datatype) sorts(c mpilib.Contents) (integers, addresses, counts []int) {
	if !d.large {
		return c.Integers, c.Addresses, nil
	}
	from, to := counted(c.Combiner, len(c.Integers))
	return slices.Concat(c.Integers[:from], c.Integers[to:]), nil, slices.Concat(c.Integers[from:to], c.Addresses)
}

// TypeGetEnvelopeC is TypeGetEnvelope of any type.
func TypeGetEnvelopeC(datatype, numIntegers, numAddresses, numCounts, numTypes, combiner uintptr) int32 {
	d, err := typeOf(datatype)
	if err != nil {
		return onWorld("MPI_Type_get_envelope_c", err)
	}
	c, integers, addresses, counts, types := d.envelope()
	store(numIntegers, int64(integers))
	store(numAddresses, int64(addresses))
	store(numCounts, int64(counts))
	store(numTypes, int64(types))
	store(combiner, c)
	return success
}

// TypeGetContentsC is TypeGetContents of any type.
func TypeGetContentsC(datatype uintptr, maxIntegers, maxAddresses, maxCounts, maxTypes int64, integers, addresses, counts, handles uintptr) int32 {
	d, err := typeOf(datatype)
	if err == nil {
		err = d.storeContents(room{maxIntegers, maxAddresses, maxCounts, maxTypes}, integers, addresses, counts, handles)
	}
	return onWorld("MPI_Type_get_contents_c", err)
}

// isLarge has a type that was just made remember that its constructor is a large one.
func isLarge(newtype uintptr, result int32) int32 {
	if result == success {
		if d, ok := types.get(load[uintptr](newtype)); ok {
			d.large = true
		}
	}
	return result
}

// TypeContiguousC is TypeContiguous whose type remembers that, like those of all constructors below.
func TypeContiguousC(count int64, oldtype, newtype uintptr) int32 {
	return isLarge(newtype, TypeContiguous(count, oldtype, newtype))
}

// TypeVectorC is TypeVector.
func TypeVectorC(count, blocklength, stride int64, oldtype, newtype uintptr) int32 {
	return isLarge(newtype, TypeVector(count, blocklength, stride, oldtype, newtype))
}

// TypeCreateHvectorC is TypeCreateHvector.
func TypeCreateHvectorC(count, blocklength, stride int64, oldtype, newtype uintptr) int32 {
	return isLarge(newtype, TypeCreateHvector(count, blocklength, stride, oldtype, newtype))
}

// TypeIndexedC is TypeIndexed.
func TypeIndexedC(count int64, lengths, displacements, oldtype, newtype uintptr, wide int32) int32 {
	return isLarge(newtype, TypeIndexed(count, lengths, displacements, oldtype, newtype, wide))
}

// TypeCreateHindexedC is TypeCreateHindexed.
func TypeCreateHindexedC(count int64, lengths, displacements, oldtype, newtype uintptr, wide int32) int32 {
	return isLarge(newtype, TypeCreateHindexed(count, lengths, displacements, oldtype, newtype, wide))
}

// TypeCreateIndexedBlockC is TypeCreateIndexedBlock.
func TypeCreateIndexedBlockC(count, blocklength int64, displacements, oldtype, newtype uintptr, wide int32) int32 {
	return isLarge(newtype, TypeCreateIndexedBlock(count, blocklength, displacements, oldtype, newtype, wide))
}

// TypeCreateHindexedBlockC is TypeCreateHindexedBlock.
func TypeCreateHindexedBlockC(count, blocklength int64, displacements, oldtype, newtype uintptr) int32 {
	return isLarge(newtype, TypeCreateHindexedBlock(count, blocklength, displacements, oldtype, newtype))
}

// TypeCreateStructC is TypeCreateStruct.
func TypeCreateStructC(count int64, lengths, displacements, oldtypes, newtype uintptr, wide int32) int32 {
	return isLarge(newtype, TypeCreateStruct(count, lengths, displacements, oldtypes, newtype, wide))
}

// TypeCreateSubarrayC is TypeCreateSubarray.
func TypeCreateSubarrayC(ndims int32, sizes, subsizes, starts uintptr, order int32, oldtype, newtype uintptr, wide int32) int32 {
	return isLarge(newtype, TypeCreateSubarray(ndims, sizes, subsizes, starts, order, oldtype, newtype, wide))
}

// TypeCreateDarrayC is TypeCreateDarray.
func TypeCreateDarrayC(size, rank, ndims int32, sizes, distribs, arguments, processes uintptr, order int32, oldtype, newtype uintptr, wide int32) int32 {
	return isLarge(newtype, TypeCreateDarray(size, rank, ndims, sizes, distribs, arguments, processes, order, oldtype, newtype, wide))
}

// TypeCreateResizedC is TypeCreateResized.
func TypeCreateResizedC(oldtype uintptr, lb, extent int64, newtype uintptr) int32 {
	return isLarge(newtype, TypeCreateResized(oldtype, lb, extent, newtype))
}
