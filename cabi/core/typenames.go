package core

// TypeSetName names a type (MPI-5.0, section 7.8).
func TypeSetName(datatype, name uintptr) int32 {
	d, err := typeOf(datatype)
	if err == nil {
		d.SetName(textAt(name))
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
		storeText(name, d.Name(), maxObjectName, length)
	}
	return onWorld("MPI_Type_get_name", err)
}
