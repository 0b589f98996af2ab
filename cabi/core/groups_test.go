package core

import "testing"

// Special ranks are translated both ways, and those of mpilib mean nothing to programs.
func TestTranslateRanks(t *testing.T) {
	joined()
	var g uintptr
	check(t, "CommGroup", CommGroup(commWorld, address(&g)), success)
	in, out := [3]int32{0, procNull, 0}, [3]int32{}
	check(t, "GroupTranslateRanks", GroupTranslateRanks(g, 3, address(&in), groupEmpty, address(&out)), success)
	if want := [3]int32{undefined, procNull, undefined}; out != want {
		t.Errorf("ranks %v are %v in the empty group, want %v", in, out, want)
	}
	for _, rank := range []int32{-1, -2, -4, 1} {
		in[0] = rank
		check(t, "GroupTranslateRanks of a rank that is not there", GroupTranslateRanks(g, 1, address(&in), g, address(&out)), errRank)
	}
	check(t, "GroupFree", GroupFree(address(&g)), success)
	if g != groupNull {
		t.Errorf("the handle is %#x", g)
	}
}

// A group without members has the handle of MPI_GROUP_EMPTY, which stays when it is freed.
func TestEmptyGroup(t *testing.T) {
	joined()
	var g, rest uintptr
	var n int32
	check(t, "CommGroup", CommGroup(commWorld, address(&g)), success)
	if check(t, "GroupDifference", GroupDifference(g, g, address(&rest)), success); rest != groupEmpty {
		t.Errorf("the handle is %#x", rest)
	}
	check(t, "GroupFree", GroupFree(address(&rest)), success)
	check(t, "GroupFree", GroupFree(address(&g)), success)
	if check(t, "GroupSize", GroupSize(groupEmpty, address(&n)), success); n != 0 {
		t.Errorf("%d members", n)
	}
	check(t, "GroupSize of no group", GroupSize(groupNull, address(&n)), errGroup)
}
