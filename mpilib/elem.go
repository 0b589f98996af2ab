package mpilib

import (
	"fmt"
	"reflect"
	"sync"
	"unsafe"
)

// Elem is an element of a buffer: a bool, a number, a complex number, or an
// array or struct of such. Strings, slices, maps, pointers and interfaces
// refer to memory of one process and are refused when a buffer of them is
// first used (ErrType). A struct's padding travels too.
type Elem interface{ any }

// elemSizes caches the verdict on every type seen but numbers: its size, or an error.
var elemSizes sync.Map // reflect.Type -> int or error

// elemSize returns the size of a T in bytes, at least 1.
func elemSize[T Elem]() (int, error) {
	t := reflect.TypeFor[T]()
	if k := t.Kind(); reflect.Bool <= k && k <= reflect.Complex128 && k != reflect.Uintptr {
		return int(unsafe.Sizeof(*new(T))), nil
	}
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
		return fmt.Errorf("mpilib: %w: %v: %s refers to this process's memory; send its contents", ErrType, t, where)
	}
	if t.Size() == 0 {
		return fmt.Errorf("mpilib: %w: %v has no bytes", ErrType, t)
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

// view returns buf's memory as bytes, without a copy.
func view[T Elem](buf []T) ([]byte, error) {
	size, err := elemSize[T]()
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(buf))), len(buf)*size), nil
}

// typed is the inverse of view for memory that was a []T.
func typed[T Elem](b []byte, size int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/size)
}
