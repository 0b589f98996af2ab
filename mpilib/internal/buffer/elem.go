// Package buffer handles the program's memory that messages are taken from and put into: Go slices
// as they lie in memory, and Parts, which a datatype may describe in pieces. It copies between that
// memory and messages, compares types by their signatures, and detects whether two buffers share
// memory.
//
// It knows neither communicators nor the transport of messages. Its only state is a cache of
// properties of Go types.
package buffer

import (
	"fmt"
	"reflect"
	"sync"
	"unsafe"

	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// elemSizes caches the result for every type except those that Size names: its size, or an error.
var elemSizes sync.Map // reflect.Type -> int or error

// Size returns the size of a T in bytes, at least 1. It is called for each message:
// the usual types are recognized by one comparison, without reflection.
func Size[T any]() (int, error) {
	switch any((*T)(nil)).(type) {
	case *byte, *int, *float64, *float32, *int64, *int32, *uint64, *uint32,
		*int8, *int16, *uint16, *uint, *bool, *complex64, *complex128:
		return int(unsafe.Sizeof(*new(T))), nil
	}
	return sizeOf(reflect.TypeFor[T]())
}

func sizeOf(t reflect.Type) (int, error) {
	v, ok := elemSizes.Load(t)
	if !ok {
		v = judge(t)
		elemSizes.Store(t, v)
	}
	if err, bad := v.(error); bad {
		return 0, err
	}
	return v.(int), nil
}

func judge(t reflect.Type) any {
	if where := pointerIn(t); where != "" {
		return fmt.Errorf("mpilib: %w: %v: %s refers to this process's memory; send its contents", mpi.ErrType, t, where)
	}
	if t.Size() == 0 {
		return fmt.Errorf("mpilib: %w: %v has no bytes", mpi.ErrType, t)
	}
	return int(t.Size())
}

// pointerIn names the first part of t that is not plain data, or returns "".
func pointerIn(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return ""
	case reflect.Array:
		return pointerIn(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if where := pointerIn(f.Type); where != "" {
				return "field " + f.Name + ", " + where
			}
		}
		return ""
	}
	return "a " + t.Kind().String()
}

// View returns buf's memory as bytes, without copying.
func View[T any](buf []T) ([]byte, error) {
	size, err := Size[T]()
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(buf))), len(buf)*size), nil
}

// Typed is the inverse of View for memory that was a []T.
func Typed[T any](b []byte, size int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/size)
}

// Views is View for two slices of one type, whose elements have size bytes.
func Views[T any](send, recv []T) (s, r []byte, size int, err error) {
	if size, err = Size[T](); err != nil {
		return nil, nil, 0, err
	}
	s, _ = View(send)
	r, _ = View(recv)
	return s, r, size, nil
}

// Times converts counts of elements to counts of bytes. A product that overflows becomes negative,
// and is therefore refused.
func Times[T any](counts []int) []int {
	size, err := Size[T]()
	if err != nil {
		return nil // it is negative, and refused later
	}
	return TimesSize(counts, size)
}

// TimesSize is Times of elements of size bytes, which may be 0.
func TimesSize(counts []int, size int) []int {
	out := make([]int, len(counts))
	for i, n := range counts {
		if n < 0 || size > 0 && n > (1<<62)/size {
			out[i] = -1
			continue
		}
		out[i] = n * size
	}
	return out
}
