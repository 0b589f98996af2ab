// Package attribute implements attribute caching (MPI-4.1, section 7.7): values of kinds, each of
// which defines how its values are copied and deleted. It knows neither the object nor the meaning
// of values; they are in a List.
package attribute

import (
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Kind defines what happens to values when a C that has them is duplicated, and when they are
// deleted; nil means nothing. Both functions are called without locks held.
type Kind[C any] struct {
	Copy   func(of C, value any) (kept any, keep bool, err error)
	Remove func(of C, value any) error
}

// Value is a cached value.
type Value[C any] struct {
	kind  *Kind[C]
	value any
}

// List holds the values cached with a C. Safe for concurrent use.
type List[C any] struct {
	mu     sync.Mutex
	values []Value[C]
}

// Init initializes a list with the result of Copies.
func (l *List[C]) Init(values []Value[C]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.values = values
}

// Set caches a value. An existing value of its kind is deleted first; if that fails, it stays.
func (l *List[C]) Set(of C, kind *Kind[C], value any) error {
	if err := l.Delete(of, kind); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.values = append(l.values, Value[C]{kind, value})
	return nil
}

// Get returns the value of a kind, and whether there is one.
func (l *List[C]) Get(kind *Kind[C]) (value any, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.values {
		if a.kind == kind {
			return a.value, true
		}
	}
	return nil, false
}

// Delete deletes the value of a kind, if there is one. When the kind's Remove fails, the
// value stays.
func (l *List[C]) Delete(of C, kind *Kind[C]) error {
	l.mu.Lock()
	is := func(a Value[C]) bool { return a.kind == kind }
	i := slices.IndexFunc(l.values, is)
	if i < 0 {
		l.mu.Unlock()
		return nil
	}
	value := l.values[i].value
	l.mu.Unlock()
	if kind.Remove != nil {
		if err := kind.Remove(of, value); err != nil {
			return fmt.Errorf("the key's remove: %w", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.values = slices.DeleteFunc(l.values, is)
	return nil
}

// DeleteAll deletes all values, the last one set first, as the standard requires for MPI_COMM_SELF
// (MPI-4.1, section 11.2.4) and leaves open elsewhere. Values whose Remove fails are deleted
// nevertheless.
func (l *List[C]) DeleteAll(of C) error {
	var errs []error
	for {
		l.mu.Lock()
		n := len(l.values)
		if n == 0 {
			l.mu.Unlock()
			return errors.Join(errs...)
		}
		last := l.values[n-1]
		l.values = l.values[:n-1]
		l.mu.Unlock()
		if last.kind.Remove != nil {
			if err := last.kind.Remove(of, last.value); err != nil {
				errs = append(errs, fmt.Errorf("the remove of an attribute's key: %w", err))
			}
		}
	}
}

// Copies returns the attributes of a duplicate of their owner, in the order in
// which they were set.
func (l *List[C]) Copies(of C) ([]Value[C], error) {
	l.mu.Lock()
	all := slices.Clone(l.values)
	l.mu.Unlock()
	var copies []Value[C]
	for _, a := range all {
		if a.kind.Copy == nil {
			continue
		}
		value, keep, err := a.kind.Copy(of, a.value)
		if err != nil {
			return nil, fmt.Errorf("the copy of an attribute's key: %w", err)
		}
		if keep {
			copies = append(copies, Value[C]{a.kind, value})
		}
	}
	return copies, nil
}
