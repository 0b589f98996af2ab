package core

import "testing"

// Handles are given once at a time, above the constants, and are used again when they are free.
func TestObjects(t *testing.T) {
	var o objects[string]
	o.put(commWorld, "world")
	a, b := o.add("a"), o.add("b")
	if a != firstDynamic || b != firstDynamic+1 {
		t.Errorf("handles %#x, %#x", a, b)
	}
	o.remove(a)
	o.remove(a) // a second time: nothing
	o.remove(commWorld)
	if _, ok := o.get(a); ok {
		t.Error("a handle that was removed is valid")
	}
	if c, d := o.add("c"), o.add("d"); c != a || d != b+1 {
		t.Errorf("handles %#x, %#x after one was removed", c, d)
	}
	if v, ok := o.get(commWorld); !ok || v != "world" {
		t.Error("a constant was removed")
	}
}
