package engine

import (
	"slices"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/slot"
	"github.com/isthmus-grid/isthmus/wire"
)

// eagerShared is up to which size messages are sent eagerly through shared
// memory, and how much of a larger one is: a record's worth. So each record is an
// envelope and all that belongs to it.
const eagerShared = shm.MaxRecord

// bellBytes is the envelope that wakes a peer.
var bellBytes = wire.Envelope{Kind: wire.EnvelopeBell}.Append(nil)

// ringTransport carries the stream to and from a peer through memory that both share. Only its
// bells need the link. The engine's lock guards all of it, but rx is that of the holder of the
// polling token.
type ringTransport struct {
	proto *protocol.Peer // the same peer's
	link  *linkTransport // for bells; what is queued there goes before
	rings *rings         // among which it is looked at

	seg  *shm.Segment // nil: there is none, so far or any more
	tx   *shm.Sender
	rx   *shm.Receiver
	cpus shm.CPUs    // on which the peer may run
	mem  *shm.Memory // the peer's own memory, if the system lets this process in
	err  error       // why nothing more can be sent

	queue  []record    // what found no room yet
	bulk   bulk        // after the queue
	values *slot.Queue // of slots, after these; nil: they go over the link
}

// record is one for the ring: an envelope, and its payload, which is copied, or the first n bytes of
// the buffer of a send.
type record struct {
	head   [shm.HeadSize]byte
	copied []byte
	r      *Request
	n      int
	last   bool // the send is complete when it is sent
}

// share notes the memory.
func (t *ringTransport) share(seg *shm.Segment) {
	t.seg = seg
	t.tx, t.rx = seg.Ends()
}

// unshare unmaps it, if there is any.
func (t *ringTransport) unshare() {
	if t.seg != nil {
		t.seg.Close()
		t.seg, t.tx, t.rx = nil, nil, nil
	}
}

// clear reports whether a record may go into the ring now: nothing is queued before it.
func (t *ringTransport) clear() bool { return len(t.queue) == 0 && len(t.link.queue.queue) == 0 }

// sendRecord sends a record, or reports that there is no room. mu is held.
func (t *ringTransport) sendRecord(env wire.Envelope, b []byte) bool {
	var head [shm.HeadSize]byte
	env.Append(head[:0])
	return t.trySend(&head, b)
}

func (t *ringTransport) trySend(head *[shm.HeadSize]byte, b ...[]byte) bool {
	if !t.tx.TrySend(head, b...) {
		switch err := t.tx.Err(); {
		case err != nil && t.err == nil:
			t.err = err
			t.rings.requestSweep()
		case t.rings.asleep: // when that was announced, nothing waited for room here
			t.rings.requestSweep()
		}
		return false
	}
	t.ringBell()
	return true
}

// ringBell has the peer rung, if it sleeps. mu is held.
func (t *ringTransport) ringBell() {
	if t.tx.PeerSleeps() {
		t.link.bellDue = true
	}
}

// flushQueue sends what found no room before, as far as there is some now. mu is held.
func (t *ringTransport) flushQueue() {
	n := 0
	for n < len(t.queue) && t.proto.Failed == nil && t.resend(&t.queue[n]) {
		n++
	}
	t.queue = slices.Delete(t.queue, 0, n)
}

// flushBulk sends as much of the sends whose CTS has come. mu is held.
func (t *ringTransport) flushBulk() {
	for len(t.queue) == 0 && len(t.bulk) > 0 && t.proto.Failed == nil {
		r := t.bulk[0]
		n := min(shm.MaxRecord, len(r.Buf)-r.Offset)
		if !t.sendRecord(wire.Envelope{Kind: wire.EnvelopeData, ID: r.ID, Length: uint64(n)}, r.Buf[r.Offset:r.Offset+n]) {
			return
		}
		if r.Offset += n; r.Offset == len(r.Buf) {
			t.bulk = t.bulk[1:]
		}
	}
}

