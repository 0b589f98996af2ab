package engine

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/wire"
)

// linkTransport carries the stream to and from a peer over a link. The engine's lock guards all
// of it but what the holder of a token owns.
type linkTransport struct {
	mu    *sync.Mutex // the engine's
	ctx   context.Context
	proto *protocol.Peer // the same peer's: where bytes go, and whether it has failed
	user  linkUser
	idle  *idleWatch

	l       *link.Link // nil before Attach
	bellDue bool       // the peer is to be rung

	head      [wire.EnvelopeLen]byte // memory for the envelope of what is appended
	unflushed bool                   // something was appended to the stream, and is to be written
	claimed   []*Request             // sends that are complete once the link does not refer to them

	indirect  bool // nothing is read straight into a receive's buffer, so that another process can go on there if this one is lost
	bellsOnly bool // the link carries no messages any more
	lost      bool // the link is over, but records in the ring are not handled yet

	in      readBuffer
	reading reading
}

// readBuffer is what was read and not handled yet. The holder of the reading token owns it.
type readBuffer struct {
	buf        []byte
	begin, end int // of those bytes
}

// A linkUser handles the events of a linkTransport. mu is held in all calls.
type linkUser interface {
	// envelope handles an envelope and those of the bytes behind it, b, that follow it: the first n.
	// mu may be given up.
	envelope(env wire.Envelope, b []byte) (n int, err error)
	// arrived is called after the last byte that follows an envelope was copied to its place. mu may be
	// released.
	arrived() error
	// bufferHandled is called after all bytes that were read are handled; with hold the caller does long
	// writes. mu may be released.
	bufferHandled(hold bool)
	// readFailed is called with the error that ended reading: io.EOF, or another.
	readFailed(err error)
	// carryOut carries out what follows from a write, or from the end of reading. mu may be released.
	carryOut()
	// linkLost is called when the link is over; doing says during which action.
	linkLost(doing string, err error)
}

func (t *linkTransport) init(ctx context.Context, mu *sync.Mutex, idle *idleWatch, proto *protocol.Peer, user linkUser) {
	t.mu, t.ctx, t.idle, t.proto, t.user = mu, ctx, idle, proto, user
	t.reading.token, t.reading.wake = make(chan struct{}, 1), make(chan struct{}, 1)
}

// reading is the state of the reading token of a link; see the package comment.
type reading struct {
	busy        bool          // a goroutine holds the token, and owns in
	forRequest  *Request      // whose waiter holds it; nil for the peer's own goroutine
	blocked     bool          // the holder is in a read of the link
	attended    bool          // the holder is the peer's own goroutine, and keeps the token
	count, seen uint64        // how often the token was taken; as checkIdle saw it last
	waiters     int           // goroutines that sleep until a request is complete or the token is free
	token       chan struct{} // wakes one of them when it is free
	wake        chan struct{} // makes the peer's own goroutine take it
	ctx         watched       // of the waiter that reads
	interrupted bool          // see wasInterrupted
}

func (t *linkTransport) attach(l *link.Link) {
	t.l = l
	size := readBufferSize
	if t.indirect {
		size = indirectBufferSize
	}
	t.in.buf = make([]byte, size)
}

// close ends the link and the goroutine that reads it: the peer has failed. mu is held.
func (t *linkTransport) close() {
	if t.l != nil {
		t.l.Conn.Close()
	}
	wake(t.reading.wake)
	wake(t.reading.token)
}

// unwatch drops the context of the waiter that last read. mu is held.
func (t *linkTransport) unwatch() { t.reading.ctx.end() }

// wakeReader has the reader's goroutine read, unless another goroutine does. mu is held.
func (t *linkTransport) wakeReader() {
	if !t.reading.busy {
		wake(t.reading.wake)
	}
}

// checkIdle wakes the reader if no goroutine took the token since the last call, and
// reports whether it is to be called again. mu is held.
func (t *linkTransport) checkIdle() (again bool) {
	if t.reading.attended || t.reading.busy && t.reading.count == t.reading.seen { // a waiter starts the checks as it leaves
		return false
	}
	if t.reading.count == t.reading.seen {
		t.wakeReader()
	}
	t.reading.seen = t.reading.count
	return true
}

var past = time.Unix(1, 0)

// interruptRead makes a blocked reader of the link return. mu is held.
func (t *linkTransport) interruptRead() {
	if t.l != nil {
		t.reading.interrupted = true
		t.l.Conn.SetReadDeadline(past)
	}
}

// wasInterrupted reports whether a read or write ended because of the engine's own
// interrupt, and resets that. The flag decides, not the error alone: a link that is lost
// for good may fail with a timeout, too, and retrying it would never end. mu is held.
func wasInterrupted(flag *bool, err error, setDeadline func(time.Time) error) bool {
	if !*flag {
		return false
	}
	*flag = false
	setDeadline(time.Time{})
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// watched is the context whose end interrupts the goroutine that reads or writes for a
// request. It outlives the request, since the next one usually has the same context; a
// stale one causes a needless interrupt.
type watched struct {
	ctx  context.Context
	stop func() bool
}

// watch calls interrupt, with mu held, when ctx is done, instead of that of another context. mu is held.
func (w *watched) watch(mu *sync.Mutex, ctx context.Context, interrupt func()) {
	if w.stop != nil {
		w.stop()
	}
	*w = watched{ctx: ctx}
	if ctx.Done() != nil {
		w.stop = context.AfterFunc(ctx, func() {
			mu.Lock()
			defer mu.Unlock()
			interrupt()
		})
	}
}

func (w *watched) end() {
	if w.stop != nil {
		w.stop()
	}
	*w = watched{}
}
