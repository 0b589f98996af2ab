package lru

import "testing"

func TestTheLeastUsedGoes(t *testing.T) {
	m := New[string, int](2)
	if m.Put("a", 1) || m.Put("b", 2) || m.Put("a", 3) {
		t.Error("pushed out while there was room")
	}
	if !m.Put("c", 4) { // b was not used since
		t.Error("nothing was pushed out")
	}
	if _, ok := m.Get("b"); ok {
		t.Error("the least used is there")
	}
	if v, ok := m.Get("a"); !ok || v != 3 {
		t.Errorf("a is %d, %v", v, ok)
	}
	var order string
	for k := range m.Recent() {
		order += k
	}
	if order != "ac" {
		t.Errorf("last used first: %s", order)
	}
	m.Drop("a")
	m.Drop("x")
	if m.Len() != 1 {
		t.Errorf("%d entries", m.Len())
	}
}
