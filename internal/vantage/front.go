package vantage

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Front is a listener before a TLS server that also answers observe frames on
// the same port, for sites that let only one port out. The first byte tells
// the two apart: a TLS hello begins with 0x16, a frame with 'I'. Connections
// of the first kind come out of Accept with every byte still to be read.
//
//	ln --- 'I' ---> Observer
//	   \-- else --> Accept
type Front struct {
	ln       net.Listener
	observer *Observer
	log      *slog.Logger
	tls      chan net.Conn
	silent   chan struct{} // a place for each connection whose first byte has not come
	done     chan struct{} // closed when Serve or Close ends it
	once     sync.Once

	mu  sync.Mutex // guards err
	err error

	dropped atomic.Uint64
}

// maxSilent bounds the connections that have not said anything yet. One more
// is closed at once.
const maxSilent = 1024

// NewFront returns a Front for ln, which it owns. Nothing is accepted before
// Serve runs.
func NewFront(ln net.Listener, observer *Observer, log *slog.Logger) *Front {
	return &Front{
		ln: ln, observer: observer, log: log,
		tls: make(chan net.Conn), silent: make(chan struct{}, maxSilent), done: make(chan struct{}),
	}
}

// Serve accepts until ctx is done, Close is called or the listener fails. It
// returns when every connection that did not come out of Accept is closed.
func (f *Front) Serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel()
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.Close() })()
	for {
		c, err := f.ln.Accept()
		switch {
		case err == nil:
		case passes(err) && ctx.Err() == nil:
			f.log.Warn("cannot accept connections for now", "listener", f.ln.Addr().String(), "error", err)
			pause(ctx, 100*time.Millisecond)
			continue
		default:
			f.fail(err)
			return
		}
		select {
		case f.silent <- struct{}{}:
			conns.Go(func() { f.sort(ctx, c) })
		default:
			f.dropped.Add(1)
			c.Close()
		}
	}
}

// sort waits for the first byte of c and passes c on.
func (f *Front) sort(ctx context.Context, c net.Conn) {
	stop := context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Unix(1, 0)) })
	c.SetReadDeadline(time.Now().Add(firstFrame))
	first := make([]byte, 1)
	_, err := c.Read(first)
	<-f.silent
	if !stop() || err != nil {
		c.Close()
		return
	}
	c.SetReadDeadline(time.Time{})
	begun := &begunConn{Conn: c, first: first}
	if first[0] == 'I' {
		f.observer.Take(ctx, begun)
		return
	}
	select {
	case f.tls <- begun:
	case <-f.done:
		c.Close()
	}
}

// Dropped returns how many connections were closed because too many had not
// said anything yet.
func (f *Front) Dropped() uint64 { return f.dropped.Load() }

// Accept returns the next connection that is no observer's.
func (f *Front) Accept() (net.Conn, error) {
	select {
	case c := <-f.tls:
		return c, nil
	case <-f.done:
		f.mu.Lock()
		defer f.mu.Unlock()
		return nil, f.err
	}
}

// Close closes the listener; Accept then fails.
func (f *Front) Close() error {
	f.fail(net.ErrClosed)
	return f.ln.Close()
}

// fail ends Accept with err, unless something did before.
func (f *Front) fail(err error) {
	f.once.Do(func() {
		f.mu.Lock()
		f.err = err
		f.mu.Unlock()
		close(f.done)
	})
}

// Addr returns the listener's address.
func (f *Front) Addr() net.Addr { return f.ln.Addr() }

// begunConn is a connection whose first byte was read ahead.
type begunConn struct {
	net.Conn
	first []byte // owned by the reader
}

// NetConn returns the connection itself.
func (c *begunConn) NetConn() net.Conn { return c.Conn }

func (c *begunConn) Read(p []byte) (int, error) {
	if len(c.first) == 0 || len(p) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.first)
	c.first = c.first[n:]
	return n, nil
}

// CloseWrite ends the sending side alone, where the connection can.
func (c *begunConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// SetKeepAlive turns TCP's own keep-alive on or off, where there is one.
func (c *begunConn) SetKeepAlive(on bool) error {
	if tcp, ok := c.Conn.(interface{ SetKeepAlive(bool) error }); ok {
		return tcp.SetKeepAlive(on)
	}
	return nil
}
