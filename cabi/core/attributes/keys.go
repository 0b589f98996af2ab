package attributes

import (
	"github.com/isthmus-grid/isthmus/cabi/core/callbacks"
	"github.com/isthmus-grid/isthmus/cabi/core/handles"
)

// CallCopy and CallDelete call a key's functions of the program's by the front-end's function caller, for a value of the
// object with a handle: they return MPI_SUCCESS or an error, and the first also whether a copy gets a value and which.
// The library around package core sets them, as the two below.
var (
	CallCopy = func(caller, function, object uintptr, key int32, extra, value uintptr) (code int32, keep bool, kept uintptr) {
		panic("cabi/core/attributes: no C to call")
	}
	CallDelete = func(caller, function, object uintptr, key int32, value, extra uintptr) (code int32) {
		panic("cabi/core/attributes: no C to call")
	}
)

// CallCopyProxy and CallDeleteProxy call a library for Fortran's or C++'s proxy of a key's functions, by the front-end's function
// caller: integer is 1 for a value that Fortran set.
var (
	CallCopyProxy = func(caller, proxy, function uintptr, kind int32, object uintptr, key int32, extra uintptr, integer int32, value uintptr) (code int32, keep bool, kept uintptr) {
		panic("cabi/core/attributes: no C to call")
	}
	CallDeleteProxy = func(caller, proxy, function uintptr, kind int32, object uintptr, key int32, integer int32, value, extra uintptr) (code int32) {
		panic("cabi/core/attributes: no C to call")
	}
)

// Kind is a kind of objects, as front-ends know them.
type Kind int32

// The kinds.
const (
	OfComms Kind = iota
	OfTypes
	OfWins
)

// Function is one of the program's, with the front-end's that calls it.
type Function struct{ Function, Caller uintptr }

// What the copy function may be instead: nothing is copied, or the value itself (MPI_TYPE_NULL_COPY_FN, MPI_TYPE_DUP_FN).
const (
	NoCopy    = uintptr(0)
	CopyValue = uintptr(1)
)

// Invalid is the number of no key (MPI_KEYVAL_INVALID).
const Invalid = int32(0)

// Key is what the number of an attribute's key names. Values that are cached when it is freed keep it.
type Key struct {
	Copy, Remove Function // Remove may be none
	Extra        uintptr  // what they get

	kind    Kind
	number  int32
	proxies *proxies // that call Copy and Remove; nil: they are C's
}

// proxies are functions that call a key's in the language that they are in.
type proxies struct{ copy, remove Function }

// keys are those of all kinds: a number says by itself which kind its key is of.
var keys handles.Table[*Key]

// Create returns the number of a new key for objects of a kind.
func (of Kind) Create(k *Key) int32 {
	k.kind = of
	k.number = int32(keys.Add(k))
	return k.number
}

// Key returns the key of a number.
func (of Kind) Key(number int32) (*Key, bool) {
	k, ok := keys.Get(uintptr(number))
	return k, ok && k.kind == of
}

// Free makes the number of a key invalid.
func (k *Key) Free() { keys.Remove(uintptr(k.number)) }

// SetProxies has proxies call a key's functions, right after the key was made, and reports whether there is such a key.
func SetProxies(number int32, copies, removes Function) bool {
	k, ok := keys.Get(uintptr(number))
	if ok {
		k.proxies = &proxies{copies, removes}
	}
	return ok
}

// isInteger is 1 for a value that Fortran set.
func (v value) isInteger() int32 {
	if v.integer != nil {
		return 1
	}
	return 0
}

// copy asks the key's function for the value of a copy of object.
func (v value) copy(object uintptr) (copied value, keep bool, code int32) {
	k, kept := v.key, uintptr(0)
	if p := k.proxies; p != nil {
		callbacks.Run(func() {
			code, keep, kept = CallCopyProxy(p.copy.Caller, p.copy.Function, k.Copy.Function, int32(k.kind), object, k.number, k.Extra, v.isInteger(), v.number())
		})
		return v.with(kept), keep, code
	}
	callbacks.Run(func() {
		code, keep, kept = CallCopy(k.Copy.Caller, k.Copy.Function, object, k.number, k.Extra, v.pointer())
	})
	if kept == v.pointer() { // the address of the old one's integer must not stay
		return v.with(v.number()), keep, code
	}
	return value{key: k, value: kept}, keep, code
}

// deleted tells the key's function that the value is deleted.
func (v value) deleted(object uintptr) (code int32) {
	k := v.key
	callbacks.Run(func() {
		if p := k.proxies; p != nil {
			code = CallDeleteProxy(p.remove.Caller, p.remove.Function, k.Remove.Function, int32(k.kind), object, k.number, v.isInteger(), v.number(), k.Extra)
		} else {
			code = CallDelete(k.Remove.Caller, k.Remove.Function, object, k.number, v.pointer(), k.Extra)
		}
	})
	return code
}
