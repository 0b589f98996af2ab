package debug

import (
	"runtime"
	"testing"
)

// TestReturnAddresses compares the addresses with the runtime's, which knows the frames by another way.
func TestReturnAddresses(t *testing.T) {
	done := make(chan [2][]uintptr, 1)
	go func() { done <- nested(20) }()
	all := <-done
	own, want := all[0], all[1]
	if len(want) < 20 {
		t.Fatalf("the runtime knows %d frames", len(want))
	}
	for _, pc := range want { // own has more where the compiler put wrappers between
		for len(own) > 0 && own[0] != pc {
			own = own[1:]
		}
	}
	if len(own) == 0 {
		t.Errorf("%x lacks some of %x", all[0], want)
	}
	short := make([]uintptr, 3)
	if n := returnAddresses(short); n != len(short) {
		t.Errorf("%d addresses, want %d", n, len(short))
	}
}

//go:noinline
func nested(depth int) (all [2][]uintptr) {
	if depth > 0 {
		return nested(depth - 1)
	}
	for i := range all {
		all[i] = make([]uintptr, 2*callDepth)
	}
	n := runtime.Callers(2, all[1])
	all[1] = all[1][:n-1] // without the end of the goroutine
	all[0] = all[0][:returnAddresses(all[0])]
	return all
}
