package replica

import (
	"fmt"
	"reflect"
	"unsafe"
)

// A cloner copies values with all that they refer to. What is referred to twice is copied once.
type cloner map[unsafe.Pointer]reflect.Value

func clone[T any](v *T) *T {
	return cloner{}.pointer(reflect.ValueOf(v)).Interface().(*T)
}

func (c cloner) pointer(v reflect.Value) reflect.Value {
	if v.IsNil() {
		return v
	}
	if known, ok := c[v.UnsafePointer()]; ok {
		return known
	}
	to := reflect.New(v.Type().Elem())
	c[v.UnsafePointer()] = to
	c.set(to.Elem(), v.Elem())
	return to
}

// set copies from to to, which can be addressed.
func (c cloner) set(to, from reflect.Value) {
	if !to.CanSet() { // a field that is not exported
		to = reflect.NewAt(to.Type(), unsafe.Pointer(to.UnsafeAddr())).Elem()
	}
	if from.CanAddr() {
		from = reflect.NewAt(from.Type(), unsafe.Pointer(from.UnsafeAddr())).Elem()
	}
	switch from.Kind() {
	case reflect.Pointer:
		to.Set(c.pointer(from))
	case reflect.Struct:
		if !from.CanAddr() { // its fields could not be read
			at := reflect.New(from.Type()).Elem()
			at.Set(from)
			from = at
		}
		for i := range from.NumField() {
			c.set(to.Field(i), from.Field(i))
		}
	case reflect.Slice:
		if from.IsNil() {
			return
		}
		to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			c.set(to.Index(i), from.Index(i))
		}
	case reflect.Map:
		if from.IsNil() {
			return
		}
		to.Set(reflect.MakeMap(from.Type()))
		for k, v := range from.Seq2() {
			e := reflect.New(v.Type()).Elem()
			c.set(e, v)
			to.SetMapIndex(k, e)
		}
	case reflect.Interface:
		if from.IsNil() {
			return
		}
		e := reflect.New(from.Elem().Type()).Elem()
		c.set(e, from.Elem())
		to.Set(e)
	default:
		to.Set(from)
	}
}

// deepHash adds v, with all that it refers to, to a hash. It must contain no cycle.
func deepHash(h uint64, v reflect.Value) uint64 {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return mix(h, 1)
		}
		return deepHash(mix(h, 2), v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			h = deepHash(h, v.Field(i))
		}
		return h
	case reflect.Slice, reflect.Array:
		h = mix(h, uint64(v.Len()))
		for i := range v.Len() {
			h = deepHash(h, v.Index(i))
		}
		return h
	case reflect.Map:
		sum := uint64(v.Len())
		for i := v.MapRange(); i.Next(); {
			sum += deepHash(deepHash(7, i.Key()), i.Value())
		}
		return mix(h, sum)
	case reflect.String:
		return mix(h, hashOf(v.String()))
	case reflect.Bool:
		if v.Bool() {
			return mix(h, 3)
		}
		return mix(h, 4)
	case reflect.Int, reflect.Int32, reflect.Int64:
		return mix(h, uint64(v.Int()))
	case reflect.Func: // that of a member's tree, always the same
		return h
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		return mix(h, v.Uint())
	}
	panic(fmt.Sprint("not hashed: ", v.Kind()))
}

func hashOf(s string) uint64 {
	h := uint64(len(s)) + 99
	for i := range len(s) {
		h = mix(h, uint64(s[i]))
	}
	return h
}
