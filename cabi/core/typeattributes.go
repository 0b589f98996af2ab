package core

import "github.com/isthmus-grid/isthmus/cabi/core/attributes"

// TypeCreateKeyval makes a key for attributes of datatypes (MPI-5.0, section 7.7.4). The callers are the front-end's
// functions that call the program's.
func TypeCreateKeyval(copyFunction, copier, deleteFunction, called, number, extra uintptr) int32 {
	return createKeyval(attributes.OfTypes, copyFunction, copier, deleteFunction, called, number, extra)
}

// createKeyval stores the number of a new key.
func createKeyval(of attributes.Kind, copyFunction, copier, deleteFunction, called, number, extra uintptr) int32 {
	k := attributes.Key{
		Copy: attributes.Function{Function: copyFunction, Caller: copier}, Remove: attributes.Function{Function: deleteFunction, Caller: called}, Extra: extra,
	}
	store(number, of.Create(&k))
	return success
}

// freeKeyval makes the number of a key invalid.
func freeKeyval(call string, k *attributes.Key, err error, number uintptr) int32 {
	if err != nil {
		return onWorld(call, err)
	}
	k.Free()
	store(number, attributes.Invalid)
	return success
}

// TypeFreeKeyval makes the number of a key invalid.
func TypeFreeKeyval(number uintptr) int32 {
	k, err := typeKeyvalOf(load[int32](number))
	return freeKeyval("MPI_Type_free_keyval", k, err, number)
}

// typeKeyvalOf returns the key of a number.
func typeKeyvalOf(number int32) (*attributes.Key, error) {
	k, ok := attributes.OfTypes.Key(number)
	if !ok {
		return nil, failure(errKeyval, "%d is no key of datatypes", number)
	}
	return k, nil
}

// onTypeKey makes a call with a datatype and a key.
func onTypeKey(call string, datatype uintptr, number int32, f func(a *attributes.Cache, k *attributes.Key) error) int32 {
	d, err := typeOf(datatype)
	if err != nil {
		return onWorld(call, err)
	}
	k, err := typeKeyvalOf(number)
	if err == nil {
		err = f(&d.Attributes, k)
	}
	return onWorld(call, err)
}

// TypeSetAttr caches a value with a datatype.
func TypeSetAttr(datatype uintptr, number int32, value uintptr) int32 {
	return onTypeKey("MPI_Type_set_attr", datatype, number, func(a *attributes.Cache, k *attributes.Key) error { return a.Set(datatype, k, value) })
}

// TypeGetAttr returns it, if there is one.
func TypeGetAttr(datatype uintptr, number int32, value, flag uintptr) int32 {
	return onTypeKey("MPI_Type_get_attr", datatype, number, func(a *attributes.Cache, k *attributes.Key) error {
		v, there := a.Get(k)
		store(flag, logicalOf(there))
		if there {
			store(value, v)
		}
		return nil
	})
}

// TypeDeleteAttr deletes it.
func TypeDeleteAttr(datatype uintptr, number int32) int32 {
	return onTypeKey("MPI_Type_delete_attr", datatype, number, func(a *attributes.Cache, k *attributes.Key) error { return a.Remove(datatype, k) })
}
