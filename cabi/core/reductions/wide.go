package reductions

import (
	"runtime"
	"slices"
	"unsafe"
)

// Wide applies an operation to n elements of a type that Go has no arithmetic for: inout[i] = in[i] op inout[i]. The memory need not
// be aligned. The library around package core sets it.
var Wide = func(kind int32, op, inout, in uintptr, n int64) {
	panic("cabi/core/reductions: no C to call")
}

// Kinds of such types, with 16 bytes for a number.
const (
	wideReal    = int32(iota) // long double
	wideComplex               // two of them
	widePair                  // one, and an int
	quadReal                  // IEEE's binary128
	quadComplex               // two of them
	wideInteger               // 128 bits
	wideLogical               // an integer
)

// The memory of an element of such a type.
type (
	wideNumber [16]byte
	widePaired [32]byte
)

// wide makes a reducer of some operations on a kind.
func wide[T any](kind int32, operations ...[]uintptr) Reducer {
	has := slices.Concat(operations...)
	return predefined(func(op uintptr) kernel[T] {
		if !slices.Contains(has, op) {
			return nil
		}
		return func(inout, in []T) {
			at := func(memory []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(memory))) }
			Wide(kind, op, at(inout), at(in), int64(len(in)))
			runtime.KeepAlive(inout)
			runtime.KeepAlive(in)
		}
	})
}

// Operations by what they need.
var (
	sums     = []uintptr{Sum, Prod}
	leasts   = []uintptr{Min, Max}
	bitwise  = []uintptr{BAnd, BOr, BXor}
	logicals = []uintptr{LAnd, LOr, LXor}
	searches = []uintptr{MinLoc, MaxLoc}
)
