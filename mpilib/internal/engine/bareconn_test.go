package engine

import (
	"net"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/link/stream"
)

// socket is a TCP or Unix socket.
type socket interface {
	net.Conn
	CloseRead() error
	CloseWrite() error
}

// bareConn is a socket in the place of a link. Once told to, a goroutine of its own writes what was appended; it ends with the
// connection.
type bareConn struct {
	socket
	before, after func(written) // called by that goroutine around the write of each part; nil: not

	mu          sync.Mutex
	user        stream.User
	waits, free []written
	added, sent uint64 // bytes
	writes      bool
	refused     bool
	reclaims    bool // Reclaim has refused something
	closed      bool
	err         error
	flush       chan struct{}
}

// written is something that is to be written: copied, or lent.
type written struct {
	b    []byte
	lent bool
}

// maxWaiting is how many bytes may wait for a bareConn's socket.
const maxWaiting = 1 << 20

func bare(c socket) *bareConn {
	b := &bareConn{socket: c, flush: make(chan struct{}, 1)}
	go b.write()
	return b
}

func (c *bareConn) SetUser(u stream.User) { c.user = u }

func (c *bareConn) Append(how stream.How, head, body []byte) (mark uint64, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.added - c.sent
	switch {
	case c.closed:
		return 0, false, net.ErrClosed
	case c.err != nil:
		return 0, false, c.err
	case waiting >= maxWaiting, how == stream.Fresh && waiting > 0:
		c.refused = true
		return 0, false, nil
	}
	c.add(head)
	c.added += uint64(len(head) + len(body))
	if how != stream.Lend || len(body) < 16<<10 {
		c.add(body)
		return 0, true, nil
	}
	c.waits = append(c.waits, written{b: body, lent: true})
	return c.added, true, nil
}

// add adds a copy of b, in memory that is used again.
func (c *bareConn) add(b []byte) {
	if n := len(c.waits); n > 0 && !c.waits[n-1].lent && len(c.waits[n-1].b) < batchSize {
		c.waits[n-1].b = append(c.waits[n-1].b, b...)
		return
	}
	var w written
	if n := len(c.free); n > 0 {
		w, c.free = c.free[n-1], c.free[:n-1]
	}
	w.b = append(w.b[:0], b...)
	c.waits = append(c.waits, w)
}

// waiting reports whether something was appended that is not being written.
func (c *bareConn) waiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waits) > 0
}

func (c *bareConn) isWriting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

func (c *bareConn) Flush(bool) bool { wake(c.flush); return false }

func (c *bareConn) Push() bool { return c.Flush(true) }

func (c *bareConn) write() {
	for range c.flush {
		c.mu.Lock()
		for len(c.waits) > 0 {
			w := c.waits[0]
			c.waits = append(c.waits[:0], c.waits[1:]...)
			c.writes = true
			late := c.before != nil || c.after != nil
			if !late { // the peer may answer before Write returns
				c.sent += uint64(len(w.b))
			}
			c.mu.Unlock()
			if c.before != nil {
				c.before(w)
			}
			_, err := c.socket.Write(w.b)
			if c.after != nil {
				c.after(w)
			}
			c.mu.Lock()
			if late {
				c.sent += uint64(len(w.b))
			}
			if c.writes = false; !w.lent {
				c.free = append(c.free, w)
			}
			if err != nil {
				c.err, c.waits, c.sent = err, nil, c.added
			}
			if waiting := c.added - c.sent; c.reclaims || c.refused && (waiting == 0 || waiting < maxWaiting && len(c.waits) > 0) && err == nil {
				c.refused, c.reclaims = false, false
				c.mu.Unlock()
				c.user.Writable()
				c.mu.Lock()
			}
		}
		if c.closed {
			c.socket.Close()
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

func (c *bareConn) Released(mark uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent >= mark
}

func (c *bareConn) Reclaim(from, to uint64) (next uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, w := range c.waits {
		c.waits[i].b = append([]byte(nil), w.b...)
	}
	c.reclaims = c.reclaims || c.writes
	return to, !c.writes
}

func (c *bareConn) Calm() {}

// Close has what was appended written, for a second if the peer does not read.
func (c *bareConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.socket.CloseRead()
	c.socket.SetWriteDeadline(time.Now().Add(time.Second))
	c.Flush(true)
	return nil
}
