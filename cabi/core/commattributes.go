package core

import (
	"unsafe"

	"github.com/isthmus-grid/isthmus/cabi/core/attributes"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// duplicated has mpilib's duplication of a communicator make the attributes of the duplicate: if a key's function fails on one
// process, the duplication fails on all. A communicator's value is what its handle names.
var duplicated = mpilib.NewKey(func(_ *mpilib.Comm, c *communicator) (*communicator, bool, error) {
	made := new(communicator)
	copies, err := c.attributes.Copies(c.handle)
	made.attributes.Fill(copies)
	return made, true, err
}, nil)

// The standard's attributes (MPI-5.0, section 9.1.2). There is no MPI_APPNUM and no MPI_UNIVERSE_SIZE: nobody says what they are.
const (
	attributeTagUB       = int32(501)
	attributeIO          = int32(502)
	attributeHost        = int32(503)
	attributeGlobal      = int32(504)
	attributeAppNum      = int32(505)
	attributeLastCode    = int32(506)
	attributeUniverse    = int32(507)
	predefinedAttributes = attributeUniverse - attributeTagUB + 1
)

// predefinedValues are their values, which programs get the addresses of: a variable of the package does not move.
var predefinedValues = [predefinedAttributes]int32{
	0:                                mpilib.MaxTag, // attributeTagUB
	attributeIO - attributeTagUB:     anySource,     // each process
	attributeHost - attributeTagUB:   procNull,      // none
	attributeGlobal - attributeTagUB: 0,             // each process has its own clock
}

// predefinedAttribute returns the address of the value of one of the standard's attributes, and whether there is one.
func predefinedAttribute(number int32) (address uintptr, ok bool) {
	value := &predefinedValues[number-attributeTagUB]
	switch number {
	case attributeAppNum, attributeUniverse:
		return 0, false
	case attributeLastCode:
		*value = int32(added.LastUsed())
	}
	return uintptr(unsafe.Pointer(value)), true
}

// isPredefined reports whether a key is one of the standard's.
func isPredefined(number int32) bool { return number >= attributeTagUB && number <= attributeUniverse }

// commKeyvalOf returns the key of a number.
func commKeyvalOf(number int32) (*attributes.Key, error) {
	if isPredefined(number) {
		return nil, failure(errKeyval, "the attribute of key %d is the standard's: it does not change", number)
	}
	k, ok := attributes.OfComms.Key(number)
	if !ok {
		return nil, failure(errKeyval, "%d is no key of communicators", number)
	}
	return k, nil
}

// createCommKeyval makes a key for attributes of communicators (MPI-5.0, section 7.7.2). The callers are the front-end's
// functions that call the program's.
func createCommKeyval(copyFunction, copier, deleteFunction, called, number, extra uintptr) int32 {
	return createKeyval(attributes.OfComms, copyFunction, copier, deleteFunction, called, number, extra)
}

func freeCommKeyval(call string, number uintptr) int32 {
	k, err := commKeyvalOf(load[int32](number))
	return freeKeyval(call, k, err, number)
}

// onCommKey makes a call with a communicator and a key.
func onCommKey(call string, comm uintptr, number int32, f func(c *communicator, k *attributes.Key) error) int32 {
	return onComm(call, comm, func(c *communicator) error {
		k, err := commKeyvalOf(number)
		if err != nil {
			return err
		}
		return f(c, k)
	})
}

func setCommAttr(call string, comm uintptr, number int32, value uintptr) int32 {
	return onCommKey(call, comm, number, func(c *communicator, k *attributes.Key) error {
		return c.attributes.Set(comm, k, value)
	})
}

func getCommAttr(call string, comm uintptr, number int32, value, flag uintptr) int32 {
	return onComm(call, comm, func(c *communicator) error {
		v, there := uintptr(0), false
		if isPredefined(number) {
			v, there = predefinedAttribute(number)
		} else if k, err := commKeyvalOf(number); err != nil {
			return err
		} else {
			v, there = c.attributes.Get(k)
		}
		store(flag, logicalOf(there))
		if there {
			store(value, v)
		}
		return nil
	})
}

func deleteCommAttr(call string, comm uintptr, number int32) int32 {
	return onCommKey(call, comm, number, func(c *communicator, k *attributes.Key) error { return c.attributes.Remove(comm, k) })
}

// CommCreateKeyval makes a key for attributes of communicators.
func CommCreateKeyval(copyFunction, copier, deleteFunction, called, number, extra uintptr) int32 {
	return createCommKeyval(copyFunction, copier, deleteFunction, called, number, extra)
}

// KeyvalCreate is CommCreateKeyval under its old name.
func KeyvalCreate(copyFunction, copier, deleteFunction, called, number, extra uintptr) int32 {
	return createCommKeyval(copyFunction, copier, deleteFunction, called, number, extra)
}

// CommFreeKeyval makes the number of a key invalid.
func CommFreeKeyval(number uintptr) int32 { return freeCommKeyval("MPI_Comm_free_keyval", number) }

// KeyvalFree is CommFreeKeyval under its old name.
func KeyvalFree(number uintptr) int32 { return freeCommKeyval("MPI_Keyval_free", number) }

// CommSetAttr caches a value with a communicator.
func CommSetAttr(comm uintptr, number int32, value uintptr) int32 {
	return setCommAttr("MPI_Comm_set_attr", comm, number, value)
}

// AttrPut is CommSetAttr under its old name.
func AttrPut(comm uintptr, number int32, value uintptr) int32 {
	return setCommAttr("MPI_Attr_put", comm, number, value)
}

// CommGetAttr returns it, if there is one.
func CommGetAttr(comm uintptr, number int32, value, flag uintptr) int32 {
	return getCommAttr("MPI_Comm_get_attr", comm, number, value, flag)
}

// AttrGet is CommGetAttr under its old name.
func AttrGet(comm uintptr, number int32, value, flag uintptr) int32 {
	return getCommAttr("MPI_Attr_get", comm, number, value, flag)
}

// CommDeleteAttr deletes it.
func CommDeleteAttr(comm uintptr, number int32) int32 {
	return deleteCommAttr("MPI_Comm_delete_attr", comm, number)
}

// AttrDelete is CommDeleteAttr under its old name.
func AttrDelete(comm uintptr, number int32) int32 {
	return deleteCommAttr("MPI_Attr_delete", comm, number)
}
