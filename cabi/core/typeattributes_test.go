package core

import (
	"testing"

	"github.com/isthmus-grid/isthmus/cabi/core/attributes"
)

// Attributes of datatypes are copied and deleted by their keys' functions, whose errors the calls return.
func TestTypeAttributes(t *testing.T) {
	joined()
	defer func(f func(uintptr, uintptr, uintptr, int32, uintptr, uintptr) (int32, bool, uintptr)) {
		attributes.CallCopy = f
	}(attributes.CallCopy)
	defer func(f func(uintptr, uintptr, uintptr, int32, uintptr, uintptr) int32) { attributes.CallDelete = f }(attributes.CallDelete)
	var copyCode, deleteCode int32
	var number, flag int32
	var d, dup, value uintptr
	attributes.CallCopy = func(caller, function, object uintptr, key int32, extra, in uintptr) (int32, bool, uintptr) {
		if caller != 21 || function != 20 || object != d || key != number || extra != 24 {
			t.Errorf("copy is called with %d, %d, %#x, %d, %d", caller, function, object, key, extra)
		}
		return copyCode, in != 6, in + 1
	}
	attributes.CallDelete = func(caller, function, object uintptr, key int32, value, extra uintptr) int32 {
		if caller != 23 || function != 22 || key != number || extra != 24 {
			t.Errorf("delete is called with %d, %d, %#x, %d, %d", caller, function, object, key, extra)
		}
		return deleteCode
	}
	check(t, "TypeCreateKeyval", TypeCreateKeyval(20, 21, 22, 23, address(&number), 24), success)
	check(t, "TypeContiguous", TypeContiguous(2, typeInt, address(&d)), success)
	check(t, "TypeSetAttr", TypeSetAttr(d, number, 5), success)
	check(t, "TypeDup", TypeDup(d, address(&dup)), success)
	if check(t, "TypeGetAttr", TypeGetAttr(dup, number, address(&value), address(&flag)), success); flag != 1 || value != 6 {
		t.Errorf("the copy has %d, %d", flag, value)
	}
	copyCode = errArg
	check(t, "TypeDup whose copy fails", TypeDup(d, address(&dup)), errArg)
	deleteCode = errOther
	check(t, "TypeSetAttr whose delete fails", TypeSetAttr(d, number, 9), errOther)
	check(t, "TypeFree whose delete fails", TypeFree(address(&d)), errOther)
	if check(t, "TypeGetAttr", TypeGetAttr(d, number, address(&value), address(&flag)), success); flag != 1 || value != 5 {
		t.Errorf("what could not be deleted is %d, %d", flag, value)
	}
	deleteCode = success
	check(t, "TypeFree", TypeFree(address(&d)), success)
	check(t, "TypeDeleteAttr", TypeDeleteAttr(dup, number), success)
	if check(t, "TypeGetAttr", TypeGetAttr(dup, number, address(&value), address(&flag)), success); flag != 0 {
		t.Error("what was deleted is there")
	}
	check(t, "TypeFree", TypeFree(address(&dup)), success)
	old := number
	check(t, "TypeFreeKeyval", TypeFreeKeyval(address(&number)), success)
	check(t, "a key that was freed", TypeSetAttr(typeInt, old, 1), errKeyval)
	if number != attributes.Invalid {
		t.Errorf("the key is %d", number)
	}
}

// Attributes of communicators are copied with the handle of the old one and deleted with that of the new one; the standard's
// cannot be changed.
func TestCommAttributes(t *testing.T) {
	joined()
	defer func(f func(uintptr, uintptr, uintptr, int32, uintptr, uintptr) (int32, bool, uintptr)) {
		attributes.CallCopy = f
	}(attributes.CallCopy)
	defer func(f func(uintptr, uintptr, uintptr, int32, uintptr, uintptr) int32) { attributes.CallDelete = f }(attributes.CallDelete)
	var number, flag int32
	var dup, value, deleted uintptr
	attributes.CallCopy = func(_, _, object uintptr, key int32, _, in uintptr) (int32, bool, uintptr) {
		if object != commWorld || key != number {
			t.Errorf("copy is called with %#x, %d", object, key)
		}
		return success, true, in + 1
	}
	attributes.CallDelete = func(_, _, object uintptr, _ int32, _, _ uintptr) int32 {
		deleted = object
		return success
	}
	check(t, "CommCreateKeyval", CommCreateKeyval(20, 21, 22, 23, address(&number), 24), success)
	check(t, "CommSetAttr", CommSetAttr(commWorld, number, 5), success)
	check(t, "CommDup", CommDup(commWorld, address(&dup)), success)
	if check(t, "CommGetAttr", CommGetAttr(dup, number, address(&value), address(&flag)), success); flag != 1 || value != 6 {
		t.Errorf("the copy has %d, %d", flag, value)
	}
	handle := dup
	if check(t, "CommFree", CommFree(address(&dup)), success); deleted != handle {
		t.Errorf("deleted from %#x, not %#x", deleted, handle)
	}
	check(t, "CommDeleteAttr", CommDeleteAttr(commWorld, number), success)
	check(t, "CommSetAttr of the standard's", CommSetAttr(commWorld, attributeTagUB, 5), errKeyval)
	if check(t, "CommGetAttr of the standard's", CommGetAttr(commWorld, attributeHost, address(&value), address(&flag)), success); flag != 1 || load[int32](value) != procNull {
		t.Errorf("MPI_HOST has %d", flag)
	}
	check(t, "CommFreeKeyval", CommFreeKeyval(address(&number)), success)
}
