package core

import (
	"maps"
	"slices"
	"sync"
)

// objects are what handles of one kind name. Handles of different kinds may have the same value.
type objects[T any] struct {
	mu   sync.RWMutex
	byID map[uintptr]T
	free []uintptr // handles that are given again, the last one first
	next uintptr   // of those never given, less firstDynamic
}

// get returns the object of a handle.
func (o *objects[T]) get(handle uintptr) (T, bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	v, ok := o.byID[handle]
	return v, ok
}

// each calls f with all objects.
func (o *objects[T]) each(f func(T)) {
	o.mu.RLock()
	all := slices.Collect(maps.Values(o.byID))
	o.mu.RUnlock()
	for _, v := range all {
		f(v)
	}
}

// put gives an object the handle that the standard has for it.
func (o *objects[T]) put(handle uintptr, v T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID == nil {
		o.byID = map[uintptr]T{}
	}
	o.byID[handle] = v
}

// add gives an object a handle of its own.
func (o *objects[T]) add(v T) uintptr {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID == nil {
		o.byID = map[uintptr]T{}
	}
	var handle uintptr
	if n := len(o.free); n > 0 {
		handle, o.free = o.free[n-1], o.free[:n-1]
	} else {
		handle = firstDynamic + o.next
		o.next++
	}
	o.byID[handle] = v
	return handle
}

// drop makes a handle of put invalid.
func (o *objects[T]) drop(handle uintptr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.byID, handle)
}

// remove makes a handle of add invalid.
func (o *objects[T]) remove(handle uintptr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.byID[handle]; ok && handle >= firstDynamic {
		delete(o.byID, handle)
		o.free = append(o.free, handle)
	}
}
