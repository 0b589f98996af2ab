package mpilib

import "github.com/isthmus-grid/isthmus/mpilib/internal/attribute"

// Key names an attribute that a program or library caches with communicators,
// and says what becomes of its values (MPI-4.1, section 7.7). Each Key is
// different from all others. A key that nothing refers to is collected like
// any memory; there is nothing to free.
type Key[T any] struct {
	kind *attribute.Kind[*Comm]
}

// NewKey makes a key (MPI_Comm_create_keyval; MPI-4.1, section 7.7.2).
//
// When a communicator c with a value is duplicated, copy returns the new one's
// value and whether it gets one; its error has the duplication fail on all
// ranks. A nil copy gives none, CopyValue the same. When a value is deleted,
// replaced or its communicator freed, remove is called with it; nil is nothing
// to do. Both are called without locks held and may call c.
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

// CopyValue has duplicates share the value (MPI_COMM_DUP_FN).
func CopyValue[T any](_ *Comm, value T) (T, bool, error) { return value, true, nil }

// Set caches value with c. A value already there is deleted first, and when
// that fails it stays (MPI_Comm_set_attr; MPI-4.1, section 7.7.2).
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

// Delete deletes the value cached with c, if there is one
// (MPI_Comm_delete_attr; MPI-4.1, section 7.7.2). When the key's remove fails,
// the value stays.
func (k *Key[T]) Delete(c *Comm) error {
	return c.called("Delete of an attribute", c.attributes.Delete(c, k.kind))
}
