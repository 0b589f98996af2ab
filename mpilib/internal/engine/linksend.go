package engine

import (
	"unsafe"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/wire"
)

// This file is what a linkTransport does as a transport: its queue does all of it but for small messages that
// nothing goes before.

func (t *linkTransport) sendSmall(env wire.Envelope, b []byte) bool {
	if len(b) >= gatherBelow || len(b) > t.eagerLimit() || t.queue.full() {
		return false
	}
	if !t.append(env, b) {
		t.queue.add(env, b)
	}
	return true
}

// append adds a small message to the stream itself, if nothing goes before it and there is room, and reports
// whether it did. dispatch has it written.
func (t *linkTransport) append(env wire.Envelope, b []byte) bool {
	if t.queued() || t.writing.busy || t.l == nil {
		return false
	}
	ok, err := t.l.Conn.Append(env.Append(t.head[:0]), b)
	if !ok || err != nil { // the write of the queue finds the error again
		return false
	}
	t.unflushed = true
	return true
}

func (t *linkTransport) sendEager(env wire.Envelope, r *Request) (copied bool) {
	if len(r.Buf) >= t.gatherBelow() || t.queue.full() {
		t.queue.addFromBuffer(env, r, len(r.Buf), true)
		return false
	}
	t.queue.add(env, r.Buf)
	return true
}

// gatherBelow returns the size from which a message is written from its buffer. Nobody waits for sends of replicas, so that
// the peer's own goroutine would have to be woken to write it, which costs more than to copy it once more.
func (t *linkTransport) gatherBelow() int {
	if t.indirect {
		return batchSize
	}
	return gatherBelow
}

func (t *linkTransport) send(env wire.Envelope, b []byte) { t.queue.add(env, b) }

func (t *linkTransport) sendHead(env wire.Envelope, r *Request, n int) {
	t.queue.addFromBuffer(env, r, n, false)
}

func (t *linkTransport) sendLast(env wire.Envelope) {
	if t.l != nil && !t.writing.busy {
		t.l.Conn.Post(env.Append(nil))
	}
}

func (t *linkTransport) stream(r *Request) { t.bulk.add(r) }

// expose finds that a link lends nothing before the peer has asked for it.
func (t *linkTransport) expose(*Request) []byte { return nil }

func (t *linkTransport) remove(r *Request) int {
	t.bulk.remove(r)
	return t.queue.remove(r)
}

func (t *linkTransport) replace(r, by *Request) {
	t.queue.replace(r, by)
	t.bulk.replace(r, by)
}

func (t *linkTransport) fail(err error) {
	for _, s := range t.queue.queue {
		if s.r != nil {
			s.r.finish(err)
		}
	}
	t.bulk.fail(err)
	t.queue.queue = nil
}

func (t *linkTransport) requests(yield func(*Request)) {
	for _, segments := range [][]segment{t.queue.queue, t.queue.taken} {
		for _, s := range segments {
			if s.r != nil {
				yield(s.r)
			}
		}
	}
}

func (t *linkTransport) queued() bool { return len(t.queue.queue) > 0 || len(t.bulk) > 0 }

// segmentSize is what a queued answer costs beside its bytes.
const segmentSize = int(unsafe.Sizeof(segment{}))

func (t *linkTransport) answers() (n int) {
	for i := range t.queue.queue {
		if s := &t.queue.queue[i]; s.r == nil {
			n += len(s.copied) + segmentSize
		} else { // a message of the program's, behind what else is written
			n += max(0, len(s.copied)-wire.EnvelopeLen)
		}
	}
	return n
}

func (t *linkTransport) eagerLimit() int {
	if t.l == nil {
		return protocol.EagerShort
	}
	if t.proto.PathDue() {
		_, rtt := t.l.Current()
		t.proto.SetPath(rtt, t.l.Bandwidth())
	}
	return t.proto.EagerSize()
}

func (t *linkTransport) maxHead() int { return max(t.proto.HeadSize(), t.eagerLimit()) }
