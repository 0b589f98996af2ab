package callbacks

import (
	"runtime/debug"
	"strings"
	"testing"
)

// A call of the program's takes the callbacks of others on its own thread, those that waited before it and those that it
// waits for itself.
func TestServe(t *testing.T) {
	defer func(f func() bool) { InProgram = f }(InProgram)
	InProgram = func() bool { return false }
	var stack string
	if got := Serve(func() int32 {
		Run(func() { stack = string(debug.Stack()) })
		return 7
	}); got != 7 {
		t.Errorf("the call returns %d", got)
	}
	if !strings.Contains(stack, "callbacks.Serve(") {
		t.Errorf("the callback ran elsewhere:\n%s", stack)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		Run(func() {})
	}()
	for waits := true; waits; {
		Serve(func() int32 { return 0 })
		select {
		case <-over:
			waits = false
		default:
		}
	}
}

// Calls are expected to make callbacks from their start until they are completed.
func TestExpected(t *testing.T) {
	for _, c := range []struct {
		does string
		f    func()
		want bool
	}{{"nothing", func() {}, false}, {"one", Started, true}, {"another", Started, true}, {"one's end", Completed, true}, {"the end of both", Completed, false}} {
		if c.f(); Expected() != c.want {
			t.Errorf("after %s: %v", c.does, !c.want)
		}
	}
}
