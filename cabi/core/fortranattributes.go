package core

import "github.com/isthmus-grid/isthmus/cabi/core/attributes"

// FortranKeyvalSetProxy has proxies, in the language of the functions of a key that was just made, call these.
func FortranKeyvalSetProxy(number int32, copyProxy, copier, deleteProxy, called uintptr) int32 {
	if !attributes.SetProxies(number, attributes.Function{Function: copyProxy, Caller: copier}, attributes.Function{Function: deleteProxy, Caller: called}) {
		return onWorld("MPI_Comm_create_keyval", failure(errKeyval, "%d is no key", number))
	}
	return success
}

// FortranCommSetAttr caches an integer with a communicator.
func FortranCommSetAttr(comm uintptr, number int32, value uintptr, _ int32) int32 {
	return onCommKey("MPI_Comm_set_attr", comm, number, func(c *communicator, k *attributes.Key) error {
		return c.attributes.SetInteger(comm, k, value)
	})
}

// FortranCommGetAttr returns what is cached as an integer of the size of an address; what C set is one itself.
func FortranCommGetAttr(comm uintptr, number int32, value, flag uintptr, _ int32) int32 {
	return onComm("MPI_Comm_get_attr", comm, func(c *communicator) error {
		if isPredefined(number) {
			at, there := predefinedAttribute(number)
			if store(flag, logicalOf(there)); there {
				store(value, int64(load[int32](at)))
			}
			return nil
		}
		k, err := commKeyvalOf(number)
		if err == nil {
			storeInteger(&c.attributes, k, value, flag)
		}
		return err
	})
}

// storeInteger stores the value of a key for Fortran, and whether there is one.
func storeInteger(a *attributes.Cache, k *attributes.Key, value, flag uintptr) {
	v, there := a.GetInteger(k)
	store(flag, logicalOf(there))
	if there {
		store(value, v)
	}
}

// FortranTypeSetAttr caches an integer with a datatype.
func FortranTypeSetAttr(datatype uintptr, number int32, value uintptr, _ int32) int32 {
	return onTypeKey("MPI_Type_set_attr", datatype, number, func(a *attributes.Cache, k *attributes.Key) error {
		return a.SetInteger(datatype, k, value)
	})
}

// FortranTypeGetAttr is FortranCommGetAttr of a datatype.
func FortranTypeGetAttr(datatype uintptr, number int32, value, flag uintptr, _ int32) int32 {
	return onTypeKey("MPI_Type_get_attr", datatype, number, func(a *attributes.Cache, k *attributes.Key) error {
		storeInteger(a, k, value, flag)
		return nil
	})
}
