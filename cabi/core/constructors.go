package core

import (
	"github.com/isthmus-grid/isthmus/cabi/core/datatypes"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// derive makes a type of one other.
func derive(call string, oldtype, newtype uintptr, build func(old *mpilib.Datatype) (*mpilib.Datatype, error)) int32 {
	old, err := typeOf(oldtype)
	if err != nil {
		return onWorld(call, err)
	}
	t, err := build(old.Datatype)
	if err != nil {
		return onWorld(call, err)
	}
	store(newtype, datatypes.Add(t, old).Handle)
	return success
}

// listed is derive with lists of n entries, which cannot be read if there are fewer than none.
func listed(call string, n int64, oldtype, newtype uintptr, build func(old *mpilib.Datatype) (*mpilib.Datatype, error)) int32 {
	if n < 0 {
		return onWorld(call, failure(errCount, "%d blocks or dimensions", n))
	}
	return derive(call, oldtype, newtype, build)
}

// addresses reads an array of displacements in bytes, which always have 64 bits.
func addresses(list uintptr, n int64) []int { return integers(list, int(n), 1) }

// TypeContiguous makes a type of count elements (MPI-5.0, section 5.1.2, like all up to TypeCreateStruct).
func TypeContiguous(count int64, oldtype, newtype uintptr) int32 {
	return derive("MPI_Type_contiguous", oldtype, newtype, func(old *mpilib.Datatype) (*mpilib.Datatype, error) {
		return mpilib.TypeContiguous(int(count), old)
	})
}

// TypeVector makes a type of blocks that are stride elements apart.
func TypeVector(count, blocklength, stride int64, oldtype, newtype uintptr) int32 {
	return derive("MPI_Type_vector", oldtype, newtype, func(old *mpilib.Datatype) (*mpilib.Datatype, error) {
		return mpilib.TypeVector(int(count), int(blocklength), int(stride), old)
	})
}

// TypeCreateHvector is TypeVector with a stride in bytes.
func TypeCreateHvector(count, blocklength, stride int64, oldtype, newtype uintptr) int32 {
	return derive("MPI_Type_create_hvector", oldtype, newtype, func(old *mpilib.Datatype) (*mpilib.Datatype, error) {
		return mpilib.TypeHvector(int(count), int(blocklength), int(stride), old)
	})
}

// TypeIndexed makes a type of blocks of different lengths.
func TypeIndexed(count int64, lengths, displacements, oldtype, newtype uintptr, wide int32) int32 {
	return listed("MPI_Type_indexed", count, oldtype, newtype, func(old *mpilib.Datatype) (*mpilib.Datatype, error) {
		return mpilib.TypeIndexed(integers(lengths, int(count), wide), integers(displacements, int(count), wide), old)
	})
}

// TypeCreateHindexed is TypeIndexed with displacements in bytes.
func TypeCreateHindexed(count int64, lengths, displacements, oldtype, newtype uintptr, wide int32) int32 {
	return listed("MPI_Type_create_hindexed", count, oldtype, newtype, func(old *mpilib.Datatype) (*mpilib.Datatype, error) {
		return mpilib.TypeHindexed(integers(lengths, int(count), wide), addresses(displacements, count), old)
	})
}

// TypeCreateIndexedBlock is TypeIndexed with blocks of one length.
func TypeCreateIndexedBlock(count, blocklength int64, displacements, oldtype, newtype uintptr, wide int32) int32 {
	return listed("MPI_Type_create_indexed_block", count, oldtype, newtype, func(old *mpilib.Datatype) (*mpilib.Datatype, error) {
		return mpilib.TypeIndexedBlock(int(blocklength), integers(displacements, int(count), wide), old)
	})
}

// TypeCreateHindexedBlock is TypeCreateIndexedBlock with displacements in bytes.
func TypeCreateHindexedBlock(count, blocklength int64, displacements, oldtype, newtype uintptr) int32 {
	return listed("MPI_Type_create_hindexed_block", count, oldtype, newtype, func(old *mpilib.Datatype) (*mpilib.Datatype, error) {
		return mpilib.TypeHindexedBlock(int(blocklength), addresses(displacements, count), old)
	})
}

// TypeCreateStruct makes a type of blocks of different types.
func TypeCreateStruct(count int64, lengths, displacements, oldtypes, newtype uintptr, wide int32) int32 {
	const call = "MPI_Type_create_struct"
	if count < 0 {
		return onWorld(call, failure(errCount, "%d blocks", count))
	}
	from, inner := make([]*datatypes.Type, count), make([]*mpilib.Datatype, count)
	for i, handle := range elements[uintptr](oldtypes, int(count)) {
		old, err := typeOf(handle)
		if err != nil {
			return onWorld(call, err)
		}
		from[i], inner[i] = old, old.Datatype
	}
	t, err := mpilib.TypeStruct(integers(lengths, int(count), wide), addresses(displacements, count), inner)
	if err != nil {
		return onWorld(call, err)
	}
	store(newtype, datatypes.Add(t, from...).Handle)
	return success
}

// TypeCreateSubarray makes a type of a part of an array (MPI-5.0, section 5.1.3).
func TypeCreateSubarray(ndims int32, sizes, subsizes, starts uintptr, order int32, oldtype, newtype uintptr, wide int32) int32 {
	n := int(ndims)
	return listed("MPI_Type_create_subarray", int64(n), oldtype, newtype, func(old *mpilib.Datatype) (*mpilib.Datatype, error) {
		o, ok := datatypes.OrderOf(order)
		if !ok {
			return nil, failure(errArg, "%d is no order of an array", order)
		}
		return mpilib.TypeSubarray(integers(sizes, n, wide), integers(subsizes, n, wide), integers(starts, n, wide), o, old)
	})
}

// TypeCreateDarray makes a type of what a process has of a distributed array (MPI-5.0, section 5.1.4).
func TypeCreateDarray(size, rank, ndims int32, sizes, distribs, arguments, processes uintptr, order int32, oldtype, newtype uintptr, wide int32) int32 {
	n := int(ndims)
	return listed("MPI_Type_create_darray", int64(n), oldtype, newtype, func(old *mpilib.Datatype) (*mpilib.Datatype, error) {
		o, ok := datatypes.OrderOf(order)
		if !ok {
			return nil, failure(errArg, "%d is no order of an array", order)
		}
		a := mpilib.Darray{Sizes: integers(sizes, n, wide), Arguments: integers(arguments, n, 0), Processes: integers(processes, n, 0)}
		for i, value := range integers(distribs, n, 0) {
			d, ok := datatypes.DistributionOf(int32(value))
			if !ok {
				return nil, failure(errArg, "%d is no distribution", value)
			}
			a.Distributions = append(a.Distributions, d)
			if a.Arguments[i] == int(datatypes.DistributeDefault) {
				a.Arguments[i] = mpilib.DistributeDefault
			}
		}
		return mpilib.TypeDarray(int(size), int(rank), a, o, old)
	})
}

// TypeCreateResized makes a type with other bounds (MPI-5.0, section 5.1.7).
func TypeCreateResized(oldtype uintptr, lb, extent int64, newtype uintptr) int32 {
	return derive("MPI_Type_create_resized", oldtype, newtype, func(old *mpilib.Datatype) (*mpilib.Datatype, error) {
		return mpilib.TypeResized(old, int(lb), int(extent))
	})
}

// TypeDup copies a type, which is committed if the old one is (MPI-5.0, section 5.1.10), with its attributes.
func TypeDup(oldtype, newtype uintptr) int32 {
	const call = "MPI_Type_dup"
	old, err := typeOf(oldtype)
	if err != nil {
		return onWorld(call, err)
	}
	copies, err := old.Attributes.Copies(oldtype)
	if err != nil {
		return onWorld(call, err)
	}
	result := derive(call, oldtype, newtype, (*mpilib.Datatype).Dup)
	if made, ok := datatypes.Get(load[uintptr](newtype)); ok && result == success {
		made.Attributes.Fill(copies)
	}
	return result
}

// TypeCommit makes a type ready for messages (MPI-5.0, section 5.1.9).
func TypeCommit(datatype uintptr) int32 {
	d, err := typeOf(load[uintptr](datatype))
	if err == nil {
		err = d.Datatype.Commit()
	}
	return onWorld("MPI_Type_commit", err)
}

// TypeFree makes the handle of a type invalid; what uses the type keeps it (MPI-5.0, section 5.1.9).
func TypeFree(datatype uintptr) int32 {
	handle := load[uintptr](datatype)
	d, err := typeOf(handle)
	if err == nil && d.IsPredefined() {
		err = failure(errType, "%#x is a predefined type, which cannot be freed", handle)
	}
	if err == nil {
		err = d.Attributes.RemoveAll(handle)
	}
	if err != nil {
		return onWorld("MPI_Type_free", err)
	}
	d.Remove()
	store(datatype, datatypeNull)
	return success
}
