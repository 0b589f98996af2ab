package reflector

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
)

// Front is a listener in front of a TLS server that also answers observe frames on the same port,
// for sites that let only one port out. The first byte distinguishes the two: a TLS hello begins
// with 0x16, a frame with 'I'. Accept returns connections of the first kind with every byte still
// to be read.
//
//	ln --- 'I' ---> Observer
//	   \-- else --> Accept
type Front struct {
	ln       net.Listener
	observer *Observer
	log      *slog.Logger
	tls      chan net.Conn
	silent   *accept.HalfOpen // connections whose first byte has not arrived
	done     chan struct{}    // closed when Serve or Close ends it
	once     sync.Once

	mu  sync.Mutex // guards err
	err error
}

// NewFront returns a Front for ln, which it owns. silent bounds the connections that have not sent
// anything yet. Nothing is accepted before Serve runs.
func NewFront(ln net.Listener, observer *Observer, silent *accept.HalfOpen, log *slog.Logger) *Front {
	return &Front{ln: ln, observer: observer, log: log, tls: make(chan net.Conn), silent: silent, done: make(chan struct{})}
}

// Serve accepts until ctx is done, Close is called or the listener fails. It returns when every
// connection that Accept did not return is closed.
func (f *Front) Serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var conns sync.WaitGroup
	defer conns.Wait()
	defer cancel()
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.Close() })()
	err := accept.Each(ctx, f.log, f.ln.Addr(), f.ln.Accept, func(c net.Conn) {
		place, err := f.silent.Enter(c)
		if err != nil {
			c.Close()
			return
		}
		conns.Go(func() { f.sort(ctx, c, place) })
	})
	if err != nil {
		f.fail(err)
	}
}

// sort waits for the first byte of c and passes c on.
func (f *Front) sort(ctx context.Context, c net.Conn, place *limit.Place[accept.Source]) {
	stop := context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Unix(1, 0)) })
	c.SetReadDeadline(time.Now().Add(firstFrame))
	first := make([]byte, 1)
	_, err := c.Read(first)
	kept := place.Leave()
	if !stop() || !kept || err != nil {
		c.Close()
		return
	}
	c.SetReadDeadline(time.Time{})
	begun := carrier.Unread(c, first)
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

// Accept returns the next connection that is not for the observer.
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

// fail ends Accept with err, unless it has ended already.
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
