package engine

import (
	"slices"

	"github.com/isthmus-grid/isthmus/link/stream"
)

// This file is how bytes get to the stream of a peer's link, which takes them as far as it has room (append), and have
// it write them as far as that does not block (flush). Who waits for a send writes itself (push).

// usable reports whether the stream may take something. mu is held, as in all that follows.
func (t *linkTransport) usable() bool { return t.l != nil && !t.lost }

// append hands the stream an envelope, at the end of head, and what follows it, and reports whether it took them.
func (t *linkTransport) append(how stream.How, head, b []byte) (mark uint64, ok bool, err error) {
	if t.l == nil {
		return 0, false, nil
	}
	mark, ok, err = t.l.Conn.Append(how, head, b)
	t.unflushed = t.unflushed || ok
	return mark, ok, err
}

// appendBell has the peer rung, if it is to be.
func (t *linkTransport) appendBell() {
	if !t.bellDue || !t.usable() || t.proto.Failed != nil {
		return
	}
	switch _, ok, err := t.append(stream.Copy, bellBytes, nil); {
	case ok:
		t.bellDue = false
	case err != nil:
		t.user.linkLost("sending", err)
	}
}

// flush has what was handed over written as far as that does not block. What the socket does not take a goroutine of the
// stream writes: at once with rest, and else soon (idle.go), unless another flush or a waiter of a send has written it. mu is
// released meanwhile.
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

// push writes once, for a caller that waits. mu is released meanwhile.
func (t *linkTransport) push() {
	t.unflushed = false
	t.idle.writes(t)
	conn := t.l.Conn
	t.mu.Unlock()
	more := conn.Push()
	t.mu.Lock()
	t.unflushed = t.unflushed || more
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
