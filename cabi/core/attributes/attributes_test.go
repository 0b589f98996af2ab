package attributes

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"github.com/isthmus-grid/isthmus/cabi/api"
)

// The numbers of no key, and of functions that are none, are the standard's.
func TestConstants(t *testing.T) {
	values := map[string]string{}
	for _, c := range api.Constants() {
		values[c.Name] = c.Value
	}
	if got := values["MPI_KEYVAL_INVALID"]; got != fmt.Sprint(Invalid) {
		t.Errorf("MPI_KEYVAL_INVALID is %s", got)
	}
}

// functions has the program's functions for the time of a test: what is deleted, and with which codes they return.
type functions struct {
	deleted          []uintptr
	copying, deletes int32
}

func watched(t *testing.T) *functions {
	var f functions
	copies, removes := CallCopy, CallDelete
	t.Cleanup(func() { CallCopy, CallDelete = copies, removes })
	CallCopy = func(caller, function, object uintptr, _ int32, extra, value uintptr) (int32, bool, uintptr) {
		if caller != 21 || function != 20 || object != 1 || extra != 24 {
			t.Errorf("copy is called with %d, %d, %d, %d", caller, function, object, extra)
		}
		return f.copying, value != 6, value + 1
	}
	CallDelete = func(caller, function, object uintptr, _ int32, value, extra uintptr) int32 {
		if caller != 23 || function != 22 || object != 1 || extra != 24 {
			t.Errorf("delete is called with %d, %d, %d, %d", caller, function, object, extra)
		}
		if f.deletes == 0 {
			f.deleted = append(f.deleted, value)
		}
		return f.deletes
	}
	return &f
}

// newKey returns a key with functions of the program's.
func newKey() *Key {
	k := &Key{Copy: Function{20, 21}, Remove: Function{22, 23}, Extra: 24}
	OfTypes.Create(k)
	return k
}

// class returns the class of an error, 0 if it has none.
func class(err error) int32 {
	if r := (*Refusal)(nil); errors.As(err, &r) {
		return r.Class()
	}
	return 0
}

// A number is the key of one kind of objects, until it is freed.
func TestKeys(t *testing.T) {
	var k Key
	number := OfTypes.Create(&k)
	if found, ok := OfTypes.Key(number); !ok || found != &k {
		t.Error("the key is not there")
	}
	if _, ok := OfComms.Key(number); ok {
		t.Error("a key of types is one of communicators")
	}
	k.Free()
	if _, ok := OfTypes.Key(number); ok || SetProxies(number, Function{}, Function{}) {
		t.Error("a key that was freed is there")
	}
}

// Values are replaced after the old one was deleted, and deleted the last one first. What a function refuses stays.
func TestCache(t *testing.T) {
	f := watched(t)
	a, b := newKey(), newKey()
	var c Cache
	for _, err := range []error{c.Set(1, a, 5), c.Set(1, b, 7), c.Set(1, b, 8)} {
		if err != nil {
			t.Error(err)
		}
	}
	f.deletes = 16
	if err := c.Set(1, a, 9); class(err) != 16 {
		t.Errorf("a value that cannot be deleted is replaced: %v", err)
	}
	if err := c.RemoveAll(1); class(err) != 16 {
		t.Errorf("all are deleted: %v", err)
	}
	if v, ok := c.Get(a); !ok || v != 5 {
		t.Errorf("the value is %d, %v", v, ok)
	}
	f.deletes = 0
	if err := c.RemoveAll(1); err != nil || !slices.Equal(f.deleted, []uintptr{7, 8, 5}) {
		t.Errorf("deleted are %v, %v", f.deleted, err)
	}
	if _, ok := c.Get(b); ok {
		t.Error("what was deleted is there")
	}
}

// A copy has the values that the functions of their keys return, those of keys that say so as they are, and no others.
func TestCopies(t *testing.T) {
	f := watched(t)
	given, same, none, left := newKey(), &Key{Copy: Function{Function: CopyValue}}, &Key{Copy: Function{Function: NoCopy}}, newKey()
	var old, made Cache
	for k, v := range map[*Key]uintptr{given: 5, same: 6, none: 7, left: 6} {
		if err := old.Set(1, k, v); err != nil {
			t.Error(err)
		}
	}
	values, err := old.Copies(1)
	made.Fill(values)
	if err != nil || len(values) != 2 {
		t.Errorf("%d values, %v", len(values), err)
	}
	for k, want := range map[*Key]uintptr{given: 6, same: 6} {
		if v, ok := made.Get(k); !ok || v != want {
			t.Errorf("the copy has %d, %v; want %d", v, ok, want)
		}
	}
	f.copying = 13
	if _, err := old.Copies(1); class(err) != 13 {
		t.Errorf("a function refuses, and the error is %v", err)
	}
}

