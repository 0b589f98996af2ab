package core

// CallCopyProxy and CallDeleteProxy call a library for Fortran's or C++'s proxy of a keyval's functions, by the front-end's function
// caller: integer is 1 for a value that Fortran set. The library around this package sets them.
var (
	CallCopyProxy = func(caller, proxy, function uintptr, kind int32, object uintptr, keyval int32, extra uintptr, integer int32, value uintptr) (code int32, keep bool, kept uintptr) {
		panic("cabi/core: no C to call")
	}
	CallDeleteProxy = func(caller, proxy, function uintptr, kind int32, object uintptr, keyval int32, integer int32, value, extra uintptr) (code int32) {
		panic("cabi/core: no C to call")
	}
)

// proxies are functions that call a keyval's in the language that they are in, with their callers.
type proxies struct{ copy, copier, remove, called uintptr }

func (p *proxies) callCopy(v attribute, object uintptr) (code int32, keep bool, kept uintptr) {
	k := v.key
	return CallCopyProxy(p.copier, p.copy, k.copy, k.of.kind, object, k.number, k.extra, logicalOf(v.integer != nil), v.number())
}

func (p *proxies) callDelete(v attribute, object uintptr) int32 {
	k := v.key
	return CallDeleteProxy(p.called, p.remove, k.remove, k.of.kind, object, k.number, logicalOf(v.integer != nil), v.number(), k.extra)
}

// FortranKeyvalSetProxy sets them, right after the key was made.
func FortranKeyvalSetProxy(number int32, copyProxy, copier, deleteProxy, called uintptr) int32 {
	k, ok := keyvals.get(uintptr(number))
	if !ok {
		return onWorld("MPI_Comm_create_keyval", failure(errKeyval, "%d is no key", number))
	}
	k.proxies = &proxies{copyProxy, copier, deleteProxy, called}
	return success
}

// FortranCommSetAttr caches an integer with a communicator.
func FortranCommSetAttr(comm uintptr, number int32, value uintptr, _ int32) int32 {
	return onCommKey("MPI_Comm_set_attr", comm, number, func(c *communicator, k *keyval) error {
		return c.attributes.put(comm, attribute{key: k, integer: &value})
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
			err = c.attributes.storeNumber(k, value, flag)
		}
		return err
	})
}

// storeNumber stores the value of a key for Fortran, and whether there is one.
func (a *attributes) storeNumber(k *keyval, value, flag uintptr) error {
	v, there := a.find(k)
	store(flag, logicalOf(there))
	if there {
		store(value, v.number())
	}
	return nil
}

// FortranTypeSetAttr caches an integer with a datatype.
func FortranTypeSetAttr(datatype uintptr, number int32, value uintptr, _ int32) int32 {
	return onTypeKey("MPI_Type_set_attr", datatype, number, func(a *attributes, k *keyval) error {
		return a.put(datatype, attribute{key: k, integer: &value})
	})
}

// FortranTypeGetAttr is FortranCommGetAttr of a datatype.
func FortranTypeGetAttr(datatype uintptr, number int32, value, flag uintptr, _ int32) int32 {
	return onTypeKey("MPI_Type_get_attr", datatype, number, func(a *attributes, k *keyval) error { return a.storeNumber(k, value, flag) })
}
