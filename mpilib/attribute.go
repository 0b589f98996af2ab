package mpilib

import (
	"errors"
	"fmt"
	"slices"
)

// Key names an attribute that a program or library caches with communicators,
// and says what becomes of its values (MPI-4.1, section 7.7). Each Key is
// different from all others. A key that nothing refers to is collected like
// any memory; there is nothing to free.
type Key[T any] struct {
	kind *attributeKind
}

// attributeKind is a Key without its type.
type attributeKind struct {
	copy   func(c *Comm, value any) (kept any, keep bool, err error)
	remove func(c *Comm, value any) error
}

// attribute is a cached value.
type attribute struct {
	kind  *attributeKind
	value any
}

// NewKey makes a key (MPI_Comm_create_keyval; MPI-4.1, section 7.7.2).
//
// When a communicator c with a value is duplicated, copy returns the new one's
// value and whether it gets one; its error has the duplication fail on all
// ranks. A nil copy gives none, CopyValue the same. When a value is deleted,
// replaced or its communicator freed, remove is called with it; nil is nothing
// to do. Both are called without locks held and may call c.
func NewKey[T any](copy func(c *Comm, value T) (kept T, keep bool, err error), remove func(c *Comm, value T) error) *Key[T] {
	kind := &attributeKind{}
	if copy != nil {
		kind.copy = func(c *Comm, value any) (any, bool, error) { return copy(c, value.(T)) }
	}
	if remove != nil {
		kind.remove = func(c *Comm, value any) error { return remove(c, value.(T)) }
	}
	return &Key[T]{kind}
}

// CopyValue has duplicates share the value (MPI_COMM_DUP_FN).
func CopyValue[T any](_ *Comm, value T) (T, bool, error) { return value, true, nil }

// Set caches value with c. A value already there is deleted first, and when
// that fails it stays (MPI_Comm_set_attr; MPI-4.1, section 7.7.2).
func (k *Key[T]) Set(c *Comm, value T) error {
	if err := c.usable(); err != nil {
		return c.called("Set of an attribute", err)
	}
	if err := c.deleteAttribute(k.kind); err != nil {
		return c.called("Set of an attribute", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attributes = append(c.attributes, attribute{k.kind, value})
	return nil
}

// Get returns the value cached with c, and whether there is one
// (MPI_Comm_get_attr; MPI-4.1, section 7.7.2).
func (k *Key[T]) Get(c *Comm) (value T, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.attributes {
		if a.kind == k.kind {
			return a.value.(T), true
		}
	}
	return value, false
}

// Delete deletes the value cached with c, if there is one
// (MPI_Comm_delete_attr; MPI-4.1, section 7.7.2). When the key's remove fails,
// the value stays.
func (k *Key[T]) Delete(c *Comm) error {
	return c.called("Delete of an attribute", c.deleteAttribute(k.kind))
}

func (c *Comm) deleteAttribute(kind *attributeKind) error {
	c.mu.Lock()
	is := func(a attribute) bool { return a.kind == kind }
	i := slices.IndexFunc(c.attributes, is)
	if i < 0 {
		c.mu.Unlock()
		return nil
	}
	value := c.attributes[i].value
	c.mu.Unlock()
	if kind.remove != nil {
		if err := kind.remove(c, value); err != nil {
			return fmt.Errorf("the key's remove: %w", err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attributes = slices.DeleteFunc(c.attributes, is)
	return nil
}

// deleteAttributes deletes all, the last one set first, as the standard has it
// for MPI_COMM_SELF (MPI-4.1, section 11.2.4) and leaves it open elsewhere.
// What fails is deleted all the same.
func (c *Comm) deleteAttributes() error {
	var errs []error
	for {
		c.mu.Lock()
		n := len(c.attributes)
		if n == 0 {
			c.mu.Unlock()
			return errors.Join(errs...)
		}
		last := c.attributes[n-1]
		c.attributes = c.attributes[:n-1]
		c.mu.Unlock()
		if last.kind.remove != nil {
			if err := last.kind.remove(c, last.value); err != nil {
				errs = append(errs, fmt.Errorf("the remove of an attribute's key: %w", err))
			}
		}
	}
}

// copyAttributes returns the attributes of a duplicate of c, in the order in
// which they were set.
func (c *Comm) copyAttributes() ([]attribute, error) {
	c.mu.Lock()
	all := slices.Clone(c.attributes)
	c.mu.Unlock()
	var copies []attribute
	for _, a := range all {
		if a.kind.copy == nil {
			continue
		}
		value, keep, err := a.kind.copy(c, a.value)
		if err != nil {
			return nil, fmt.Errorf("the copy of an attribute's key: %w", err)
		}
		if keep {
			copies = append(copies, attribute{a.kind, value})
		}
	}
	return copies, nil
}
