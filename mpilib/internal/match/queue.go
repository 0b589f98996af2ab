package match

// An entry is what Receive and Message are underneath.
type entry[O any] struct {
	Source, Tag int32
	Owner       O

	in            *queue[O] // where it is; nil: nowhere
	seq           uint64    // its place in the order of that queue
	before, after *entry[O] // its neighbours there
	hooks         [indexes]hook[O]
}

// A queue is a list of entries in the order of their coming, with up to three
// indexes to find the first entry of a key.
type queue[O any] struct {
	first, last *entry[O]
	seq         uint64 // of the last that came
	index       [indexes]index[O]
}

// add puts e at the end.
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
	q.index[byBoth].add(byBoth, e)
	for i := byBoth + 1; i < indexes; i++ {
		if q.index[i].used {
			q.index[i].add(i, e)
		}
	}
}

// remove takes e out, which is in q.
func (q *queue[O]) remove(e *entry[O]) {
	q.index[byBoth].remove(byBoth, e)
	for i := byBoth + 1; i < indexes; i++ {
		if q.index[i].used {
			q.index[i].remove(i, e)
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
}

// find returns the first entry with k, or nil. The first search in an index
// other than byBoth sets it up: most programs never ask for the one or the
// other, and do not pay for keeping it.
func (q *queue[O]) find(i indexName, k key) *entry[O] {
	x := &q.index[i]
	if i != byBoth && !x.used {
		x.used = true
		for e := q.first; e != nil; e = e.after {
			x.add(i, e)
		}
	}
	return x.find(i, k)
}
