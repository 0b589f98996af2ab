package limit

import "iter"

// Bounded keeps a value for each of at most Max keys. Once there are that many, further keys share
// the value of Other, which may be kept in addition. No key is ever evicted, so a sum over all
// values is right however many keys there were, and untrusted names cannot use unbounded memory.
//
// The zero value with its fields set is empty and ready. It is not safe for concurrent use.
type Bounded[K comparable, V any] struct {
	Max   int
	Other K

	values map[K]*V
}

// key returns the key under which a key's value is, or would be.
func (b *Bounded[K, V]) key(key K) K {
	if b.values[key] != nil || key == b.Other {
		return key
	}
	named := len(b.values)
	if b.values[b.Other] != nil {
		named--
	}
	if named >= b.Max {
		return b.Other
	}
	return key
}

// At returns the value of a key, to be read and changed. A new one is zero.
func (b *Bounded[K, V]) At(key K) *V {
	key = b.key(key)
	v := b.values[key]
	if v == nil {
		if b.values == nil {
			b.values = map[K]*V{}
		}
		v = new(V)
		b.values[key] = v
	}
	return v
}

// Get returns the value that At would, and adds no key.
func (b *Bounded[K, V]) Get(key K) (value V) {
	if v := b.values[b.key(key)]; v != nil {
		value = *v
	}
	return value
}

// Len returns the number of keys, Other included.
func (b *Bounded[K, V]) Len() int { return len(b.values) }

// All yields the keys with their values, in no order.
func (b *Bounded[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for key, v := range b.values {
			if !yield(key, *v) {
				return
			}
		}
	}
}

// Clear drops all keys.
func (b *Bounded[K, V]) Clear() { clear(b.values) }

// Clone returns a copy.
func (b *Bounded[K, V]) Clone() Bounded[K, V] {
	c := Bounded[K, V]{Max: b.Max, Other: b.Other, values: make(map[K]*V, len(b.values))}
	for key, v := range b.values {
		copied := *v
		c.values[key] = &copied
	}
	return c
}
