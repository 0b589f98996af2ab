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
// message, to which the link refers: then r is complete once somebody who waits for it takes it back. mu is held.
func (t *linkTransport) appended(r *Request, mark uint64, last bool) (uncopied bool) {
	if mark > 0 {
		r.mark, r.uncopied = mark, last && r.Mode != Synchronous
	}
	if r.uncopied && r.hold { // who waits for it may be asleep
		t.claim(r, nil)
	}
	return r.uncopied
}

// takeBack completes r, of which nothing more is handed over, once the link does not refer to its buffer: at once, unless a
// carrier is writing that. mu is held, and may be released.
func (t *linkTransport) takeBack(r *Request) {
	t.claim(r, r.GiveUp)
	t.takeAllBack()
}

// claim has takeAllBack complete r, with err. mu is held.
func (t *linkTransport) claim(r *Request, err error) {
	r.State, r.GiveUp = moving, err
	t.claimed = append(t.claimed, r)
}

// takeAllBack completes the claimed sends to which the link needs to refer no more: what the peer may still need is copied. mu
// is held, and released between pieces of what is large.
func (t *linkTransport) takeAllBack() {
	for range len(t.claimed) {
		if len(t.claimed) == 0 {
			return // another goroutine has come between
		}
		r := t.claimed[0]
		t.claimed = slices.Delete(t.claimed, 0, 1)
		from := uint64(0)
		if r.uncopied {
			from = r.mark - uint64(len(r.Buf))
		}
		if t.reclaim(from, r.mark) {
			r.uncopied = false
			r.finish(r.GiveUp)
		} else {
			t.claimed = append(t.claimed, r)
		}
	}
}

func (t *linkTransport) reclaim(from, to uint64) bool {
	for {
		next, ok := t.l.Conn.Reclaim(from, to)
		if !ok || next == to {
			return ok
		}
		from = next
		t.mu.Unlock()
		t.mu.Lock()
	}
}
