package core

import (
	"slices"
	"sync"
)

// CallCopyAttr and CallDeleteAttr call a keyval's functions of the program's by the front-end's function caller, for a value of
// the object with a handle: they return MPI_SUCCESS or an error, and the first also whether a copy gets a value and which.
// The library around this package sets them.
var (
	CallCopyAttr = func(caller, function, object uintptr, keyval int32, extra, value uintptr) (code int32, keep bool, kept uintptr) {
		panic("cabi/core: no C to call")
	}
	CallDeleteAttr = func(caller, function, object uintptr, keyval int32, value, extra uintptr) (code int32) {
		panic("cabi/core: no C to call")
	}
)

// keyval is what the number of an attribute's key names. Values that are cached when it is freed keep it.
type keyval struct {
	number         int32
	copy, copier   uintptr // a function, and the front-end's that calls it; copy may be noCopy or copyValue
	remove, called uintptr // likewise; remove may be 0
	extra          uintptr
}

// The functions that stand for nothing and for the value itself (MPI_TYPE_NULL_COPY_FN, MPI_TYPE_DUP_FN).
const (
	noCopy    = uintptr(0)
	copyValue = uintptr(1)
)

// keyvalInvalid is MPI_KEYVAL_INVALID.
const keyvalInvalid = int32(0)

// typeKeyvals are the keys of datatypes.
var typeKeyvals objects[*keyval]

// attributes are the values cached with an object, in the order in which they were set.
type attributes struct {
	mu     sync.Mutex
	values []attribute
}

type attribute struct {
	key   *keyval
	value uintptr
}

// index returns where the value of a key is, or -1. mu is held.
func (a *attributes) index(k *keyval) int {
	return slices.IndexFunc(a.values, func(v attribute) bool { return v.key == k })
}

// get returns the value of a key, and whether there is one.
func (a *attributes) get(k *keyval) (uintptr, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := a.index(k); i >= 0 {
		return a.values[i].value, true
	}
	return 0, false
}

// set caches a value. One that is there is deleted first; if that fails, it stays.
func (a *attributes) set(object uintptr, k *keyval, value uintptr) error {
	if err := a.remove(object, k); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.values = append(a.values, attribute{k, value})
	return nil
}

// remove deletes the value of a key if there is one. It stays if the key's function fails. No lock is held while that runs.
func (a *attributes) remove(object uintptr, k *keyval) error {
	value, there := a.get(k)
	if !there {
		return nil
	}
	if k.remove != 0 {
		var code int32
		onProgram(func() { code = CallDeleteAttr(k.called, k.remove, object, k.number, value, k.extra) })
		if code != success {
			return failure(code, "the function that deletes attributes of key %d returned %d", k.number, code)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := a.index(k); i >= 0 {
		a.values = slices.Delete(a.values, i, i+1)
	}
	return nil
}

// all returns the values of now.
func (a *attributes) all() []attribute {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.values)
}

// removeAll deletes all values, the last one first, up to one whose function fails.
func (a *attributes) removeAll(object uintptr) error {
	for _, v := range slices.Backward(a.all()) {
		if err := a.remove(object, v.key); err != nil {
			return err
		}
	}
	return nil
}

// copies returns the values of a copy of the object.
func (a *attributes) copies(object uintptr) ([]attribute, error) {
	var out []attribute
	for _, v := range a.all() {
		keep, kept := v.key.copy == copyValue, v.value
		if v.key.copy > copyValue {
			var code int32
			onProgram(func() {
				code, keep, kept = CallCopyAttr(v.key.copier, v.key.copy, object, v.key.number, v.key.extra, v.value)
			})
			if code != success {
				return nil, failure(code, "the function that copies attributes of key %d returned %d", v.key.number, code)
			}
		}
		if keep {
			out = append(out, attribute{v.key, kept})
		}
	}
	return out, nil
}

// TypeCreateKeyval makes a key for attributes of datatypes (MPI-5.0, section 7.7.4). The callers are the front-end's
// functions that call the program's.
func TypeCreateKeyval(copyFunction, copier, deleteFunction, called, number, extra uintptr) int32 {
	return createKeyval(&typeKeyvals, &keyval{copy: copyFunction, copier: copier, remove: deleteFunction, called: called, extra: extra}, number)
}

// createKeyval stores the number of a new key.
func createKeyval(keys *objects[*keyval], k *keyval, number uintptr) int32 {
	k.number = int32(keys.add(k))
	store(number, k.number)
	return success
}

// TypeFreeKeyval makes the number of a key invalid.
func TypeFreeKeyval(number uintptr) int32 {
	k, err := typeKeyvalOf(load[int32](number))
	if err != nil {
		return onWorld("MPI_Type_free_keyval", err)
	}
	typeKeyvals.remove(uintptr(k.number))
	store(number, keyvalInvalid)
	return success
}

// typeKeyvalOf returns the key of a number.
func typeKeyvalOf(number int32) (*keyval, error) {
	k, ok := typeKeyvals.get(uintptr(number))
	if !ok {
		return nil, failure(errKeyval, "%d is no key of datatypes", number)
	}
	return k, nil
}

// onTypeKey makes a call with a datatype and a key.
func onTypeKey(call string, datatype uintptr, number int32, f func(a *attributes, k *keyval) error) int32 {
	d, err := typeOf(datatype)
	if err != nil {
		return onWorld(call, err)
	}
	k, err := typeKeyvalOf(number)
	if err == nil {
		err = f(&d.attributes, k)
	}
	return onWorld(call, err)
}

// TypeSetAttr caches a value with a datatype.
func TypeSetAttr(datatype uintptr, number int32, value uintptr) int32 {
	return onTypeKey("MPI_Type_set_attr", datatype, number, func(a *attributes, k *keyval) error { return a.set(datatype, k, value) })
}

// TypeGetAttr returns it, if there is one.
func TypeGetAttr(datatype uintptr, number int32, value, flag uintptr) int32 {
	return onTypeKey("MPI_Type_get_attr", datatype, number, func(a *attributes, k *keyval) error {
		v, there := a.get(k)
		store(flag, logicalOf(there))
		if there {
			store(value, v)
		}
		return nil
	})
}

// TypeDeleteAttr deletes it.
func TypeDeleteAttr(datatype uintptr, number int32) int32 {
	return onTypeKey("MPI_Type_delete_attr", datatype, number, func(a *attributes, k *keyval) error { return a.remove(datatype, k) })
}
