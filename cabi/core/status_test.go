package core

import "testing"

// What is set of a status is returned, and other fields stay.
func TestStatusFields(t *testing.T) {
	joined()
	st := &status{source: 1, tag: 2, err: 3, low: 4}
	at := address(st)
	var source, tag, code, cancelled int32
	check(t, "StatusSetSource", StatusSetSource(at, anySource), success)
	check(t, "StatusSetTag", StatusSetTag(at, 7), success)
	check(t, "StatusSetError", StatusSetError(at, errTruncate), success)
	check(t, "StatusSetCancelled", StatusSetCancelled(at, 5), success)
	check(t, "StatusGetSource", StatusGetSource(at, address(&source)), success)
	check(t, "StatusGetTag", StatusGetTag(at, address(&tag)), success)
	check(t, "StatusGetError", StatusGetError(at, address(&code)), success)
	check(t, "TestCancelled", TestCancelled(at, address(&cancelled)), success)
	if source != anySource || tag != 7 || code != errTruncate || cancelled != 1 {
		t.Errorf("source %d, tag %d, error %d, cancelled %d", source, tag, code, cancelled)
	}
	if want := (status{source: anySource, tag: 7, err: errTruncate, cancelled: 1, low: 4}); *st != want {
		t.Errorf("%+v, want %+v", *st, want)
	}
	check(t, "setting MPI_STATUS_IGNORE", StatusSetTag(0, 1), errArg)
	check(t, "asking MPI_STATUS_IGNORE", StatusGetError(0, address(&code)), errArg)
	check(t, "elements of MPI_STATUS_IGNORE", StatusSetElements(0, typeInt, 1), errArg)
}
