package engine

import (
	"slices"

	"github.com/isthmus-grid/isthmus/wire"
)

const (
	// gatherBelow is the size from which a message that waits for a link stays in its caller's buffer.
	gatherBelow = 16 << 10
	batchSize   = 64 << 10 // bytes of copied messages that a link gets at a time
	maxBatches  = 256      // queued; further messages stay in their callers' buffers
)

// queue holds, in order, what neither a peer's link nor its ring has taken yet. Switch is the last for the link.
type queue struct {
	entries []entry
	spare   []byte // memory for the next batch
}

// entry is copied bytes, then perhaps the first n bytes of a send's buffer. For a link the copied bytes are envelopes and small
// messages, and the envelope of a send's buffer at their end; for a ring they are one of them.
type entry struct {
	copied []byte
	r      *Request
	n      int
	last   bool // they are all of an eager message
	ring   bool // it is for the ring
}

// full reports whether no more small messages are copied: without room the sender waits
// instead of filling memory.
func (q *queue) full() bool { return len(q.entries) >= maxBatches }

// add appends an envelope and a message, which is copied: for a link to the last batch, if it has room.
func (q *queue) add(env wire.Envelope, b []byte, ring bool) {
	n := len(q.entries)
	if ring || n == 0 || q.entries[n-1].r != nil || len(q.entries[n-1].copied)+wire.EnvelopeLen+len(b) > batchSize {
		q.entries = append(q.entries, entry{copied: q.spare, ring: ring})
		q.spare = nil
		n++
	}
	last := &q.entries[n-1]
	last.copied = append(env.Append(last.copied), b...)
}

// addFromBuffer appends an envelope and the first n bytes of r's buffer.
func (q *queue) addFromBuffer(env wire.Envelope, r *Request, n int, last, ring bool) {
	q.add(env, nil, ring)
	s := &q.entries[len(q.entries)-1]
	s.r, s.n, s.last = r, n, last
}

// removeFirst removes the first entry, which was taken.
func (q *queue) removeFirst() {
	if b := q.entries[0].copied; cap(b) <= 2*batchSize && cap(b) > cap(q.spare) {
		q.spare = b[:0]
	}
	q.entries = slices.Delete(q.entries, 0, 1)
}

// remove takes r's buffer out of the queue, with its envelope, and returns how many bytes that were.
func (q *queue) remove(r *Request) (n int) {
	for i := range q.entries {
		if s := &q.entries[i]; s.r == r {
			s.copied = s.copied[:len(s.copied)-wire.EnvelopeLen]
			n += s.n
			s.r, s.n = nil, 0
		}
	}
	q.entries = slices.DeleteFunc(q.entries, func(s entry) bool { return s.r == nil && len(s.copied) == 0 })
	return n
}

// replace writes another request's buffer in r's place.
func (q *queue) replace(r, by *Request) {
	for i := range q.entries {
		if q.entries[i].r == r {
			q.entries[i].r = by
		}
	}
}

// requests calls yield with each request of whose buffer something is queued.
func (q *queue) requests(yield func(*Request)) {
	for _, s := range q.entries {
		if s.r != nil {
			yield(s.r)
		}
	}
}

// bulk holds the sends whose CTS has arrived; one chunk of each is sent in rotation.
type bulk []*Request

func (b *bulk) add(r *Request) {
	if !slices.Contains(*b, r) {
		*b = append(*b, r)
	}
}

func (b *bulk) remove(r *Request) {
	*b = slices.DeleteFunc(*b, func(q *Request) bool { return q == r })
}

func (b bulk) replace(r, by *Request) {
	for i, q := range b {
		if q == r {
			b[i] = by
		}
	}
}

// sent notes that the next n bytes of the first were sent, whose turn is over.
func (b *bulk) sent(n int) {
	r := (*b)[0]
	*b = (*b)[1:]
	if r.Offset += n; r.Offset < int(r.Got.Bytes) {
		*b = append(*b, r)
	}
}

// fail completes them with err.
func (b *bulk) fail(err error) {
	for _, r := range *b {
		if r.State != moving { // else its buffer is being read
			r.finish(err)
		}
	}
	*b = nil
}
