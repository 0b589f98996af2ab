package core

import (
	"testing"

	"github.com/isthmus-grid/isthmus/cabi/core/handles"
)

// The handle of a duplicate that is waited for names nothing until the request is complete.
func TestIdup(t *testing.T) {
	joined()
	handle := comms.Add(new(communicator)) // as while it is being made
	var n, rank int32
	check(t, "CommSize of what is being made", CommSize(handle, address(&n)), errComm)
	comms.Remove(handle)
	var made, request uintptr
	check(t, "CommIdup", CommIdup(commWorld, address(&made), address(&request)), success)
	check(t, "Wait", Wait(address(&request), 0), success)
	check(t, "CommRank", CommRank(made, address(&rank)), success)
	check(t, "CommFree", CommFree(address(&made)), success)
	if request != requestNull || made != commNull {
		t.Errorf("request %#x, communicator %#x", request, made)
	}
	check(t, "CommIdupWithInfo with no info", CommIdupWithInfo(commWorld, 0x139, address(&made), address(&request)), errInfo)
}

// Groups of which a member is not in the communicator are groups' errors, whatever mpilib calls them.
func TestCommCreateErrors(t *testing.T) {
	joined()
	var g, made uintptr
	check(t, "CommGroup", CommGroup(commWorld, address(&g)), success)
	check(t, "CommCreate of no group", CommCreate(commWorld, groupNull, address(&made)), errGroup)
	check(t, "CommCreateGroup of no group", CommCreateGroup(commWorld, groupNull, 0, address(&made)), errGroup)
	check(t, "CommCreateGroup with tag -1", CommCreateGroup(commWorld, g, -1, address(&made)), errTag)
	tag := [...]byte{'t', 0}
	check(t, "IntercommCreateFromGroups of one process", IntercommCreateFromGroups(g, 0, g, 0, address(&tag[0]), infoNull, errorsReturn, address(&made)), errGroup)
	check(t, "CommCreateFromGroup without a tag", CommCreateFromGroup(g, 0, infoNull, errorsReturn, address(&made)), errArg)
	check(t, "CommCreateFromGroup without a handler", CommCreateFromGroup(g, address(&tag[0]), infoNull, errhandlerNull, address(&made)), errHandler)
	if check(t, "CommCreate", CommCreate(commWorld, g, address(&made)), success); made < handles.First {
		t.Errorf("the handle is %#x", made)
	}
	check(t, "CommFree", CommFree(address(&made)), success)
	check(t, "GroupFree", GroupFree(address(&g)), success)
}
