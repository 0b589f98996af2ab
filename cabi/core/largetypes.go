package core

import "github.com/isthmus-grid/isthmus/cabi/core/datatypes"

// smallTypeOf is typeOf that takes no such type.
func smallTypeOf(handle uintptr) (*datatypes.Type, error) {
	d, err := typeOf(handle)
	if err == nil && d.Large {
		err = failure(errType, "%#x was made by a function with large counts; MPI_Type_get_envelope_c and MPI_Type_get_contents_c have its arguments", handle)
	}
	return d, err
}

// TypeGetEnvelopeC is TypeGetEnvelope of any type.
func TypeGetEnvelopeC(datatype, numIntegers, numAddresses, numCounts, numTypes, combiner uintptr) int32 {
	d, err := typeOf(datatype)
	if err != nil {
		return onWorld("MPI_Type_get_envelope_c", err)
	}
	e := d.Envelope()
	store(numIntegers, int64(e.Integers))
	store(numAddresses, int64(e.Addresses))
	store(numCounts, int64(e.Counts))
	store(numTypes, int64(e.Types))
	store(combiner, e.Combiner)
	return success
}

// TypeGetContentsC is TypeGetContents of any type.
func TypeGetContentsC(datatype uintptr, maxIntegers, maxAddresses, maxCounts, maxTypes int64, integers, addresses, counts, handles uintptr) int32 {
	d, err := typeOf(datatype)
	if err == nil {
		err = storeContents(d, room{maxIntegers, maxAddresses, maxCounts, maxTypes}, integers, addresses, counts, handles)
	}
	return onWorld("MPI_Type_get_contents_c", err)
}

// isLarge has a type that was just made remember that its constructor is a large one: cabi/generate writes these (forms.go).
func isLarge(newtype uintptr, result int32) int32 {
	if result == success {
		if d, ok := datatypes.Get(load[uintptr](newtype)); ok {
			d.Large = true
		}
	}
	return result
}
