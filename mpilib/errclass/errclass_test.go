package errclass

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// Errors have the class that the standard has for them, also wrapped, and the one that a program
// can act on if they wrap several.
func TestOf(t *testing.T) {
	for err, want := range map[error]Class{
		nil: 0, mpilib.ErrCount: 2, mpilib.ErrType: 3, mpilib.ErrTypeFreed: 3, mpilib.ErrTag: 4, mpilib.ErrFreed: 5,
		mpilib.ErrRank: 6, mpilib.ErrActive: 7, mpilib.ErrOp: 10, mpilib.ErrTopology: 11, mpilib.ErrDims: 12, mpilib.ErrArg: 13,
		mpilib.ErrTruncate: 15, context.Canceled: 16, mpilib.ErrFinalized: 16, mpilib.ErrConversion: 25, mpilib.ErrName: 38,
		mpilib.ErrMismatch: 40, mpilib.ErrPort: 43, mpilib.ErrService: 51, mpilib.ErrReplicated: 55,
		mpilib.ErrProcFailed: 101, mpilib.ErrProcFailedPending: 102, mpilib.ErrRevoked: 103,
		errors.Join(mpilib.ErrCount, mpilib.ErrProcFailed): 101,
	} {
		if got := Of(err); got != want {
			t.Errorf("%v has class %d, want %d", err, got, want)
		}
		if err != nil && Of(fmt.Errorf("a call: %w", err)) != want {
			t.Errorf("%v has another class if it is wrapped", err)
		}
		if text, ok := want.Text(); !ok || !strings.HasPrefix(text, "MPI") {
			t.Errorf("class %d: %q, %t", want, text, ok)
		}
	}
}

// Errors that calls return have these classes.
func TestOfCalls(t *testing.T) {
	mpilib.TestWorld(t, 1, func(ctx context.Context, c *mpilib.Comm) error {
		_, truncated := mpilib.Sendrecv(ctx, c, []int{1, 2}, 0, 0, []int{0}, 0, 0)
		for class, err := range map[Class]error{
			Rank: mpilib.Send(ctx, c, []int{1}, 7, 0), Tag: mpilib.Send(ctx, c, []int{1}, 0, -5), Type: mpilib.Send(ctx, c, []string{""}, 0, 0),
			Truncate: truncated, Count: mpilib.Allgather(ctx, c, []int{1}, make([]int, 2)),
		} {
			if Of(err) != class {
				return fmt.Errorf("%v has class %d, want %d", err, Of(err), class)
			}
		}
		return nil
	})
}

// Added classes and codes have numbers above LastCode, and texts.
func TestAdded(t *testing.T) {
	var a Added
	class := a.AddClass()
	code, err := a.AddCode(class)
	ours, err2 := a.AddCode(Truncate)
	if err != nil || err2 != nil || class != 16384 || code != 16385 || ours != 16386 || a.LastUsed() != 16386 {
		t.Fatal(class, code, ours, err, err2)
	}
	for code, want := range map[int]Class{int(class): class, code: class, ours: Truncate, 15: 15} {
		if got, err := a.Class(code); got != want || err != nil {
			t.Errorf("%d has class %d, %v; want %d", code, got, err, want)
		}
	}
	if err := a.SetText(code, "mine"); err != nil {
		t.Error(err)
	}
	for code, want := range map[int]string{code: "mine", ours: "", 15: "MPI_ERR_TRUNCATE: the message is longer than the receive buffer", 20: "error class 20"} {
		if got, err := a.Text(code); got != want || err != nil {
			t.Errorf("%d: %q, %v; want %q", code, got, err, want)
		}
	}
	_, noClass := a.AddCode(Class(code))
	_, noCode := a.Class(16387)
	_, noText := a.Text(-1)
	for _, err := range []error{noClass, noCode, noText, a.SetText(15, "x"), a.SetText(16387, "x")} {
		if !errors.Is(err, mpilib.ErrArg) {
			t.Error(err)
		}
	}
}

// A class can be removed when it has no codes, and what is removed is unknown; the greatest code falls with it.
func TestRemoved(t *testing.T) {
	var a Added
	class := a.AddClass()
	code, err := a.AddCode(class)
	if err := errors.Join(err, a.SetText(code, "mine")); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{a.RemoveClass(class), a.RemoveClass(Class(code)), a.RemoveCode(int(class)), a.RemoveCode(15), a.RemoveClass(15), a.RemoveText(int(class))} {
		if !errors.Is(err, mpilib.ErrArg) {
			t.Error(err)
		}
	}
	if err := errors.Join(a.RemoveText(code), a.RemoveCode(code)); err != nil || a.LastUsed() != int(class) {
		t.Errorf("%v; the greatest code is %d, want %d", err, a.LastUsed(), class)
	}
	if _, err := a.Class(code); !errors.Is(err, mpilib.ErrArg) {
		t.Errorf("a removed code: %v", err)
	}
	other := a.AddClass()
	if err := a.RemoveClass(class); err != nil || a.LastUsed() != int(other) {
		t.Errorf("%v; the greatest code is %d, want %d", err, a.LastUsed(), other)
	}
	if _, err := a.Class(int(class)); !errors.Is(err, mpilib.ErrArg) {
		t.Errorf("a removed class: %v", err)
	}
	if err := a.RemoveClass(other); err != nil || a.LastUsed() != int(LastCode) {
		t.Errorf("%v; the greatest code is %d, want %d", err, a.LastUsed(), LastCode)
	}
}
