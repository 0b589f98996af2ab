package match

// An entry is the underlying type of Receive and Message.
type entry[O any] struct {
	Source, Tag int32
	Owner       O

	in            *queue[O] // where it is queued; nil: nowhere
	seq           uint64    // its place in the order of that queue
	before, after *entry[O] // its neighbours there
	hooks         [indexes]hook[O]
}

// A queue is a list of entries in order of arrival, with up to three indexes to find the first
// entry of a key. An index is set up when a search needs it: many programs never need one, and
// messages that arrive in the order in which they are received are found at the front of the list.
// It is dropped when the queue is empty, so that each entry is put into it at most once.
type queue[O any] struct {
	first, last *entry[O]
	seq         uint64 // of the last one added
	indexed     bool   // at least one index is used
	index       [indexes]index[O]
}

// add appends e.
func (q *queue[O]) add(e *entry[O]) {
	if e.in != nil {
		panic("match: an entry that waits in a table already is put into one: take it out first")
	}
	q.seq++
	e.in, e.seq, e.before = q, q.seq, q.last
	if q.last == nil {
		q.first = e
	} else {
		q.last.after = e
	}
	q.last = e
	if q.indexed {
		for i := range indexes {
			if q.index[i].used {
				q.index[i].add(i, e)
			}
		}
	}
}

// remove removes e, which must be in q.
func (q *queue[O]) remove(e *entry[O]) {
	if q.indexed {
		for i := range indexes {
			if q.index[i].used {
				q.index[i].remove(i, e)
			}
		}
	}
	if e.before == nil {
		q.first = e.after
	} else {
		e.before.after = e.after
	}
	if e.after == nil {
		q.last = e.before
	} else {
		e.after.before = e.before
	}
	e.in, e.before, e.after = nil, nil, nil
	if q.first == nil && q.indexed {
		q.indexed = false
		for i := range indexes {
			q.index[i].used = false
		}
	}
}

// few is how many entries a search checks before it sets up an index.
const few = 8

// find returns the first entry with k, or nil.
func (q *queue[O]) find(i indexName, k key) *entry[O] {
	x := &q.index[i]
	if x.used {
		return x.find(i, k)
	}
	e := q.first
	for range few {
		if e == nil || e.key(i) == k {
			return e
		}
		e = e.after
	}
	if e == nil {
		return nil
	}
	q.setUp(i)
	return x.find(i, k)
}

// setUp sets up an index that is not in use.
func (q *queue[O]) setUp(i indexName) {
	x := &q.index[i]
	x.used, q.indexed = true, true
	for e := q.first; e != nil; e = e.after {
		x.add(i, e)
	}
}
