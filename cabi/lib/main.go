//go:build cabi && cgo && linux

// Command lib is libisthmus.so, the core as a shared library for C: exports.go, which is
// generated, has a function for each that package core has. This file is how the core calls C. It
// is compiled with the tag cabi only, so that nothing else needs a C compiler.
package main

// #cgo LDFLAGS: -Wl,--wrap=pthread_create
// #include "callback.h"
// #include "guest.h"
// #include "wide.h"
import "C"

import (
	"github.com/isthmus-grid/isthmus/cabi/core"
	"github.com/isthmus-grid/isthmus/cabi/core/attributes"
	"github.com/isthmus-grid/isthmus/cabi/core/callbacks"
	"github.com/isthmus-grid/isthmus/cabi/core/reductions"
)

func init() {
	core.Exit = func(status int) { C.isthmus_exit(C.int(status)) }
	core.Flush = func() { C.isthmus_flush() }
	callbacks.InProgram = func() bool { return C.isthmus_in_program() != 0 }
	core.Thread = func() uintptr { return uintptr(C.isthmus_thread()) }
	core.AllocateMemory = func(size, alignment uintptr) uintptr {
		return uintptr(C.isthmus_allocate(C.uintptr_t(size), C.uintptr_t(alignment)))
	}
	core.FreeMemory = func(address uintptr) { C.isthmus_free(C.uintptr_t(address)) }
	core.Changed = func(l core.Life) {
		C.isthmus_changed(C.int(l.Rank), C.struct_isthmus_life{member: C._Bool(l.Member), idle: C._Bool(l.Idle), initialized: C._Bool(l.Initialized), finalized: C._Bool(l.Finalized)})
	}
	reductions.CallUser = func(caller, function, in, inout uintptr, n int64, datatype uintptr) {
		C.isthmus_call_user(C.uintptr_t(caller), C.uintptr_t(function), C.uintptr_t(in), C.uintptr_t(inout), C.int64_t(n), C.uintptr_t(datatype))
	}
	core.CallGrequest = func(caller, function, extra, argument uintptr) int32 {
		return int32(C.isthmus_call_grequest(C.uintptr_t(caller), C.uintptr_t(function), C.uintptr_t(extra), C.uintptr_t(argument)))
	}
	core.CallErrhandler = func(caller, function, handle uintptr, code int32) {
		C.isthmus_call_errhandler(C.uintptr_t(caller), C.uintptr_t(function), C.uintptr_t(handle), C.int32_t(code))
	}
	attributes.CallCopy = func(caller, function, object uintptr, keyval int32, extra, value uintptr) (int32, bool, uintptr) {
		out := C.isthmus_call_copy_attr(C.uintptr_t(caller), C.uintptr_t(function), C.uintptr_t(object), C.int32_t(keyval), C.uintptr_t(extra), C.uintptr_t(value))
		return int32(out.code), out.keep != 0, uintptr(out.value)
	}
	attributes.CallDelete = func(caller, function, object uintptr, keyval int32, value, extra uintptr) int32 {
		return int32(C.isthmus_call_delete_attr(C.uintptr_t(caller), C.uintptr_t(function), C.uintptr_t(object), C.int32_t(keyval), C.uintptr_t(value), C.uintptr_t(extra)))
	}
	reductions.Wide = func(kind int32, op, inout, in uintptr, n int64) {
		C.isthmus_wide(C.int32_t(kind), C.uintptr_t(op), C.uintptr_t(inout), C.uintptr_t(in), C.int64_t(n))
	}
	attributes.CallCopyProxy = func(caller, proxy, function uintptr, kind int32, object uintptr, keyval int32, extra uintptr, integer int32, value uintptr) (int32, bool, uintptr) {
		out := C.isthmus_call_copy_proxy(C.uintptr_t(caller), C.uintptr_t(proxy), C.uintptr_t(function), C.int32_t(kind), C.uintptr_t(object), C.int32_t(keyval),
			C.uintptr_t(extra), C.int32_t(integer), C.uintptr_t(value))
		return int32(out.code), out.keep != 0, uintptr(out.value)
	}
	attributes.CallDeleteProxy = func(caller, proxy, function uintptr, kind int32, object uintptr, keyval int32, integer int32, value, extra uintptr) int32 {
		return int32(C.isthmus_call_delete_proxy(C.uintptr_t(caller), C.uintptr_t(proxy), C.uintptr_t(function), C.int32_t(kind), C.uintptr_t(object), C.int32_t(keyval),
			C.int32_t(integer), C.uintptr_t(value), C.uintptr_t(extra)))
	}
}

// isthmus_leave leaves the world of a process that is idle, when it ends.
//
//export isthmus_leave
func isthmus_leave() { core.Leave() }

func main() {} // of a shared library: never called
