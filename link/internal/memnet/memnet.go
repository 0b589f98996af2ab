// Package memnet makes connections in memory, for tests in testing/synctest bubbles: whoever waits at one
// is durably blocked, so that time passes only while nothing else can happen. It knows delay and a
// full buffer, and neither loss nor limited bandwidth. It has no state.
package memnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Options describe both directions of a connection.
type Options struct {
	Delay  time.Duration // from a write until its bytes can be read
	Buffer int           // bytes that were written and not read, at which a writer waits; 0 is 256 KiB
}

// Conn is one end of a connection, which behaves as a TCP connection does, and has the vectored and
// the non-blocking calls of link/stream.
type Conn struct{ in, out *half }

var _ net.Conn = (*Conn)(nil)

// Pair returns both ends of a new connection.
func Pair(o Options) (a, b *Conn) {
	if o.Buffer <= 0 {
		o.Buffer = 256 << 10
	}
	x, y := newHalf(o), newHalf(o)
	return &Conn{x, y}, &Conn{y, x}
}

// half is one direction.
type half struct {
	o Options

	mu              sync.Mutex
	changed         sync.Cond // of any field below, or of what has arrived by now
	queue           []segment
	size            int       // bytes in queue
	end             time.Time // when io.EOF arrives; zero: the writer has not ended
	reset           bool
	unread          bool // the reader has closed
	readBy, writeBy deadline
}

// segment is bytes that arrive at one time.
type segment struct {
	at   time.Time
	data []byte
}

type deadline struct {
	at    time.Time
	timer *time.Timer
}

func newHalf(o Options) *half {
	h := &half{o: o}
	h.changed.L = &h.mu
	return h
}

func failed(op string, err error) error { return &net.OpError{Op: op, Net: "memory", Err: err} }

// passed reports whether a deadline has passed. mu is held.
func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (h *half) set(d *deadline, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	if d.at = at; !at.IsZero() {
		d.timer = time.AfterFunc(time.Until(at), h.wake)
	}
	h.changed.Broadcast()
}

func (h *half) wake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed.Broadcast()
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) { return c.ReadVec(p) }

// ReadVec fills the buffers in order with what has arrived.
func (c *Conn) ReadVec(bufs ...[]byte) (int, error) {
	h := c.in
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		now := time.Now()
		switch {
		case h.unread:
			return 0, failed("read", net.ErrClosed)
		case h.readBy.passed():
			return 0, failed("read", os.ErrDeadlineExceeded)
		}
		if n := h.take(bufs, now); n > 0 {
			h.changed.Broadcast()
			return n, nil
		}
		if h.reset && len(h.queue) == 0 {
			return 0, failed("read", syscall.ECONNRESET)
		}
		if !h.end.IsZero() && len(h.queue) == 0 && !now.Before(h.end) {
			return 0, io.EOF
		}
		h.changed.Wait()
	}
}

// take moves what has arrived by now to bufs. mu is held.
func (h *half) take(bufs [][]byte, now time.Time) (n int) {
	for _, b := range bufs {
		for len(b) > 0 && len(h.queue) > 0 && !now.Before(h.queue[0].at) {
			first := &h.queue[0]
			k := copy(b, first.data)
			b, first.data = b[k:], first.data[k:]
			n += k
			if len(first.data) == 0 {
				h.queue = h.queue[1:]
			}
		}
	}
	h.size -= n
	return n
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) { return c.WriteVec(p) }

// WriteVec writes all of the buffers.
func (c *Conn) WriteVec(bufs ...[]byte) (int, error) { return c.out.write(bufs, true) }

// TryWrite writes what there is room for, without waiting.
func (c *Conn) TryWrite(p []byte) (int, error) { return c.TryWriteVec(p) }

// TryWriteVec is TryWrite of several buffers.
func (c *Conn) TryWriteVec(bufs ...[]byte) (int, error) { return c.out.write(bufs, false) }

func (h *half) write(bufs [][]byte, all bool) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, b := range bufs {
		for len(b) > 0 {
			switch {
			case !h.end.IsZero():
				return n, failed("write", net.ErrClosed)
			case all && h.writeBy.passed():
				return n, failed("write", os.ErrDeadlineExceeded)
			case h.reset:
				return n, failed("write", syscall.ECONNRESET)
			case h.unread:
				return n, failed("write", syscall.EPIPE)
			}
			room := min(h.o.Buffer-h.size, len(b))
			if room <= 0 {
				if !all {
					return n, nil
				}
				h.changed.Wait()
				continue
			}
			h.put(b[:room])
			n, b = n+room, b[room:]
		}
	}
	return n, nil
}

// put sends b. mu is held.
func (h *half) put(b []byte) {
	at := time.Now().Add(h.o.Delay)
	h.size += len(b)
	if last := len(h.queue) - 1; last >= 0 && h.queue[last].at.Equal(at) {
		h.queue[last].data = append(h.queue[last].data, b...)
	} else {
		h.queue = append(h.queue, segment{at, append([]byte(nil), b...)})
		if h.o.Delay > 0 {
			time.AfterFunc(h.o.Delay, h.wake)
		}
	}
	h.changed.Broadcast()
}

// finish ends the direction behind what was written.
func (h *half) finish() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end.IsZero() {
		h.end = time.Now().Add(h.o.Delay)
		time.AfterFunc(h.o.Delay, h.wake)
	}
	h.stop(&h.writeBy)
}

// stop ends a deadline for good. mu is held.
func (h *half) stop(d *deadline) {
	if d.timer != nil {
		d.timer.Stop()
	}
	h.changed.Broadcast()
}

// CloseWrite ends this end's direction; the peer reads io.EOF behind what was written.
func (c *Conn) CloseWrite() error { c.out.finish(); return nil }

// Close implements net.Conn.
func (c *Conn) Close() error {
	h := c.in
	h.mu.Lock()
	closed := h.unread
	h.unread, h.queue, h.size = true, nil, 0
	h.stop(&h.readBy)
	h.mu.Unlock()
	c.out.finish()
	if closed {
		return failed("close", net.ErrClosed)
	}
	return nil
}

// Reset ends the connection as a TCP reset does: what was written here still arrives, and all other
// calls of the peer fail.
func (c *Conn) Reset() {
	for _, h := range []*half{c.in, c.out} {
		h.mu.Lock()
		h.reset = true
		h.mu.Unlock()
	}
	c.Close()
}

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	c.in.set(&c.in.readBy, t)
	c.out.set(&c.out.writeBy, t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { c.in.set(&c.in.readBy, t); return nil }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { c.out.set(&c.out.writeBy, t); return nil }

type addr struct{}

func (addr) Network() string { return "memory" }
func (addr) String() string  { return "memory" }

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return addr{} }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return addr{} }
