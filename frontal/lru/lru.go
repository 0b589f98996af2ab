// Package lru is a map of bounded size that evicts the least recently used entry. It has no lock:
// its owner synchronizes.
package lru

import (
	"container/list"
	"iter"
)

// Map is a map that holds at most Max entries: a new entry evicts the least recently used one.
type Map[K comparable, V any] struct {
	Max   int
	items map[K]*list.Element
	order list.List // of pair[K, V], last used first
}

type pair[K comparable, V any] struct {
	key   K
	value V
}

// New returns an empty Map for at most max entries.
func New[K comparable, V any](max int) *Map[K, V] {
	return &Map[K, V]{Max: max, items: make(map[K]*list.Element)}
}

// Len returns how many entries there are.
func (l *Map[K, V]) Len() int { return len(l.items) }

// Get returns the value of key and counts as a use.
func (l *Map[K, V]) Get(key K) (value V, ok bool) {
	e, ok := l.items[key]
	if !ok {
		return value, false
	}
	l.order.MoveToFront(e)
	return e.Value.(pair[K, V]).value, true
}

// Put sets the value of key and reports whether another entry was evicted.
func (l *Map[K, V]) Put(key K, value V) (pushedOut bool) {
	if e, ok := l.items[key]; ok {
		e.Value = pair[K, V]{key, value}
		l.order.MoveToFront(e)
		return false
	}
	if len(l.items) >= l.Max {
		l.Drop(l.order.Back().Value.(pair[K, V]).key)
		pushedOut = true
	}
	l.items[key] = l.order.PushFront(pair[K, V]{key, value})
	return pushedOut
}

// Drop removes an entry, if present.
func (l *Map[K, V]) Drop(key K) {
	if e, ok := l.items[key]; ok {
		l.order.Remove(e)
		delete(l.items, key)
	}
}

// Recent yields the entries, most recently used first.
func (l *Map[K, V]) Recent() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for e := l.order.Front(); e != nil; e = e.Next() {
			p := e.Value.(pair[K, V])
			if !yield(p.key, p.value) {
				return
			}
		}
	}
}
