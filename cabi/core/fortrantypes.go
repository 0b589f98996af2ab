package core

import "github.com/isthmus-grid/isthmus/cabi/core/datatypes"

// TypeGetValueIndex returns the predefined type of a value and an index, MPI_DATATYPE_NULL if there is none; those without
// a name are not there.
func TypeGetValueIndex(valueType, indexType, pairType uintptr) int32 {
	const call = "MPI_Type_get_value_index"
	value, err := typeOf(valueType)
	if err != nil {
		return onWorld(call, err)
	}
	index, err := typeOf(indexType)
	if err != nil {
		return onWorld(call, err)
	}
	pair, ok := datatypes.PairOf(value, index)
	if !ok {
		pair = datatypeNull
	}
	store(pairType, pair)
	return success
}

// TypeMatchSize returns the predefined type of a class and a size (MPI-5.0, section 19.1.9).
func TypeMatchSize(typeclass, size int32, datatype uintptr) int32 {
	handle, ok := datatypes.Match(typeclass, size)
	if !ok {
		return onWorld("MPI_Type_match_size", failure(errArg, "no type of class %d has %d bytes", typeclass, size))
	}
	store(datatype, handle)
	return success
}

// createPrecise stores the handle of a type of Fortran's with a precision (MPI-5.0, section 19.1.9).
func createPrecise(call string, a datatypes.Precise, newtype uintptr) int32 {
	handle, ok := a.Find()
	if !ok {
		return onWorld(call, failure(errArg, "there is no type with %d digits and exponents up to %d", a.P, a.R))
	}
	store(newtype, handle)
	return success
}

// TypeCreateF90Real returns the type of reals with a precision.
func TypeCreateF90Real(p, r int32, newtype uintptr) int32 {
	return createPrecise("MPI_Type_create_f90_real", datatypes.Precise{Combiner: datatypes.PreciseReal, P: p, R: r}, newtype)
}

// TypeCreateF90Complex returns the type of complex numbers with a precision.
func TypeCreateF90Complex(p, r int32, newtype uintptr) int32 {
	return createPrecise("MPI_Type_create_f90_complex", datatypes.Precise{Combiner: datatypes.PreciseComplex, P: p, R: r}, newtype)
}

// TypeCreateF90Integer returns the type of integers with r decimal digits.
func TypeCreateF90Integer(r int32, newtype uintptr) int32 {
	return createPrecise("MPI_Type_create_f90_integer", datatypes.Precise{Combiner: datatypes.PreciseInteger, P: undefined, R: r}, newtype)
}
