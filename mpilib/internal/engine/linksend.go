package engine

import (
	"unsafe"

	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/wire"
)

// This file is what a linkTransport does as a transport: what the stream does not take at once goes to the queue.

func (t *linkTransport) sendSmall(env wire.Envelope, b []byte) bool {
	if len(b) >= gatherBelow || len(b) > t.eagerLimit() || t.queue.full() {
		return false
	}
	t.send(env, b)
	return true
}

// appendNow hands the stream an envelope and what follows it, unless something goes before them. An error is found again
// by fill.
func (t *linkTransport) appendNow(how stream.How, env wire.Envelope, b []byte) (mark uint64, ok bool) {
	if len(t.queue.queue) > 0 {
		return 0, false
	}
	mark, ok, _ = t.append(how, env.Append(t.head[:0]), b)
	return mark, ok
}

func (t *linkTransport) send(env wire.Envelope, b []byte) {
	if _, ok := t.appendNow(stream.Copy, env, b); !ok {
		t.queue.add(env, b)
	}
}

func (t *linkTransport) sendEager(env wire.Envelope, r *Request) (whole bool) {
	n := len(r.Buf)
	how := howToAppend(n, true)
	if r.hold { // it waits until the kernel has it; then what is not acknowledged yet is copied
		how = stream.Lend
	}
	if mark, ok := t.appendNow(how, env, r.Buf); ok {
		return !t.appended(r, mark, true)
	}
	if n < gatherBelow && !t.queue.full() {
		t.queue.add(env, r.Buf)
		return true
	}
	t.queue.addFromBuffer(env, r, n, true)
	return false
}

func (t *linkTransport) sendHead(env wire.Envelope, r *Request, n int) {
	if mark, ok := t.appendNow(stream.Lend, env, r.Buf[:n]); ok {
		t.appended(r, mark, false)
		return
	}
	t.queue.addFromBuffer(env, r, n, false)
}

func (t *linkTransport) sendLast(env wire.Envelope) { t.appendNow(stream.Copy, env, nil) }

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
	for _, s := range t.queue.queue {
		if s.r != nil {
			yield(s.r)
		}
	}
	for _, r := range t.uncopied {
		yield(r)
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