// at is the integer at an address that a cache returned.
func at(c *Cache, k *Key) *uintptr {
	v, _ := c.find(k)
	return v.integer
}

// An integer that Fortran set is one for Fortran, and C gets its address, in a copy that of the copy's, also where a function of
// C's hands on the old one's. What C set is its own address for both.
func TestIntegers(t *testing.T) {
	f := watched(t)
	CallCopy = func(_, _, _ uintptr, _ int32, _, in uintptr) (int32, bool, uintptr) { return f.copying, true, in }
	k := newKey()
	var old, made Cache
	old.SetInteger(1, k, 1<<40+7)
	values, err := old.Copies(1)
	made.Fill(values)
	v, ok := made.Get(k)
	if err != nil || !ok || v != uintptr(unsafe.Pointer(at(&made, k))) || at(&made, k) == at(&old, k) {
		t.Errorf("C gets %#x, %v, %v", v, ok, err)
	}
	if n, ok := made.GetInteger(k); !ok || n != 1<<40+7 {
		t.Errorf("Fortran gets %d, %v", n, ok)
	}
	same := &Key{Copy: Function{Function: CopyValue}}
	old.SetInteger(1, same, 8)
	values, err = old.Copies(1)
	if made.Fill(values); err != nil || at(&made, same) == at(&old, same) || *at(&made, same) != 8 {
		t.Errorf("a value that is copied as it is: %v", err)
	}
	made.Set(1, k, 99)
	if n, ok := made.GetInteger(k); !ok || n != 99 {
		t.Errorf("Fortran gets %d, %v of C's", n, ok)
	}
}

// Proxies are called instead, with the key's own functions, the kind of the object, and whether the value is Fortran's.
func TestProxies(t *testing.T) {
	type copying = func(uintptr, uintptr, uintptr, int32, uintptr, int32, uintptr, int32, uintptr) (int32, bool, uintptr)
	type deleting = func(uintptr, uintptr, uintptr, int32, uintptr, int32, int32, uintptr, uintptr) int32
	defer func(f copying, g deleting) { CallCopyProxy, CallDeleteProxy = f, g }(CallCopyProxy, CallDeleteProxy)
	k := newKey()
	if !SetProxies(k.number, Function{30, 31}, Function{32, 33}) {
		t.Fatal("there is no such key")
	}
	CallCopyProxy = func(caller, proxy, function uintptr, kind int32, object uintptr, key int32, extra uintptr, integer int32, in uintptr) (int32, bool, uintptr) {
		if caller != 31 || proxy != 30 || function != 20 || kind != int32(OfTypes) || object != 1 || key != k.number || extra != 24 || integer != 1 {
			t.Errorf("copy is called with %d, %d, %d, %d, %#x, %d, %d, %d", caller, proxy, function, kind, object, key, extra, integer)
		}
		return 0, true, in + 1
	}
	var deleted uintptr
	CallDeleteProxy = func(caller, proxy, function uintptr, kind int32, object uintptr, key int32, integer int32, value, extra uintptr) int32 {
		if caller != 33 || proxy != 32 || function != 22 || kind != int32(OfTypes) || object != 2 || key != k.number || extra != 24 || integer != 1 {
			t.Errorf("delete is called with %d, %d, %d, %d, %#x, %d, %d, %d", caller, proxy, function, kind, object, key, extra, integer)
		}
		deleted = value
		return 0
	}
	var old, made Cache
	old.SetInteger(1, k, 5)
	values, err := old.Copies(1)
	made.Fill(values)
	if n, ok := made.GetInteger(k); err != nil || !ok || n != 6 {
		t.Errorf("the copy has %d, %v, %v", n, ok, err)
	}
	if err := made.RemoveAll(2); err != nil || deleted != 6 {
		t.Errorf("%d was deleted, %v", deleted, err)
	}
}
