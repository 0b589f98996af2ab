package engine

import (
	"slices"

	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/wire"
)

const (
	// gatherBelow is the size from which a message that waits in the queue stays in its caller's buffer.
	gatherBelow = 16 << 10
	// maxCopied is up to what size an eager message is copied to the stream, so that it is complete at once: under the
	// lock no more is.
	maxCopied  = 64 << 10
	batchSize  = 64 << 10 // bytes of copied messages that are handed over at a time
	maxBatches = 256      // queued; further messages stay in their callers' buffers
	chunk      = 1 << 20  // bytes of a message whose CTS has arrived: other messages may be sent between chunks
)

// linkQueue holds, in order, what the stream of a peer's link has not taken yet.
type linkQueue struct {
	queue []segment
	spare []byte // memory for the next batch
}

// segment is a piece of the stream: copied bytes, then perhaps the first n bytes of a send's buffer. The envelope of
// those is at the end of the copied bytes.
type segment struct {
	copied []byte
	r      *Request
	n      int
	last   bool // they are all of an eager message
}

// how says how the stream is to take the bytes of a send's buffer.
func (s *segment) how() stream.How { return howToAppend(s.n, s.last) }

func howToAppend(n int, eager bool) stream.How {
	if eager && n <= maxCopied {
		return stream.Copy
	}
	return stream.Lend
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

// removeFirst removes the first segment, which the stream has taken.
func (q *linkQueue) removeFirst() {
	if b := q.queue[0].copied; cap(b) <= 2*batchSize && cap(b) > cap(q.spare) {
		q.spare = b[:0]
	}
	q.queue = slices.Delete(q.queue, 0, 1)
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
