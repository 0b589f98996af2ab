package core

import "testing"

// A grid of one process: its getters write as much as there is room for, and a room that is too small
// is an error that writes nothing.
func TestCartRooms(t *testing.T) {
	joined()
	var grid uintptr
	dims, periods := [3]int32{1, 1, 9}, [3]int32{0, 3, 9}
	check(t, "CartCreate", CartCreate(commWorld, 2, address(&dims), address(&periods), 1, address(&grid)), success)
	check(t, "CommSetErrhandler", CommSetErrhandler(grid, errorsReturn), success)
	sizes, rings, coords := [3]int32{7, 7, 7}, [3]int32{7, 7, 7}, [3]int32{7, 7, 7}
	for _, room := range []int32{-1, 1} {
		check(t, "CartGet", CartGet(grid, room, address(&sizes), address(&rings), address(&coords)), errArg)
		check(t, "CartCoords", CartCoords(grid, 0, room, address(&coords)), errArg)
	}
	if sizes[0] != 7 || rings[0] != 7 || coords[0] != 7 {
		t.Errorf("an error writes %v, %v, %v", sizes, rings, coords)
	}
	check(t, "CartGet", CartGet(grid, 3, address(&sizes), address(&rings), address(&coords)), success)
	if sizes != [3]int32{1, 1, 7} || rings != [3]int32{0, 1, 7} || coords != [3]int32{0, 0, 7} {
		t.Errorf("the grid is %v, %v, %v", sizes, rings, coords)
	}
	check(t, "CartGet to address 0", CartGet(grid, 2, 0, 0, 0), errArg)
	check(t, "CartRank of address 0", CartRank(grid, 0, address(&coords)), errArg)
	check(t, "CommFree", CommFree(address(&grid)), success)
}

// A process that a grid leaves out gets no communicator, and MPI_UNDEFINED for its rank there.
func TestMapped(t *testing.T) {
	var rank int32
	if err := mapped(nil, nil, address(&rank)); err != nil || rank != undefined {
		t.Errorf("left out: rank %d, %v", rank, err)
	}
	if err := mapped(nil, failure(errDims, "no grid"), address(&rank)); classOf(err) != errDims {
		t.Errorf("error %v", err)
	}
}
