package core

import "testing"

// The library is told of each change.
func TestChanged(t *testing.T) {
	joined()
	defer func(f func(Life)) { Changed = f }(Changed)
	var told []Life
	Changed = func(l Life) { told = append(told, l) }
	var session uintptr
	check(t, "SessionInit", SessionInit(infoNull, errorsReturn, address(&session)), success)
	check(t, "SessionFinalize", SessionFinalize(address(&session)), success)
	Leave() // does nothing while the World Model runs
	if want := (Life{Member: true, Initialized: true}); len(told) != 2 || told[0] != want || told[1] != want {
		t.Errorf("told %+v, want %+v twice", told, want)
	}
	check(t, "Barrier", Barrier(commWorld), success)
}
