package core

import "bytes"

// TypeSetName names a type (MPI-5.0, section 7.8).
func TypeSetName(datatype, name uintptr) int32 {
	d, err := typeOf(datatype)
	if err == nil {
		text := textAt(name)
		d.name.Store(&text)
	}
	return onWorld("MPI_Type_set_name", err)
}

// TypeGetName returns the name of a type; predefined ones and MPI_DATATYPE_NULL have that of their constant, others none
// (MPI-5.0, section 7.8).
func TypeGetName(datatype, name, length uintptr) int32 {
	if datatype == datatypeNull {
		storeText(name, "MPI_DATATYPE_NULL", maxObjectName, length)
		return success
	}
	d, err := typeOf(datatype)
	if err == nil {
		text := ""
		if set := d.name.Load(); set != nil {
			text = *set
		}
		storeText(name, text, maxObjectName, length)
	}
	return onWorld("MPI_Type_get_name", err)
}

// textAt reads a name of C, up to its zero or the longest that there is.
func textAt(address uintptr) string {
	var text bytes.Buffer
	for i := range uintptr(maxObjectName - 1) {
		c := load[byte](address + i)
		if c == 0 {
			break
		}
		text.WriteByte(c)
	}
	return text.String()
}

// matching has the types of Fortran with a size, by class and size (MPI-5.0, section 19.1.9).
var matching = map[[2]int32]string{
	{classInteger, 1}: "MPI_INTEGER1", {classInteger, 2}: "MPI_INTEGER2", {classInteger, 4}: "MPI_INTEGER4", {classInteger, 8}: "MPI_INTEGER8",
	{classInteger, 16}: "MPI_INTEGER16", {classReal, 16}: "MPI_REAL16", {classComplex, 32}: "MPI_COMPLEX32",
	{classReal, 4}: "MPI_REAL4", {classReal, 8}: "MPI_REAL8",
	{classComplex, 8}: "MPI_COMPLEX8", {classComplex, 16}: "MPI_COMPLEX16",
}

// TypeMatchSize returns the predefined type of a class and a size (MPI-5.0, section 19.1.9).
func TypeMatchSize(typeclass, size int32, datatype uintptr) int32 {
	name, ok := matching[[2]int32{typeclass, size}]
	if !ok {
		return onWorld("MPI_Type_match_size", failure(errArg, "no type of class %d has %d bytes", typeclass, size))
	}
	store(datatype, uintptr(constantValues()[name]))
	return success
}