// flushValues sends as much of the slots' values. mu is held.
func (t *ringTransport) flushValues() {
	for len(t.queue)+len(t.bulk) == 0 && t.values.Pending() && t.proto.Failed == nil {
		env, b := t.values.NextPiece(shm.MaxRecord)
		if !t.sendRecord(env, b) {
			return
		}
		t.values.Taken(len(b))
	}
}

// resend sends a queued record if there is room. mu is held.
func (t *ringTransport) resend(rec *record) bool {
	payload := rec.copied
	if rec.r != nil {
		payload = rec.r.Buf[:rec.n]
	}
	if !t.trySend(&rec.head, payload) {
		return false
	}
	if rec.r != nil {
		t.proto.Written(&rec.r.Request, rec.last)
	}
	return true
}

// stalled reports whether something waits for room in the ring, and how much of
// it: the payload of the next record. mu is held.
func (t *ringTransport) stalled() (n int, yes bool) {
	switch {
	case t.proto.Failed != nil || len(t.link.queue.queue) > 0:
		return 0, false
	case len(t.queue) > 0:
		return len(t.queue[0].copied) + t.queue[0].n, true
	case len(t.bulk) > 0:
		return min(shm.MaxRecord, len(t.bulk[0].Buf)-t.bulk[0].Offset), true
	case t.values.Pending():
		return t.values.Left(shm.MaxRecord), true
	}
	return 0, false
}

func (t *ringTransport) sendSmall(env wire.Envelope, b []byte) bool {
	if len(b) > eagerShared || !t.clear() {
		return false
	}
	var head [shm.HeadSize]byte // as sendRecord does, with one call less for each message
	env.Append(head[:0])
	return t.trySend(&head, b)
}

func (t *ringTransport) sendEager(env wire.Envelope, r *Request) (whole bool) {
	if t.sendSmall(env, r.Buf) {
		return true
	}
	t.addFromBuffer(env, r, len(r.Buf), true)
	return false
}

func (t *ringTransport) send(env wire.Envelope, b []byte) {
	if t.clear() && t.sendRecord(env, b) {
		return
	}
	t.queue = append(t.queue, record{copied: slices.Clone(b)})
	env.Append(t.queue[len(t.queue)-1].head[:0])
}

func (t *ringTransport) sendHead(env wire.Envelope, r *Request, n int) {
	t.addFromBuffer(env, r, n, false)
}

// addFromBuffer queues an envelope and the first n bytes of r's buffer; last completes r.
func (t *ringTransport) addFromBuffer(env wire.Envelope, r *Request, n int, last bool) {
	t.queue = append(t.queue, record{r: r, n: n, last: last})
	env.Append(t.queue[len(t.queue)-1].head[:0])
}

func (t *ringTransport) sendLast(env wire.Envelope) { t.sendRecord(env, nil) }

func (t *ringTransport) stream(r *Request) { t.bulk.add(r) }

func (t *ringTransport) remove(r *Request) (n int) {
	t.queue = slices.DeleteFunc(t.queue, func(rec record) bool {
		if rec.r == r {
			n += rec.n
		}
		return rec.r == r
	})
	t.bulk.remove(r)
	return n
}

func (t *ringTransport) replace(r, by *Request) {
	for i := range t.queue {
		if t.queue[i].r == r {
			t.queue[i].r = by
		}
	}
	t.bulk.replace(r, by)
}

func (t *ringTransport) fail(err error) {
	t.requests(func(r *Request) { r.finish(err) })
	t.bulk.fail(err)
	t.queue = nil
}

func (t *ringTransport) requests(yield func(*Request)) {
	for i := range t.queue {
		if r := t.queue[i].r; r != nil {
			yield(r)
		}
	}
}

func (t *ringTransport) queued() bool { return len(t.queue)+len(t.bulk) > 0 }

func (t *ringTransport) answers() (n int) {
	for i := range t.queue {
		if rec := &t.queue[i]; rec.r == nil {
			n += len(rec.copied) + segmentSize
		}
	}
	return n
}

func (t *ringTransport) eagerLimit() int { return eagerShared }

func (t *ringTransport) maxHead() int { return eagerShared }
