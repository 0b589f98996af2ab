package engine

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/isthmus-grid/isthmus/link"
)

// linkTransport carries the stream to and from a peer over a link. The engine's lock guards all
// of it but what the holder of a token owns.
type linkTransport struct {
	l       *link.Link // nil before Attach
	queue   linkQueue
	bellDue bool // the peer is to be rung
	in      readBuffer
	reading reading
	writing writing
}

// readBuffer is what was read and not handled yet. The holder of the reading token owns it.
type readBuffer struct {
	buf        []byte
	begin, end int // of those bytes
}

func (t *linkTransport) init() {
	t.reading.token, t.reading.wake = make(chan struct{}, 1), make(chan struct{}, 1)
	t.writing.token, t.writing.wake = make(chan struct{}, 1), make(chan struct{}, 1)
}

// reading is which goroutine reads the peer's link; see the package comment.
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

// writing is which goroutine writes to the peer's link.
type writing struct {
	busy        bool          // a goroutine holds the token, and owns queue.taken
	byWriter    bool          // the holder is the peer's own goroutine
	count, seen uint64        // how often the token was taken; as checkIdle saw it last
	waiters     int           // goroutines that sleep until they may take the token
	token       chan struct{} // wakes one of them
	wake        chan struct{} // makes the peer's own goroutine take it
	ctx         watched       // of the waiter that writes
	interrupted bool          // see wasInterrupted
}

var past = time.Unix(1, 0)

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
// request. It outlives the request, since the next one mostly has the same context; a
// stale one causes a needless interrupt.
type watched struct {
	ctx  context.Context
	stop func() bool
}

// watch calls interrupt, with mu held, when ctx is done. mu is held.
func (w *watched) watch(e *Engine, ctx context.Context, interrupt func()) {
	if w.ctx == ctx {
		return
	}
	if w.stop != nil {
		w.stop()
	}
	*w = watched{ctx: ctx}
	if ctx.Done() != nil {
		w.stop = context.AfterFunc(ctx, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
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
