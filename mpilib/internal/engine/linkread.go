package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/wire"
)

// readBufferSize is how many bytes one read of small messages may return. No more than this is
// copied of a large message.
const readBufferSize = 16 << 10

// indirectBufferSize is the same for links of which nothing is read elsewhere.
const indirectBufferSize = 128 << 10

// readable reports whether the reading token is free. mu is held.
func (t *linkTransport) readable() bool {
	return !t.reading.busy && t.l != nil && t.proto.Failed == nil
}

// takeReading takes the reading token, which is free, for a waiter whom the end of ctx
// interrupts. releaseReading is to be called. mu is held.
func (t *linkTransport) takeReading(ctx context.Context) {
	t.reading.busy = true
	t.reading.count++
	if t.reading.ctx.ctx != ctx {
		t.reading.ctx.watch(t.mu, ctx, t.interruptRead)
	}
}

// servesWaiters reports whether a waiter's message may arrive over this link. mu is held.
func (t *linkTransport) servesWaiters() bool { return t.proto.Failed == nil && !t.bellsOnly }

// readForWaiter reads on behalf of a waiter until its request is complete or needs something
// else. mu is held, and released meanwhile.
func (t *linkTransport) readForWaiter(ctx context.Context, r *Request) {
	t.takeReading(ctx)
	r.reader, t.reading.forRequest = t, r
	for r.State != complete && r.blockedBy() == nil && t.servesWaiters() && ctx.Err() == nil && !(r.IsSend && t.unflushed) {
		t.readOnce(r.IsSend)
	}
	r.reader, t.reading.forRequest = nil, nil
	t.releaseReading(false)
}

// leaveToken ends the sleep of one that waits for the reading token. If the link is over the others wake up, too: where
// ranks have replicas, they wait for another link from then on. mu is held.
func (t *linkTransport) leaveToken() {
	if t.reading.waiters--; t.reading.waiters > 0 && t.proto.Failed != nil {
		wake(t.reading.token)
	}
}

// releaseReading returns the reading token. mu is held, and may be released.
func (t *linkTransport) releaseReading(stays bool) {
	t.reading.busy = false
	if t.bellsOnly && !stays {
		wake(t.reading.wake) // from now on it alone reads the link
	}
	switch {
	case t.reading.waiters > 0:
		wake(t.reading.token)
		fallthrough
	case !stays:
		t.reading.attended = false
		t.idle.startChecks()
	}
	if t.proto.Failed != nil { // perhaps lost by another goroutine, which left the receive to this one
		t.proto.ReadEnded()
		t.user.carryOut()
	}
}

// reader reads the link while no waiter does. It ends with the link or the
// engine.
func (t *linkTransport) reader() {
	for {
		select {
		case <-t.reading.wake:
		case <-t.ctx.Done():
			return
		}
		t.mu.Lock()
		if t.readable() {
			t.reading.busy, t.reading.attended = true, true
			t.reading.count++
			for t.proto.Failed == nil && (t.reading.waiters == 0 || t.bellsOnly) && !t.lost && t.ctx.Err() == nil {
				t.readOnce(false)
			}
			t.releaseReading(t.bellsOnly)
		}
		failed := t.proto.Failed
		t.mu.Unlock()
		if failed != nil {
			return
		}
	}
}

// readOnce reads once and handles the bytes; hold says that the caller does long writes. mu is
// held, and released while it reads.
func (t *linkTransport) readOnce(hold bool) {
	in, msg := &t.in, &t.proto.In
	if t.hasBuffered() {
		if err := t.handleBuffered(); err != nil {
			t.user.readFailed(err)
			return
		}
		t.user.bufferHandled(hold)
		return
	}
	direct := !t.indirect && msg.Left > 0 && in.begin == in.end && len(msg.Into) > 0
	var dst []byte
	if direct {
		dst = msg.Into[:min(msg.Left, uint64(len(msg.Into)))]
	} else {
		in.end = copy(in.buf, in.buf[in.begin:in.end])
		in.begin = 0
		dst = in.buf[in.end:]
	}
	t.reading.blocked = true
	t.mu.Unlock()
	n, err := t.l.Conn.Read(dst)
	t.mu.Lock()
	t.reading.blocked = false
	if n > 0 {
		if direct {
			msg.Into = msg.Into[n:]
			if msg.Left -= uint64(n); msg.Left == 0 {
				err = errors.Join(err, t.user.arrived())
			}
		} else {
			in.end += n
		}
		if broken := t.handleBuffered(); broken != nil {
			err = broken
		}
	}
	if !wasInterrupted(&t.reading.interrupted, err, t.l.Conn.SetReadDeadline) && err != nil {
		t.user.readFailed(err)
		return
	}
	t.user.bufferHandled(hold)
}

// hasBuffered reports whether handleBuffered has left bytes that it could handle.
func (t *linkTransport) hasBuffered() bool {
	n := t.in.end - t.in.begin
	return n >= wire.EnvelopeLen || n > 0 && t.proto.In.Left > 0
}

// handleBuffered handles the buffered bytes until the request of the waiter that reads is complete: the
// waiter may post a receive for the next message. mu is held.
func (t *linkTransport) handleBuffered() error {
	in, msg := &t.in, &t.proto.In
	if msg.Left > 0 {
		in.begin += fill(msg, in.buf[in.begin:in.end])
		if msg.Left > 0 {
			return nil
		}
		if err := t.user.arrived(); err != nil {
			return err
		}
	}
	for msg.Left == 0 && in.end-in.begin >= wire.EnvelopeLen && (t.reading.forRequest == nil || t.reading.forRequest.State != complete) {
		env, err := wire.ParseEnvelope(in.buf[in.begin:in.end])
		if err != nil {
			return err
		}
		if t.bellsOnly && env.Kind != wire.EnvelopeBell { // its order with the records of the ring would be undefined
			return fmt.Errorf("%w: envelope kind %d over the link, behind the peer's switch to shared memory", wire.ErrMalformed, env.Kind)
		}
		in.begin += wire.EnvelopeLen
		n, err := t.user.envelope(env, in.buf[in.begin:in.end])
		if err != nil {
			return err
		}
		in.begin += n
	}
	return nil
}

// fill copies the bytes that follow an envelope, the first of b, to their place, and returns how many they are.
func fill(in *protocol.Incoming, b []byte) int {
	n := min(in.Left, uint64(len(b)))
	in.Left -= n
	in.Into = in.Into[copy(in.Into, b[:n]):]
	return int(n)
}
