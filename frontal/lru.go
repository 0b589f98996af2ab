package frontal

import (
	"container/list"
	"iter"
)

// lru is a map that holds at most max entries: a new one pushes out the one
// that was not used for longest.
type lru[K comparable, V any] struct {
	max   int
	items map[K]*list.Element
	order list.List // of pair[K, V], last used first
}

type pair[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](max int) *lru[K, V] {
	return &lru[K, V]{max: max, items: make(map[K]*list.Element)}
}

func (l *lru[K, V]) len() int { return len(l.items) }

// get returns the value of key and counts as use.
func (l *lru[K, V]) get(key K) (value V, ok bool) {
	e, ok := l.items[key]
	if !ok {
		return value, false
	}
	l.order.MoveToFront(e)
	return e.Value.(pair[K, V]).value, true
}

// put sets the value of key and reports whether another entry had to go.
func (l *lru[K, V]) put(key K, value V) (pushedOut bool) {
	if e, ok := l.items[key]; ok {
		e.Value = pair[K, V]{key, value}
		l.order.MoveToFront(e)
		return false
	}
	if len(l.items) >= l.max {
		l.drop(l.order.Back().Value.(pair[K, V]).key)
		pushedOut = true
	}
	l.items[key] = l.order.PushFront(pair[K, V]{key, value})
	return pushedOut
}

func (l *lru[K, V]) drop(key K) {
	if e, ok := l.items[key]; ok {
		l.order.Remove(e)
		delete(l.items, key)
	}
}

// recent yields the entries, last used first.
func (l *lru[K, V]) recent() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for e := l.order.Front(); e != nil; e = e.Next() {
			p := e.Value.(pair[K, V])
			if !yield(p.key, p.value) {
				return
			}
		}
	}
}
