package match

import "math/bits"

// An indexName says by which fields an index finds entries.
type indexName int

const (
	byBoth   indexName = iota // source and tag; wildcards are ordinary values
	bySource                  // the source, whatever the tag
	byTag                     // the tag, whatever the source
	indexes
)

// A key is a source and a tag. Fields that an index ignores are all ones, as the wildcards are.
type key uint64

func keyOf(source, tag int32) key { return key(uint32(source))<<32 | key(uint32(tag)) }

// ignores holds the bits of a key that an index ignores.
var ignores = [indexes]key{bySource: 1<<32 - 1, byTag: (1<<32 - 1) << 32}

func (e *entry[O]) key(i indexName) key { return keyOf(e.Source, e.Tag) | ignores[i] }

// A hook is an entry's place in one index.
//
// The entries of one key form a list in order of arrival. Its first entry, the head, stands for the
// list and is linked in the chain of its hash slot. So a list needs no memory of its own, and
// leaves none when its last entry is removed.
//
//	slot --> head of key A --chain--> head of key B --chain--> nil
//	          | next  ^ prev           (alone: its prev is itself)
//	          v       |
//	         second   |
//	          | next  |  the head's prev is the last
//	          v       |
//	         last ----+  next is nil
type hook[O any] struct {
	next  *entry[O] // nil: the last
	prev  *entry[O] // of the head: the last
	chain *entry[O] // of the head: the next head of the slot
}

// An index is a hash table of such lists.
type index[O any] struct {
	used  bool // it is kept up to date
	keys  int  // number of lists
	slots []*entry[O]
}

// A table doubles when it has more lists than slots, and shrinks to a quarter when it has an eighth
// of that: between two resizes there are as many calls as the second one costs. It never shrinks
// below keepSlots slots, 8 KiB, because bursts of that size recur.
const (
	minSlots  = 8
	keepSlots = 1024
)

// slot returns the slot of k, computed from all bits of the key: ranks and tags are small, or
// multiples of powers of two. There must be slots.
func (x *index[O]) slot(k key) **entry[O] {
	hi, lo := bits.Mul64(uint64(k)^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return &x.slots[(hi^lo)&uint64(len(x.slots)-1)]
}

// find returns the head of k's list, or nil.
func (x *index[O]) find(i indexName, k key) *entry[O] {
	if x.keys == 0 {
		return nil
	}
	e := *x.slot(k)
	for e != nil && e.key(i) != k {
		e = e.hooks[i].chain
	}
	return e
}

// add appends e to the list of its key.
func (x *index[O]) add(i indexName, e *entry[O]) {
	k := e.key(i)
	if head := x.find(i, k); head != nil {
		last := head.hooks[i].prev
		last.hooks[i].next = e
		e.hooks[i].prev = last
		head.hooks[i].prev = e
		return
	}
	if x.keys == len(x.slots) {
		x.resize(i, max(minSlots, 2*len(x.slots)))
	}
	x.keys++
	slot := x.slot(k)
	e.hooks[i] = hook[O]{prev: e, chain: *slot}
	*slot = e
}

// remove removes e from the list of its key.
func (x *index[O]) remove(i indexName, e *entry[O]) {
	h := e.hooks[i]
	e.hooks[i] = hook[O]{}
	if h.prev.hooks[i].next == e { // not the head, whose prev is the last, which has no next
		h.prev.hooks[i].next = h.next
		if h.next != nil {
			h.next.hooks[i].prev = h.prev
			return
		}
		x.find(i, e.key(i)).hooks[i].prev = h.prev
		return
	}
	at := x.slot(e.key(i))
	for *at != e {
		at = &(*at).hooks[i].chain
	}
	if h.next != nil { // the second becomes the head
		h.next.hooks[i].prev = h.prev
		h.next.hooks[i].chain = h.chain
		*at = h.next
		return
	}
	*at = h.chain
	x.keys--
	if len(x.slots) > keepSlots && x.keys <= len(x.slots)/8 {
		x.resize(i, len(x.slots)/4)
	}
}

// resize moves all heads to n slots, a power of two.
func (x *index[O]) resize(i indexName, n int) {
	old := x.slots
	x.slots = make([]*entry[O], n)
	for _, e := range old {
		for e != nil {
			next := e.hooks[i].chain
			slot := x.slot(e.key(i))
			e.hooks[i].chain = *slot
			*slot = e
			e = next
		}
	}
}
