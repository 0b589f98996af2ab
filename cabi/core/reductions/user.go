package reductions

import (
	"runtime"
	"unsafe"

	"github.com/isthmus-grid/isthmus/cabi/core/callbacks"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// CallUser calls a reduction of the program's by the front-end's function caller: on n elements of
// datatype at in and inout. The library around package core sets it.
var CallUser = func(caller, function, in, inout uintptr, n int64, datatype uintptr) {
	panic("cabi/core/reductions: no C to call")
}

// User is an operation of the program's: a function, and the front-end's that calls it.
type User struct {
	Function, Caller uintptr
	Commutative      bool
}

// On returns the operation on elements of a datatype, whose handle the function gets.
func (u *User) On(datatype uintptr) mpilib.Reduction {
	return mpilib.NewReduction("operation", u.Commutative, func(inout, in []byte, origin, count int) error {
		at := func(memory []byte) uintptr {
			return uintptr(unsafe.Pointer(unsafe.SliceData(memory))) + uintptr(origin)
		}
		if count > 0 {
			callbacks.Run(func() { CallUser(u.Caller, u.Function, at(in), at(inout), int64(count), datatype) })
		}
		runtime.KeepAlive(in)
		runtime.KeepAlive(inout)
		return nil
	})
}
