package core

import "testing"

// selfRing returns a ring of this process alone, which is both of its neighbours.
func selfRing(t *testing.T) uintptr {
	t.Helper()
	joined()
	var ring uintptr
	one := int32(1)
	check(t, "CartCreate", CartCreate(commWorld, 1, address(&one), address(&one), 0, address(&ring)), success)
	check(t, "CommSetErrhandler", CommSetErrhandler(ring, errorsReturn), success)
	return ring
}

// What goes down arrives from above, in all forms.
func TestNeighborAlltoall(t *testing.T) {
	ring := selfRing(t)
	out, in := &[2]int32{1, 2}, &[2]int32{}
	var request uintptr
	arrived := func(what string) {
		t.Helper()
		if *in != [2]int32{2, 1} {
			t.Errorf("%s: received %v", what, *in)
		}
		*in = [2]int32{}
	}
	check(t, "NeighborAlltoall", NeighborAlltoall(address(out), 1, typeInt, address(in), 1, typeInt, ring), success)
	arrived("blocking")
	check(t, "IneighborAlltoall", IneighborAlltoall(address(out), 1, typeInt, address(in), 1, typeInt, ring, address(&request)), success)
	check(t, "Wait", Wait(address(&request), 0), success)
	arrived("nonblocking")
	check(t, "NeighborAlltoallInit", NeighborAlltoallInit(address(out), 1, typeInt, address(in), 1, typeInt, ring, infoNull, address(&request)), success)
	check(t, "Start", Start(address(&request)), success)
	check(t, "Wait", Wait(address(&request), 0), success)
	arrived("persistent")
	check(t, "RequestFree", RequestFree(address(&request)), success)
	check(t, "no info", NeighborAlltoallInit(address(out), 1, typeInt, address(in), 1, typeInt, ring, 99, address(&request)), errInfo)
	check(t, "CommFree", CommFree(address(&ring)), success)
}

// Blocks may have types of their own, and displacements be addresses (MPI_BOTTOM is 0).
func TestNeighborAlltoallw(t *testing.T) {
	ring := selfRing(t)
	a, b, in := int32(5), int32(6), &[4]int32{}
	counts, types := [2]int32{1, 1}, [2]uintptr{typeInt, typeInt}
	from, to := [2]uintptr{address(&a), address(&b)}, [2]int64{8, 0}
	check(t, "NeighborAlltoallw", NeighborAlltoallw(0, address(&counts), address(&from), address(&types), address(in), address(&counts), address(&to), address(&types), ring, 0), success)
	if *in != [4]int32{5, 0, 6, 0} {
		t.Errorf("received %v", *in)
	}
	wide, places := [2]int64{1, 1}, [2]int64{3, 1}
	check(t, "NeighborAllgatherv", NeighborAllgatherv(address(&b), 1, typeInt, address(in), address(&wide), address(&places), typeInt, ring, 1), success)
	if *in != [4]int32{5, 6, 6, 6} {
		t.Errorf("received %v", *in)
	}
	check(t, "CommFree", CommFree(address(&ring)), success)
}

// A communicator without a topology has no neighbours.
func TestNoNeighbours(t *testing.T) {
	joined()
	var x int32
	check(t, "NeighborAllgather", NeighborAllgather(address(&x), 1, typeInt, address(&x), 1, typeInt, commWorld), errTopology)
	check(t, "in place", NeighborAllgather(inPlace, 1, typeInt, address(&x), 1, typeInt, commWorld), errBuffer)
}
