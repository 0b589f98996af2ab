package engine

import (
	"slices"

	"github.com/isthmus-grid/isthmus/wire"
)

const (
	// gatherBelow is the size from which a message is written from the caller's buffer
	// instead of being copied into a batch (about where a copy costs more than a system
	// call).
	gatherBelow = 16 << 10
	batchSize   = 64 << 10 // bytes of copied messages written by one system call
	maxBatches  = 256      // queued; further messages stay in their callers' buffers
	maxTaken    = 1 << 20  // bytes taken at a time, apart from the last message
	chunk       = 1 << 20  // bytes of a message whose CTS has arrived: other messages may be sent between chunks
)

// linkQueue holds the bytes and buffers that are queued for a peer's link, in order.
type linkQueue struct {
	queue []segment
	spare []byte    // memory for the next batch
	taken []segment // being written
	bufs  [][]byte  // the same, as the link takes it
	head  []byte    // memory for the envelope of a slot's value
	torn  bool      // the queue may begin in the middle of what an interrupted write has begun
}

// segment is a piece of the stream: copied bytes, then perhaps n bytes of a send's buffer,
// from at on. The envelope of those is at the end of the copied bytes.
type segment struct {
	copied []byte
	r      *Request
	at, n  int
	last   bool // the send is complete when it is written
}

// full reports whether no more small messages are copied: without room the sender waits
// instead of filling memory.
func (q *linkQueue) full() bool { return len(q.queue) >= maxBatches }

// add appends an envelope and a small message to the last batch, or to a new one.
func (q *linkQueue) add(env wire.Envelope, b []byte) {
	n := len(q.queue)
	if n == 0 || q.queue[n-1].r != nil || len(q.queue[n-1].copied)+wire.EnvelopeLen+len(b) > batchSize {
		q.queue = append(q.queue, segment{copied: q.spare})
		q.spare = nil
		n++
	}
	last := &q.queue[n-1]
	last.copied = append(env.Append(last.copied), b...)
}

// addFromBuffer appends an envelope and the first n bytes of r's buffer.
func (q *linkQueue) addFromBuffer(env wire.Envelope, r *Request, n int, last bool) {
	q.add(env, nil)
	s := &q.queue[len(q.queue)-1]
	s.r, s.n, s.last = r, n, last
}

// putBack puts bytes first in the queue, which may be the end of what was begun.
func (q *linkQueue) putBack(b []byte) {
	q.queue = slices.Insert(q.queue, 0, segment{copied: b})
	q.torn = true
}

// nextBatch takes the first segment out if it is a batch of copied bytes, and returns nil otherwise.
func (q *linkQueue) nextBatch() []byte {
	if len(q.queue) == 0 || q.queue[0].r != nil {
		return nil
	}
	q.torn = false
	b := q.queue[0].copied
	left := copy(q.queue, q.queue[1:])
	q.queue[left] = segment{}
	q.queue = q.queue[:left]
	return b
}

// recycle keeps the memory of a batch that was written.
func (q *linkQueue) recycle(b []byte) {
	if cap(b) <= 2*batchSize && cap(b) > cap(q.spare) {
		q.spare = b[:0]
	}
}

// remove takes r's buffer out of the queue, with its envelope, and returns how many bytes that were.
func (q *linkQueue) remove(r *Request) (n int) {
	for i := range q.queue {
		if s := &q.queue[i]; s.r == r {
			s.copied = s.copied[:len(s.copied)-wire.EnvelopeLen]
			n += s.n
			s.r, s.n = nil, 0
		}
	}
	q.queue = slices.DeleteFunc(q.queue, func(s segment) bool { return s.r == nil && len(s.copied) == 0 })
	return n
}

// replace writes another request's buffer in r's place.
func (q *linkQueue) replace(r, by *Request) {
	for i := range q.queue {
		if q.queue[i].r == r {
			q.queue[i].r = by
		}
	}
}

// take moves the next segments to taken: of bulk, if nothing is queued. uncopied says that the callers'
// buffers in them must stay unchanged until the peer has acknowledged the bytes (zero-copy). The state
// of their requests is moving.
func (q *linkQueue) take(bulk *bulk) (uncopied bool) {
	q.taken = q.taken[:0]
	if len(q.queue) == 0 {
		r := (*bulk)[0]
		n := min(chunk, int(r.Got.Bytes)-r.Offset)
		env := wire.Envelope{Kind: wire.EnvelopeData, ID: r.ID, Length: uint64(n)}
		q.taken = append(q.taken, segment{copied: env.Append(nil), r: r, at: r.Offset, n: n})
		r.Offset += n
		*bulk = append((*bulk)[1:], r)
		if r.Offset == int(r.Got.Bytes) {
			*bulk = (*bulk)[:len(*bulk)-1]
		}
		r.State = moving
		return true
	}
	q.torn = false
	n, bytes := 0, 0
	uncopied = q.queue[0].r != nil && !q.queue[0].last
	for n < len(q.queue) && bytes < maxTaken {
		s := q.queue[n]
		if (s.r != nil && !s.last) != uncopied {
			break
		}
		bytes += len(s.copied) + s.n
		if s.r != nil {
			s.r.State = moving
		}
		n++
	}
	q.taken = append(q.taken, q.queue[:n]...)
	left := copy(q.queue, q.queue[n:])
	clear(q.queue[left:])
	q.queue = q.queue[:left]
	return uncopied
}
