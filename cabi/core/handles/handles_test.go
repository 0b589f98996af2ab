package handles

import "testing"

// Handles are given once at a time, above the constants, and are used again when they are free.
func TestTable(t *testing.T) {
	const constant = uintptr(0x101)
	var table Table[string]
	table.Put(constant, "world")
	a, b := table.Add("a"), table.Add("b")
	if a != First || b != First+1 {
		t.Errorf("handles %#x, %#x", a, b)
	}
	table.Remove(a)
	table.Remove(a) // a second time: nothing
	table.Remove(constant)
	if _, ok := table.Get(a); ok {
		t.Error("a handle that was removed is valid")
	}
	if c, d := table.Add("c"), table.Add("d"); c != a || d != b+1 {
		t.Errorf("handles %#x, %#x after one was removed", c, d)
	}
	if v, ok := table.Get(constant); !ok || v != "world" {
		t.Error("a constant was removed")
	}
	all := map[string]int{}
	if table.Each(func(v string) { all[v]++ }); len(all) != 4 || all["world"] != 1 || all["c"] != 1 {
		t.Errorf("all are %v", all)
	}
}
