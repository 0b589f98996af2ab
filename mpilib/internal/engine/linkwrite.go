package engine

import (
	"slices"

	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/wire"
)

// This file is how bytes get from a peer's queue to its link. Whoever queues something hands the stream what that takes
// (fill), and has it written as far as that does not block (flush). Who waits for a send writes itself (push). What the
// stream refuses it asks for once there is room (Writable).

// maxAhead is how many bytes of messages go to the stream while a value of a slot waits until the kernel has all before it.
const maxAhead = 1 << 20

// append hands the stream an envelope, at the end of head, and what follows it, and reports whether it took them. mu is
// held.
func (t *linkTransport) append(how stream.How, head, b []byte) (mark uint64, ok bool, err error) {
	if t.l == nil || how != stream.Fresh && t.ahead >= maxAhead {
		return 0, false, nil
	}
	mark, ok, err = t.l.Conn.Append(how, head, b)
	switch {
	case !ok:
		return mark, ok, err
	case how == stream.Fresh || !t.values.Pending():
		t.ahead = 0
	default:
		t.ahead += len(head) + len(b)
	}
	t.unflushed = true
	return mark, ok, err
}

// dispatch hands the stream what is queued and has it written; with hold the caller writes it, see push. mu is held, and may
// be released.
func (t *linkTransport) dispatch(hold bool) {
	t.fill()
	if !hold && t.unflushed {
		t.flush(true)
	}
}

// dispatchNow is dispatch for a program that goes on: what the socket does not take is left. mu is held, and may be released.
func (t *linkTransport) dispatchNow() {
	t.fill()
	if t.unflushed {
		t.flush(false)
	}
}

// fill hands the stream what is queued, as far as it takes that. mu is held, and may be released.
func (t *linkTransport) fill() {
	for t.fillOne() {
	}
	t.user.flush()
	if t.bellDue {
		t.fillOne()
	}
}

// flush has what was handed over written as far as that does not block. What the socket does not take a goroutine of the
// stream writes: at once with rest, and else soon (idle.go), unless another flush or a waiter of a send has written it. mu is
// held, and released meanwhile.
func (t *linkTransport) flush(rest bool) {
	t.unflushed = false
	t.idle.writes(t)
	conn := t.l.Conn
	t.mu.Unlock()
	left := conn.Flush(rest)
	t.mu.Lock()
	if left {
		t.idle.leaves(t)
	}
}

// push writes once, for a caller that waits. mu is held, and released meanwhile.
func (t *linkTransport) push() {
	t.unflushed = false
	t.idle.writes(t)
	conn := t.l.Conn
	t.mu.Unlock()
	more := conn.Push()
	t.mu.Lock()
	t.unflushed = t.unflushed || more
}

// Writable implements stream.User.
func (t *linkTransport) Writable() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dispatch(false)
}

// fillOne hands over what is next: of the queue, a bell, a piece of a slot's value, or a chunk of a send whose CTS has come,
// and reports whether the stream took it. mu is held, and may be released.
func (t *linkTransport) fillOne() bool {
	var ok bool
	var err error
	switch {
	case t.l == nil || t.proto.Failed != nil || t.lost:
		return false
	case t.values.Pending() && (t.ahead >= maxAhead || !t.queued()):
		env, b := t.values.NextPiece(maxPiece)
		if _, ok, err = t.append(stream.Fresh, env.Append(t.head[:0]), b); ok {
			t.values.Taken(len(b))
		}
	case len(t.queue.queue) > 0:
		s := t.queue.queue[0]
		how, b := stream.Copy, []byte(nil)
		if s.r != nil {
			how, b = s.how(), s.r.Buf[:s.n]
		}
		var mark uint64
		if mark, ok, err = t.append(how, s.copied, b); ok {
			t.queue.removeFirst()
			if s.r != nil && !t.appended(s.r, mark, s.last) {
				t.proto.Written(&s.r.Request, s.last)
				t.user.carryOut()
			}
		}
	case t.bellDue:
		if _, ok, err = t.append(stream.Copy, bellBytes, nil); ok {
			t.bellDue = false
		}
	case len(t.bulk) > 0:
		r := t.bulk[0]
		n := min(chunk, int(r.Got.Bytes)-r.Offset)
		env := wire.Envelope{Kind: wire.EnvelopeData, ID: r.ID, Length: uint64(n)}
		var mark uint64
		if mark, ok, err = t.append(stream.Lend, env.Append(t.head[:0]), r.Buf[r.Offset:r.Offset+n]); ok {
			t.appended(r, mark, false)
			t.bulk.sent(n)
		}
	}
	if err != nil {
		t.user.linkLost("sending", err)
	}
	return ok
}

// appended notes that bytes of r were handed over, and with what mark. It reports whether they are all of an eager
// message, to which the link refers: then r is complete once that has let go of it. mu is held.
func (t *linkTransport) appended(r *Request, mark uint64, last bool) (uncopied bool) {
	if mark == 0 {
		return false
	}
	r.mark = mark
	if !last || r.Mode == Synchronous {
		return false
	}
	r.uncopied = true
	if t.uncopied = append(t.uncopied, r); len(t.uncopied) == 1 && !r.hold {
		t.l.Conn.Released(mark) // asks for it
	}
	return true
}

// takeBack completes an eager message whose waiter has handed it over: what the peer may still need is copied. mu is
// held, and released meanwhile.
func (t *linkTransport) takeBack(r *Request) {
	r.State = moving
	from, to := r.mark-uint64(len(r.Buf)), r.mark
	t.mu.Unlock()
	t.l.Conn.Reclaim(from, to)
	t.mu.Lock()
	t.letGo(r)
}

// letGo completes an eager message to which the link does not refer any more. mu is held, and may be released.
func (t *linkTransport) letGo(r *Request) {
	t.uncopied = slices.DeleteFunc(t.uncopied, func(q *Request) bool { return q == r })
	r.uncopied = false
	t.proto.Written(&r.Request, true)
	t.user.carryOut()
}
