package datatypes

import (
	"slices"
	"testing"
)

// A precision is that of the smallest type that has it, each question has one answer, and that tells the question.
func TestPrecise(t *testing.T) {
	for a, want := range map[Precise]string{
		{PreciseReal, 6, 37}: "MPI_REAL4", {PreciseReal, 7, undefined}: "MPI_REAL8", {PreciseReal, undefined, 308}: "MPI_LONG_DOUBLE", {PreciseReal, 33, 0}: "MPI_REAL16",
		{PreciseComplex, 15, 307}: "MPI_COMPLEX16", {PreciseInteger, undefined, 5}: "MPI_INTEGER4", {PreciseInteger, undefined, 38}: "MPI_INTEGER16",
		{PreciseReal, 34, 0}: "", {PreciseReal, undefined, undefined}: "", {PreciseReal, -1, 5}: "", {PreciseReal, 5, -1}: "", {PreciseInteger, undefined, 39}: "",
	} {
		handle, ok := a.Find()
		if !ok || want == "" {
			if ok || want != "" {
				t.Errorf("%+v is %#x, %v, want %s", a, handle, ok, want)
			}
			continue
		}
		like := named(t, want)
		d, ok := Get(handle)
		if !ok || d == like || d.Datatype != like.Datatype || (d.Reduce == nil) != (like.Reduce == nil) || !d.IsPredefined() || d.Name() != "" {
			t.Errorf("%+v is %+v, want one like %s", a, d, want)
		}
		if again, _ := a.Find(); again != handle {
			t.Errorf("%+v is %#x, and then %#x", a, handle, again)
		}
		args, err := d.Arguments()
		if e := d.Envelope(); err != nil || e.Combiner != values()[a.Combiner] || e.Integers != len(args.Integers) || !slices.Equal(args.Integers, a.integers()) {
			t.Errorf("%+v was made by %+v of %+v, %v", a, e, args, err)
		}
	}
}

// Types with a size are found by it.
func TestMatch(t *testing.T) {
	for at, name := range matching {
		handle, ok := Match(at[0], at[1])
		d, there := Get(handle)
		if !ok || !there || d.Name() != name || d.Datatype.Size() != int(at[1]) {
			t.Errorf("%v is %#x, %v", at, handle, ok)
		}
	}
	if handle, ok := Match(ClassReal, 3); ok {
		t.Errorf("a real of 3 bytes is %#x", handle)
	}
}

// Pairs are found by what they have.
func TestPairOf(t *testing.T) {
	for parts, name := range pairs {
		if handle, ok := PairOf(named(t, parts[0]), named(t, parts[1])); !ok || handle != Named(name) {
			t.Errorf("the pair of %v is %#x, %v", parts, handle, ok)
		}
	}
	if handle, ok := PairOf(named(t, "MPI_INT"), named(t, "MPI_DOUBLE")); ok {
		t.Errorf("an int and a double are %#x", handle)
	}
}
