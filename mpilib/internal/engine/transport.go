package engine

import (
	"unsafe"

	"github.com/isthmus-grid/isthmus/internal/ipc/shm"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/slot"
	"github.com/isthmus-grid/isthmus/wire"
)

// transport carries envelopes and payloads to and from a peer, in order: over its link and, once both share memory,
// through that. Switch is the last envelope that each side sends over the link. What the link or the ring does not take
// at once is queued; whoever makes it take more (stream.User, rings) has the queue sent on. The engine's lock guards it, and is
// held in all calls, which do not block.
type transport struct {
	proto    *protocol.Peer // the same peer's
	link     linkTransport
	ring     ringTransport
	toRing   bool // envelopes are sent through the ring, behind those that are queued for the link
	fromRing bool // the peer sends through its ring

	queue  queue
	bulk   bulk        // after the queue
	values *slot.Queue // of slots, where nothing else waits
	ahead  int         // how many bytes have gone over the link before the value that waits
}

const (
	// maxCopied is how many bytes are copied at a time to the stream of a link, under the lock: of a message that is Copied, or
	// of one that is taken back.
	maxCopied = 64 << 10
	chunk     = 1 << 20 // bytes of a message whose CTS has arrived: other messages may be sent between chunks
	// maxWhole bounds what is handed over in one piece: a link takes all or nothing, and its window may not be larger than at
	// first.
	maxWhole = stream.Window / 2
	// maxAhead is how many bytes of messages go to a link while a value of a slot waits until the kernel has all before it.
	maxAhead = 1 << 20
)

// switchOver sends everything from now on through the ring.
func (t *transport) switchOver() { t.toRing = true }

// connected reports whether there is a link to the peer, or was.
func (t *transport) connected() bool { return t.link.l != nil }

// shared reports whether messages go through shared memory in both directions.
func (t *transport) shared() bool { return t.toRing && t.fromRing }

// sendSmall sends or queues a small message, which is copied, and reports whether it did: not where it is too large for that,
// or there is no room.
func (t *transport) sendSmall(env wire.Envelope, b []byte) bool {
	switch {
	case t.toRing:
		if len(b) > eagerShared || len(t.queue.entries) > 0 {
			return false
		}
		var head [shm.HeadSize]byte
		env.Append(head[:0])
		return t.ring.trySend(&head, b)
	case len(b) >= gatherBelow || len(b) > t.eagerLimit() || t.queue.full():
		return false
	}
	t.send(env, b)
	return true
}

// send sends or queues an envelope and its payload, which is copied.
func (t *transport) send(env wire.Envelope, b []byte) {
	if len(b) <= chunk {
		if _, ok := t.sendNow(stream.Copy, env, b); ok {
			return
		}
	}
	t.queue.add(env, b, t.toRing)
}

// sendEager sends or queues r's message. It reports whether the protocol's Written is to be called: if
// not, it calls that later.
func (t *transport) sendEager(env wire.Envelope, r *Request) (whole bool) {
	n := len(r.Buf)
	if mark, ok := t.sendNow(howToAppend(r), env, r.Buf); ok {
		return !t.link.appended(r, mark, true)
	}
	if !t.toRing && n < gatherBelow && !t.queue.full() {
		t.queue.add(env, r.Buf, false)
		return true
	}
	t.queue.addFromBuffer(env, r, n, true, t.toRing)
	return false
}

// sendHead sends or queues an envelope and the first n bytes of r's buffer.
func (t *transport) sendHead(env wire.Envelope, r *Request, n int) {
	if mark, ok := t.sendNow(stream.Lend, env, r.Buf[:n]); ok {
		t.link.appended(r, mark, false)
		return
	}
	t.queue.addFromBuffer(env, r, n, false, t.toRing)
}

// sendNow hands over an envelope and what follows it, unless something goes before them or there is no room. An error is found
// again by fill.
func (t *transport) sendNow(how stream.How, env wire.Envelope, b []byte) (mark uint64, ok bool) {
	if len(t.queue.entries) > 0 {
		return 0, false
	}
	mark, ok, _ = t.put(t.toRing, how, env.Append(t.link.head[:0]), b)
	return mark, ok
}

// put hands an envelope, at the end of head, and what follows it to the ring or to the link, and reports whether that has
// taken them.
func (t *transport) put(ring bool, how stream.How, head, b []byte) (mark uint64, ok bool, err error) {
	switch {
	case ring:
		return 0, t.ring.trySend((*[shm.HeadSize]byte)(head), head[shm.HeadSize:], b), nil
	case how != stream.Fresh && t.ahead >= maxAhead && t.values.Pending():
		return 0, false, nil
	}
	mark, ok, err = t.link.append(how, head, b)
	switch {
	case !ok:
	case how == stream.Fresh || !t.values.Pending():
		t.ahead = 0
	default:
		t.ahead += len(head) + len(b)
	}
	return mark, ok, err
}

// howToAppend returns how a message goes to the link.
func howToAppend(r *Request) stream.How {
	if r.Mode == Copied && len(r.Buf) <= maxCopied {
		return stream.Copy
	}
	return stream.Lend
}

// stream sends the remainder of r's buffer, whose CTS has arrived.
func (t *transport) stream(r *Request) { t.bulk.add(r) }

// fill hands over what is queued, as far as it is taken. mu may be released.
func (t *transport) fill() {
	for t.fillOne() {
	}
	t.link.appendBell()
}

