package core

import (
	"testing"

	"github.com/isthmus-grid/isthmus/cabi/core/attributes"
)

// An integer that Fortran set is one for Fortran's functions, and C gets its address; what C set is its own address for both.
func TestFortranAttributes(t *testing.T) {
	joined()
	var number, flag int32
	var value, dup uintptr
	check(t, "CommCreateKeyval", CommCreateKeyval(attributes.CopyValue, 0, 0, 0, address(&number), 0), success)
	check(t, "FortranCommSetAttr", FortranCommSetAttr(commWorld, number, 1<<40+7, 1), success)
	if check(t, "CommGetAttr", CommGetAttr(commWorld, number, address(&value), address(&flag)), success); flag != 1 || load[int64](value) != 1<<40+7 {
		t.Errorf("C gets %d, %#x", flag, value)
	}
	check(t, "CommDup", CommDup(commWorld, address(&dup)), success)
	check(t, "FortranCommSetAttr", FortranCommSetAttr(commWorld, number, 1, 1), success)
	if check(t, "FortranCommGetAttr", FortranCommGetAttr(dup, number, address(&value), address(&flag), 1), success); flag != 1 || value != 1<<40+7 {
		t.Errorf("the copy has %d, %d", flag, value)
	}
	check(t, "CommFree", CommFree(address(&dup)), success)
	check(t, "CommSetAttr", CommSetAttr(commWorld, number, 99), success)
	if check(t, "FortranCommGetAttr", FortranCommGetAttr(commWorld, number, address(&value), address(&flag), 1), success); flag != 1 || value != 99 {
		t.Errorf("Fortran gets %d, %d of C's", flag, value)
	}
	check(t, "CommDeleteAttr", CommDeleteAttr(commWorld, number), success)
	if check(t, "FortranCommGetAttr", FortranCommGetAttr(commWorld, number, address(&value), address(&flag), 1), success); flag != 0 {
		t.Error("what was deleted is there")
	}
	if check(t, "FortranCommGetAttr", FortranCommGetAttr(commWorld, attributeHost, address(&value), address(&flag), 1), success); flag != 1 || int32(value) != procNull {
		t.Errorf("MPI_HOST is %d, %d", flag, value)
	}
	check(t, "a key of datatypes", FortranTypeSetAttr(typeInt, number, 1, 1), errKeyval)
	check(t, "CommFreeKeyval", CommFreeKeyval(address(&number)), success)
	check(t, "a proxy of no key", FortranKeyvalSetProxy(attributes.Invalid, 1, 2, 3, 4), errKeyval)
}

// Proxies are called with the key's own functions, the kind of the object, and whether the value is Fortran's.
func TestProxies(t *testing.T) {
	joined()
	type copying = func(uintptr, uintptr, uintptr, int32, uintptr, int32, uintptr, int32, uintptr) (int32, bool, uintptr)
	type deleting = func(uintptr, uintptr, uintptr, int32, uintptr, int32, int32, uintptr, uintptr) int32
	defer func(f copying, g deleting) { attributes.CallCopyProxy, attributes.CallDeleteProxy = f, g }(attributes.CallCopyProxy, attributes.CallDeleteProxy)
	var number, flag int32
	var d, dup, value, deleted uintptr
	attributes.CallCopyProxy = func(caller, proxy, function uintptr, kind int32, object uintptr, key int32, extra uintptr, integer int32, in uintptr) (int32, bool, uintptr) {
		if caller != 31 || proxy != 30 || function != 20 || kind != int32(attributes.OfTypes) || object != d || key != number || extra != 24 || integer != 1 {
			t.Errorf("copy is called with %d, %d, %d, %d, %#x, %d, %d, %d", caller, proxy, function, kind, object, key, extra, integer)
		}
		return success, true, in + 1
	}
	attributes.CallDeleteProxy = func(caller, proxy, function uintptr, kind int32, object uintptr, key int32, integer int32, value, extra uintptr) int32 {
		if caller != 33 || proxy != 32 || function != 22 || kind != int32(attributes.OfTypes) || key != number || extra != 24 || integer != 1 {
			t.Errorf("delete is called with %d, %d, %d, %d, %#x, %d, %d, %d", caller, proxy, function, kind, object, key, extra, integer)
		}
		deleted = value
		return success
	}
	check(t, "TypeCreateKeyval", TypeCreateKeyval(20, 21, 22, 23, address(&number), 24), success)
	check(t, "FortranKeyvalSetProxy", FortranKeyvalSetProxy(number, 30, 31, 32, 33), success)
	check(t, "TypeContiguous", TypeContiguous(2, typeInt, address(&d)), success)
	check(t, "FortranTypeSetAttr", FortranTypeSetAttr(d, number, 5, 1), success)
	check(t, "TypeDup", TypeDup(d, address(&dup)), success)
	if check(t, "FortranTypeGetAttr", FortranTypeGetAttr(dup, number, address(&value), address(&flag), 1), success); flag != 1 || value != 6 {
		t.Errorf("the copy has %d, %d", flag, value)
	}
	if check(t, "TypeFree", TypeFree(address(&dup)), success); deleted != 6 {
		t.Errorf("%d was deleted", deleted)
	}
	check(t, "TypeFree", TypeFree(address(&d)), success)
	check(t, "TypeFreeKeyval", TypeFreeKeyval(address(&number)), success)
}

// MPI-1's bounds of a type are those of TypeGetExtent.
func TestBounds(t *testing.T) {
	joined()
	var d uintptr
	var lb, ub, extent int64
	check(t, "TypeCreateResized", TypeCreateResized(typeInt, -4, 16, address(&d)), success)
	check(t, "TypeLb", TypeLb(d, address(&lb)), success)
	check(t, "TypeUb", TypeUb(d, address(&ub)), success)
	check(t, "TypeExtent", TypeExtent(d, address(&extent)), success)
	if lb != -4 || ub != 12 || extent != 16 {
		t.Errorf("from %d to %d, extent %d", lb, ub, extent)
	}
	check(t, "TypeUb of no type", TypeUb(datatypeNull, address(&ub)), errType)
	check(t, "TypeFree", TypeFree(address(&d)), success)
}
