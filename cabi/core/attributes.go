package core

import (
	"slices"
	"sync"
	"unsafe"
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
	of             *keys
	number         int32
	copy, copier   uintptr // a function, and the front-end's that calls it; copy may be noCopy or copyValue
	remove, called uintptr // likewise; remove may be 0
	extra          uintptr
	proxies        *proxies // that call copy and remove; nil: they are C's
}

// The functions that stand for nothing and for the value itself (MPI_TYPE_NULL_COPY_FN, MPI_TYPE_DUP_FN).
const (
	noCopy    = uintptr(0)
	copyValue = uintptr(1)
)

// keyvalInvalid is MPI_KEYVAL_INVALID.
const keyvalInvalid = int32(0)

// keys are those of one kind of objects. A number says by itself which kind its key is of.
type keys struct{ kind int32 }

// Kinds of objects, as front-ends know them.
const (
	ofComms = int32(iota)
	ofTypes
	ofWins
)

// keyvals are the keys of all kinds.
var keyvals objects[*keyval]

// typeKeyvals are the keys of datatypes.
var typeKeyvals = keys{ofTypes}

// get returns the key of a number.
func (s *keys) get(number int32) (*keyval, bool) {
	k, ok := keyvals.get(uintptr(number))
	return k, ok && k.of == s
}

// attributes are the values cached with an object, in the order in which they were set.
type attributes struct {
	mu     sync.Mutex
	values []attribute
}

// An attribute that Fortran set is an integer, and C gets its address (MPI-5.0, section 19.3.7).
type attribute struct {
	key     *keyval
	value   uintptr
	integer *uintptr // instead of value; nil: C set it
}

// pointer is the value for C.
func (v attribute) pointer() uintptr {
	if v.integer != nil {
		return uintptr(unsafe.Pointer(v.integer))
	}
	return v.value
}

// number is the value for Fortran.
func (v attribute) number() uintptr {
	if v.integer != nil {
		return *v.integer
	}
	return v.value
}

// with is v with another value, of the same language.
func (v attribute) with(value uintptr) attribute {
	if v.integer != nil {
		return attribute{key: v.key, integer: &value}
	}
	return attribute{key: v.key, value: value}
}

// copy asks the key's function for the value of a copy of object.
func (v attribute) copy(object uintptr) (copied attribute, keep bool, code int32) {
	k, kept := v.key, uintptr(0)
	if k.proxies != nil {
		onProgram(func() { code, keep, kept = k.proxies.callCopy(v, object) })
		return v.with(kept), keep, code
	}
	onProgram(func() { code, keep, kept = CallCopyAttr(k.copier, k.copy, object, k.number, k.extra, v.pointer()) })
	if kept == v.pointer() { // the address of the old one's integer must not stay
		return v.with(v.number()), keep, code
	}
	return attribute{key: k, value: kept}, keep, code
}

// deleted tells the key's function that the value is deleted.
func (v attribute) deleted(object uintptr) (code int32) {
	k := v.key
	onProgram(func() {
		if k.proxies != nil {
			code = k.proxies.callDelete(v, object)
		} else {
			code = CallDeleteAttr(k.called, k.remove, object, k.number, v.pointer(), k.extra)
		}
	})
	return code
}

// index returns where the value of a key is, or -1. mu is held.
func (a *attributes) index(k *keyval) int {
	return slices.IndexFunc(a.values, func(v attribute) bool { return v.key == k })
}

// find returns the value of a key, and whether there is one.
func (a *attributes) find(k *keyval) (attribute, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := a.index(k); i >= 0 {
		return a.values[i], true
	}
	return attribute{}, false
}

// get is find for C.
func (a *attributes) get(k *keyval) (uintptr, bool) {
	v, there := a.find(k)
	return v.pointer(), there
}

// set caches a value of C's.
func (a *attributes) set(object uintptr, k *keyval, value uintptr) error {
	return a.put(object, attribute{key: k, value: value})
}

// put caches a value. One that is there is deleted first; if that fails, it stays.
func (a *attributes) put(object uintptr, v attribute) error {
	if err := a.remove(object, v.key); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.values = append(a.values, v)
	return nil
}

// remove deletes the value of a key if there is one. It stays if the key's function fails. No lock is held while that runs.
func (a *attributes) remove(object uintptr, k *keyval) error {
	v, there := a.find(k)
	if !there {
		return nil
	}
	if k.remove != 0 {
		if code := v.deleted(object); code != success {
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
		copied, keep := v.with(v.number()), v.key.copy == copyValue
		if v.key.copy > copyValue {
			var code int32
			if copied, keep, code = v.copy(object); code != success {
				return nil, failure(code, "the function that copies attributes of key %d returned %d", v.key.number, code)
			}
		}
		if keep {
			out = append(out, copied)
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
func createKeyval(of *keys, k *keyval, number uintptr) int32 {
	k.of = of
	k.number = int32(keyvals.add(k))
	store(number, k.number)
	return success
}

// TypeFreeKeyval makes the number of a key invalid.
func TypeFreeKeyval(number uintptr) int32 {
	k, err := typeKeyvalOf(load[int32](number))
	if err != nil {
		return onWorld("MPI_Type_free_keyval", err)
	}
	keyvals.remove(uintptr(k.number))
	store(number, keyvalInvalid)
	return success
}

// typeKeyvalOf returns the key of a number.
func typeKeyvalOf(number int32) (*keyval, error) {
	k, ok := typeKeyvals.get(number)
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
