// Package attributes caches values of the program's with objects of MPI (MPI-5.0, section 7.7), and has the functions that
// the program gave their keys called when an object is copied or freed. It does not know the objects: their handles are
// numbers that those functions get, and whoever has an object keeps its cache. The keys of all kinds of objects are its state.
package attributes

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"
)

// Cache is the values cached with an object, in the order in which they were set. The zero Cache is empty.
type Cache struct {
	mu     sync.Mutex
	values Values
}

// Values are those of a cache.
type Values []value

// A value that Fortran set is an integer, and C gets its address (MPI-5.0, section 19.3.7).
type value struct {
	key     *Key
	value   uintptr
	integer *uintptr // instead of value; nil: C set it
}

// Refusal is the error of a key's function.
type Refusal struct {
	code   int32
	key    int32
	copies bool // it copies values; otherwise it deletes them
}

func (e *Refusal) Error() string {
	does := "deletes"
	if e.copies {
		does = "copies"
	}
	return fmt.Sprintf("the function that %s attributes of key %d returned %d", does, e.key, e.code)
}

// Class is what the function returned.
func (e *Refusal) Class() int32 { return e.code }

// pointer is the value for C.
func (v value) pointer() uintptr {
	if v.integer != nil {
		return uintptr(unsafe.Pointer(v.integer))
	}
	return v.value
}

// number is the value for Fortran.
func (v value) number() uintptr {
	if v.integer != nil {
		return *v.integer
	}
	return v.value
}

// with is v with another value, of the same language.
func (v value) with(other uintptr) value {
	if v.integer != nil {
		return value{key: v.key, integer: &other}
	}
	return value{key: v.key, value: other}
}

// index returns where the value of a key is, or -1. mu is held.
func (c *Cache) index(k *Key) int {
	return slices.IndexFunc(c.values, func(v value) bool { return v.key == k })
}

// find returns the value of a key, and whether there is one.
func (c *Cache) find(k *Key) (value, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.index(k); i >= 0 {
		return c.values[i], true
	}
	return value{}, false
}

// Get returns the value of a key for C, and whether there is one.
func (c *Cache) Get(k *Key) (uintptr, bool) {
	v, there := c.find(k)
	return v.pointer(), there
}

// GetInteger is Get for Fortran: what C set is an integer itself.
func (c *Cache) GetInteger(k *Key) (uintptr, bool) {
	v, there := c.find(k)
	return v.number(), there
}

// Set caches a value of C's with the object of a handle. One that is there is deleted first; if that fails, it stays.
func (c *Cache) Set(object uintptr, k *Key, v uintptr) error {
	return c.put(object, value{key: k, value: v})
}

// SetInteger is Set of Fortran's.
func (c *Cache) SetInteger(object uintptr, k *Key, v uintptr) error {
	return c.put(object, value{key: k, integer: &v})
}

func (c *Cache) put(object uintptr, v value) error {
	if err := c.Remove(object, v.key); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values = append(c.values, v)
	return nil
}

// Remove deletes the value of a key if there is one. It stays if the key's function fails. No lock is held while that runs.
func (c *Cache) Remove(object uintptr, k *Key) error {
	v, there := c.find(k)
	if !there {
		return nil
	}
	if k.Remove.Function != 0 {
		if code := v.deleted(object); code != 0 {
			return &Refusal{code: code, key: k.number}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := c.index(k); i >= 0 {
		c.values = slices.Delete(c.values, i, i+1)
	}
	return nil
}

// all returns the values of now.
func (c *Cache) all() Values {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.values)
}

// RemoveAll deletes all values, the last one first, up to one whose function fails.
func (c *Cache) RemoveAll(object uintptr) error {
	for _, v := range slices.Backward(c.all()) {
		if err := c.Remove(object, v.key); err != nil {
			return err
		}
	}
	return nil
}

// Copies returns the values of a copy of the object.
func (c *Cache) Copies(object uintptr) (Values, error) {
	var out Values
	for _, v := range c.all() {
		copied, keep := v.with(v.number()), v.key.Copy.Function == CopyValue
		if v.key.Copy.Function > CopyValue {
			var code int32
			if copied, keep, code = v.copy(object); code != 0 {
				return nil, &Refusal{code: code, key: v.key.number, copies: true}
			}
		}
		if keep {
			out = append(out, copied)
		}
	}
	return out, nil
}

// Fill gives a cache, which is new, the values of Copies.
func (c *Cache) Fill(v Values) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values = v
}
