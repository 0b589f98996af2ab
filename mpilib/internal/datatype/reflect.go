package datatype

import (
	"fmt"
	"reflect"
	"sync"
)

// derived caches the results of Of: an entry for each requested Go type of the program.
var derived sync.Map // reflect.Type -> *Type or error

// For returns the committed datatype of a Go type; see [Of]. It looks the type up on each call:
// keep the result where speed matters.
func For[T any]() (*Type, error) { return Of(reflect.TypeFor[T]()) }

// Of returns the committed datatype of a Go type that is plain data: a bool, a number, a complex
// number, or an array or struct of such. A struct's padding and its blank fields are not part of
// messages. Types that refer to the memory of one process are an error ([ErrGoType], with the
// field's name).
func Of(g reflect.Type) (*Type, error) {
	if v, ok := derived.Load(g); ok {
		if err, bad := v.(error); bad {
			return nil, err
		}
		return v.(*Type), nil
	}
	t, err := derive(g, g.String())
	if err != nil {
		err = fmt.Errorf("datatype: %w", err)
		derived.Store(g, err)
		return nil, err
	}
	t.Commit()
	v, _ := derived.LoadOrStore(g, t) // one for all, if two calls were concurrent
	return v.(*Type), nil
}

// goNumbers are the datatypes of Go's basic types. An int is 64 bits on the
// machines that Isthmus runs on.
var goNumbers = map[reflect.Kind]*Type{
	reflect.Bool: CBool,
	reflect.Int:  Int64, reflect.Int8: Int8, reflect.Int16: Int16, reflect.Int32: Int32, reflect.Int64: Int64,
	reflect.Uint: Uint64, reflect.Uint8: Uint8, reflect.Uint16: Uint16, reflect.Uint32: Uint32, reflect.Uint64: Uint64,
	reflect.Float32: Float, reflect.Float64: Double,
	reflect.Complex64: CFloatComplex, reflect.Complex128: CDoubleComplex,
}

// derive returns the datatype of g, which is found at path.
func derive(g reflect.Type, path string) (*Type, error) {
	if t := goNumbers[g.Kind()]; t != nil {
		return t, nil
	}
	switch g.Kind() {
	case reflect.Array:
		elem, err := derive(g.Elem(), path+"[]")
		if err != nil {
			return nil, err
		}
		return Contiguous(int64(g.Len()), elem)
	case reflect.Struct:
		return deriveStruct(g, path)
	}
	return nil, fmt.Errorf("%s (%v) refers to the memory of this process; send what is there instead: %w", path, g.Kind(), ErrGoType)
}

func deriveStruct(g reflect.Type, path string) (*Type, error) {
	var types []*Type
	var lengths, at []int64
	for i := range g.NumField() {
		f := g.Field(i)
		t, err := derive(f.Type, path+"."+f.Name)
		if err != nil {
			return nil, err
		}
		if f.Name == "_" {
			continue // a gap that the program cannot read
		}
		types, lengths, at = append(types, t), append(lengths, 1), append(at, int64(f.Offset))
	}
	t, err := Struct(lengths, at, types)
	if err != nil {
		return nil, err
	}
	// Go may pad more than MPI, for blank and empty fields at the end.
	return Resized(t, 0, int64(g.Size()))
}