// fillOne hands over what is next: of the queue, a piece of a slot's value, or a chunk of a send whose CTS has come,
// and reports whether it was taken. mu may be released.
func (t *transport) fillOne() bool {
	var mark uint64
	var ok bool
	var err error
	ring := t.toRing
	if len(t.queue.entries) > 0 {
		ring = t.queue.entries[0].ring
	}
	switch {
	case t.proto.Failed != nil || !ring && !t.link.usable():
		return false
	case t.values.Pending() && (t.ahead >= maxAhead || !t.queued()):
		env, b := t.values.NextPiece(t.most(maxPiece))
		if _, ok, err = t.put(ring, stream.Fresh, env.Append(t.link.head[:0]), b); ok {
			t.values.Taken(len(b))
		}
	case len(t.queue.entries) > 0:
		s := &t.queue.entries[0]
		if s.r == nil && len(s.copied) > chunk { // of package replica: it may be larger than the link's window
			if _, ok, err = t.put(ring, stream.Copy, s.copied[:chunk], nil); ok {
				s.copied = s.copied[chunk:]
			}
			break
		}
		how, b := stream.Copy, []byte(nil)
		if s.r != nil {
			how, b = howToAppend(s.r), s.r.Buf[:s.n]
		}
		if mark, ok, err = t.put(ring, how, s.copied, b); ok {
			r, last := s.r, s.last
			t.queue.removeFirst()
			if r != nil && !t.link.appended(r, mark, last) {
				t.proto.Written(&r.Request, last)
				t.link.user.carryOut()
			}
		}
	case len(t.bulk) > 0:
		r := t.bulk[0]
		n := min(t.most(chunk), int(r.Got.Bytes)-r.Offset)
		env := wire.Envelope{Kind: wire.EnvelopeData, ID: r.ID, Length: uint64(n)}
		if mark, ok, err = t.put(ring, stream.Lend, env.Append(t.link.head[:0]), r.Buf[r.Offset:r.Offset+n]); ok {
			t.link.appended(r, mark, false)
			t.bulk.sent(n)
		}
	}
	if err != nil {
		t.link.user.linkLost("sending", err)
	}
	return ok
}

// most returns how many bytes of a message or value are handed over at a time: n over a link.
func (t *transport) most(n int) int {
	if t.toRing {
		return shm.MaxRecord
	}
	return n
}

// dispatch hands over what is queued and has it written; with hold the caller writes it, see push. mu may be released.
func (t *transport) dispatch(hold bool) {
	t.fill()
	if !hold && t.link.unflushed {
		t.link.flush(true)
	}
	t.link.takeAllBack()
}

// dispatchNow is dispatch for a program that goes on: what a socket does not take is left. mu may be released.
func (t *transport) dispatchNow() {
	t.fill()
	if t.link.unflushed {
		t.link.flush(false)
	}
	t.link.takeAllBack()
}

// Writable implements stream.User.
func (t *transport) Writable() {
	t.link.mu.Lock()
	defer t.link.mu.Unlock()
	t.dispatch(false)
}

// stalled reports whether something waits for room in the ring, and how much of
// it: the payload of the next record.
func (t *transport) stalled() (n int, yes bool) {
	switch {
	case t.proto.Failed != nil || !t.toRing || len(t.queue.entries) > 0 && !t.queue.entries[0].ring:
		return 0, false
	case len(t.queue.entries) > 0:
		return len(t.queue.entries[0].copied) - shm.HeadSize + t.queue.entries[0].n, true
	case len(t.bulk) > 0:
		return min(shm.MaxRecord, len(t.bulk[0].Buf)-t.bulk[0].Offset), true
	case t.values.Pending():
		return t.values.Left(shm.MaxRecord), true
	}
	return 0, false
}

// expose exposes r's buffer to the peer, and returns the payload of the RTS that describes it, or
// nil where that is not possible: a link lends nothing before the peer has asked for it.
func (t *transport) expose(r *Request) []byte {
	if !t.toRing {
		return nil
	}
	return t.ring.expose(r)
}

// remove removes r, and returns how many of its bytes were queued, beside those to be
// streamed.
func (t *transport) remove(r *Request) int {
	t.bulk.remove(r)
	return t.queue.remove(r)
}

// replace sends another request's buffer in place of r's.
func (t *transport) replace(r, by *Request) {
	t.queue.replace(r, by)
	t.bulk.replace(r, by)
}

// fail completes all requests in it with err, but those of which bytes are being copied.
func (t *transport) fail(err error) {
	t.queue.requests(func(r *Request) { r.finish(err) })
	t.bulk.fail(err)
	t.queue.entries = nil
}

// requests calls yield with each request of which something is queued, beside those that are streamed.
func (t *transport) requests(yield func(*Request)) { t.queue.requests(yield) }

// queued reports whether messages wait to be sent.
func (t *transport) queued() bool { return len(t.queue.entries) > 0 || len(t.bulk) > 0 }

// answers returns how many bytes wait besides the program's messages.
func (t *transport) answers() (n int) {
	for i := range t.queue.entries {
		if s := &t.queue.entries[i]; s.r == nil {
			n += len(s.copied) + int(unsafe.Sizeof(entry{}))
		} else { // a message of the program's, behind what else is written
			n += max(0, len(s.copied)-wire.EnvelopeLen)
		}
	}
	return n
}

// eagerLimit returns the largest message, in bytes, to send eagerly if there is credit.
func (t *transport) eagerLimit() int {
	switch l := t.link.l; {
	case t.toRing:
		return eagerShared
	case l == nil:
		return protocol.EagerShort
	case t.proto.PathDue():
		_, rtt := l.Current()
		t.proto.SetPath(rtt, l.Bandwidth())
	}
	return min(t.proto.EagerSize(), maxWhole)
}

// maxHead returns how many bytes of a rendezvous message may follow its RTS, if there is credit.
func (t *transport) maxHead() int {
	if t.toRing {
		return eagerShared
	}
	return max(t.proto.HeadSize(), t.eagerLimit())
}
