//go:build cabi && cgo && linux

package main

// #include "pmix.h"
// #include <stdlib.h>
import "C"

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/isthmus-grid/isthmus/cabi/core"
	"github.com/isthmus-grid/isthmus/mpilib"
)

func init() { core.OpenPMIx = openPMIx }

// errPMIx is the error of the launcher's server, or of the client library.
var errPMIx = errors.New("PMIx, by which this process was started")

// pmix is the process's connection to the launcher that has started it by PMIx. Its calls are made on Go's threads, so that the library's
// own inherit their mask: the program's signals stay with the program's.
type pmix struct{}

func openPMIx(ctx context.Context) (mpilib.ProcessManager, error) {
	return pmix{}, within(ctx, "PMIx_Init", func() *C.char { return C.isthmus_pmix_open() })
}

// within calls a function of the library's. One that does not return is left behind when ctx ends.
func within(ctx context.Context, name string, call func() *C.char) error {
	returned := make(chan error, 1)
	go func() {
		var err error
		if wrong := call(); wrong != nil {
			err = fmt.Errorf("%w: %s: %s", errPMIx, name, C.GoString(wrong))
		}
		returned <- err
	}()
	select {
	case err := <-returned:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %s: %w", errPMIx, name, context.Cause(ctx))
	}
}

// seconds is how long the library is to wait, which then says itself what is wrong. 0 is for ever.
func seconds(ctx context.Context) C.int {
	end, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return C.int(max(1, time.Until(end)/time.Second-1))
}

func (pmix) Put(ctx context.Context, name, text string) error {
	return within(ctx, "PMIx_Put of "+name, func() *C.char {
		n, t := C.CString(name), C.CString(text)
		defer C.free(unsafe.Pointer(n))
		defer C.free(unsafe.Pointer(t))
		return C.isthmus_pmix_put(n, t)
	})
}

func (pmix) Get(ctx context.Context, name string, rank int) (string, error) {
	var text string // read after within has returned without an error, and so after the call
	wait := seconds(ctx)
	err := within(ctx, fmt.Sprintf("PMIx_Get of %s of rank %d", name, rank), func() *C.char {
		const room = 1024 // as PMI-1 has
		n, t := C.CString(name), (*C.char)(C.malloc(room))
		defer C.free(unsafe.Pointer(n))
		defer C.free(unsafe.Pointer(t))
		wrong := C.isthmus_pmix_get(n, C.uint32_t(rank), wait, t, room)
		if wrong == nil {
			text = C.GoString(t)
		}
		return wrong
	})
	if err != nil {
		return "", err
	}
	return text, nil
}

func (pmix) Barrier(ctx context.Context) error {
	wait := seconds(ctx)
	return within(ctx, "PMIx_Fence", func() *C.char { return C.isthmus_pmix_fence(wait) })
}

func (pmix) Abort(status int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return within(ctx, "PMIx_Abort", func() *C.char { return C.isthmus_pmix_abort(C.int(status)) })
}

func (pmix) Close(ctx context.Context) error {
	return within(ctx, "PMIx_Finalize", func() *C.char { return C.isthmus_pmix_close() })
}
