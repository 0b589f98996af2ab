package mpilib

import "github.com/isthmus-grid/isthmus/mpilib/internal/attribute"

// Key identifies an attribute that a program or library caches with communicators, and defines how
// its values are copied and deleted (MPI-4.1, section 7.7). Each Key is different from all others.
// An unreferenced key is garbage-collected; there is no call to free it.
type Key[T any] struct {
	kind *attribute.Kind[*Comm]
}

// NewKey creates a key (MPI_Comm_create_keyval; MPI-4.1, section 7.7.2).
//
// When a communicator c with a value is duplicated, copy returns the new communicator's value and
// whether it gets one; its error makes the duplication fail on all ranks. A nil copy copies no
// values; CopyValue copies the value itself. When a value is deleted or replaced, or its
// communicator freed, remove is called with it; it may be nil. Both are called without locks held
// and may call c.
func NewKey[T any](copy func(c *Comm, value T) (kept T, keep bool, err error), remove func(c *Comm, value T) error) *Key[T] {
	kind := &attribute.Kind[*Comm]{}
	if copy != nil {
		kind.Copy = func(c *Comm, value any) (any, bool, error) { return copy(c, value.(T)) }
	}
	if remove != nil {
		kind.Remove = func(c *Comm, value any) error { return remove(c, value.(T)) }
	}
	return &Key[T]{kind}
}

// CopyValue makes duplicates share the value (MPI_COMM_DUP_FN).
func CopyValue[T any](_ *Comm, value T) (T, bool, error) { return value, true, nil }

// Set caches value with c. An existing value is deleted first; if that fails, it stays
// (MPI_Comm_set_attr; MPI-4.1, section 7.7.2).
func (k *Key[T]) Set(c *Comm, value T) error {
	if err := c.core.Usable(); err != nil {
		return c.called("Set of an attribute", err)
	}
	if err := c.attributes.Set(c, k.kind, value); err != nil {
		return c.called("Set of an attribute", err)
	}
	return nil
}

// Get returns the value cached with c, and whether there is one
// (MPI_Comm_get_attr; MPI-4.1, section 7.7.2).
func (k *Key[T]) Get(c *Comm) (value T, ok bool) {
	if kept, ok := c.attributes.Get(k.kind); ok {
		return kept.(T), true
	}
	return value, false
}

// Delete deletes the value cached with c, if there is one (MPI_Comm_delete_attr; MPI-4.1, section
// 7.7.2). If the key's remove fails, the value stays.
func (k *Key[T]) Delete(c *Comm) error {
	return c.called("Delete of an attribute", c.attributes.Delete(c, k.kind))
}
