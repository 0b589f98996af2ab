// Package handles has the tables of what the handles of a C program name. It knows neither what that is nor which
// constants there are, only that these lie below First. A table's state is its own, behind a lock.
package handles

import (
	"maps"
	"slices"
	"sync"
)

// First is the first handle of an object that the program made; those below are constants of the ABI.
const First = uintptr(0x1000)

// Table has what handles of one kind name. Handles of different kinds may have the same value. The zero Table is empty.
type Table[T any] struct {
	mu   sync.RWMutex
	byID map[uintptr]T
	free []uintptr // handles that are given again, the last one first
	next uintptr   // of those never given, less First
}

// Get returns the object of a handle.
func (t *Table[T]) Get(handle uintptr) (T, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	v, ok := t.byID[handle]
	return v, ok
}

// Each calls f with all objects.
func (t *Table[T]) Each(f func(T)) {
	t.mu.RLock()
	all := slices.Collect(maps.Values(t.byID))
	t.mu.RUnlock()
	for _, v := range all {
		f(v)
	}
}

// Put gives an object the handle that the standard has for it.
func (t *Table[T]) Put(handle uintptr, v T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID = map[uintptr]T{}
	}
	t.byID[handle] = v
}

// Add gives an object a handle of its own.
func (t *Table[T]) Add(v T) uintptr {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID = map[uintptr]T{}
	}
	var handle uintptr
	if n := len(t.free); n > 0 {
		handle, t.free = t.free[n-1], t.free[:n-1]
	} else {
		handle = First + t.next
		t.next++
	}
	t.byID[handle] = v
	return handle
}

// Drop makes a handle of Put invalid.
func (t *Table[T]) Drop(handle uintptr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, handle)
}

// Remove makes a handle of Add invalid.
func (t *Table[T]) Remove(handle uintptr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.byID[handle]; ok && handle >= First {
		delete(t.byID, handle)
		t.free = append(t.free, handle)
	}
}
