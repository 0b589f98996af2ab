package proxy

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/wire"
)

// This file ends a proxy that has work in progress. Either it drains: brokers are notified that it
// takes no new links, outstanding tickets are honoured, and its links leave one after the other
// where they can. Or a successor has its listeners: then it continues only with its links, and with
// connections that present a ticket under its key, which the successor passes on.

const (
	// drainQuiet is how long nothing must happen at a drained proxy: brokers that were notified
	// late may have assigned it to a link.
	drainQuiet = 2 * time.Second

	// drainInterval is the time between two links that are cut because there are other proxies, so that
	// they do not all look for their new one at once.
	drainInterval = 20 * time.Millisecond

	// returnQuiet is how long nothing must happen at a proxy that has a successor before it ends:
	// by then the holders of its tickets have used them.
	returnQuiet = 15 * time.Second
)

var errDrained = errors.New("the proxy drains")

// SetLimits changes the bounds for future connections; the bound on remembered tickets does not
// change.
func (s *Server) SetLimits(l Limits) {
	s.mu.Lock()
	s.limits = l
	s.mu.Unlock()
	s.half.SetMax(l.Handshakes, l.PerSource)
	s.noteChange() // brokers are notified of the capacity
}

// StopAccepting closes the listeners and affects nothing else.
func (s *Server) StopAccepting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stoppedLocked() {
		close(s.closed)
	}
}

func (s *Server) stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stoppedLocked()
}

func (s *Server) stoppedLocked() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// closeOnStop closes the listeners after StopAccepting. It ends with ctx.
func (s *Server) closeOnStop(ctx context.Context, listeners []*net.TCPListener) {
	select {
	case <-s.closed:
	case <-ctx.Done():
		return
	}
	for _, ln := range listeners {
		ln.Close()
	}
}

// Drain makes Status report that no new links are wanted, moves links to other proxies if there are
// any, and returns, no longer accepting connections, when nothing is left or ctx ends.
func (s *Server) Drain(ctx context.Context) {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	s.noteChange()
	ctx, cancel := context.WithCancel(ctx)
	var mover sync.WaitGroup
	mover.Go(func() { s.moveLinks(ctx) })
	s.awaitQuiet(ctx, drainQuiet)
	cancel()
	mover.Wait()
	s.StopAccepting()
}

// moveLinks cuts links one by one while a broker knows of other proxies: their ends reconnect
// through one of these, and lose no data. It ends with ctx.
func (s *Server) moveLinks(ctx context.Context) {
	sleep.For(ctx, drainQuiet) // until brokers are notified, and no longer assign this proxy
	for ctx.Err() == nil {
		if s.elsewhere.Load() {
			s.cutOne()
		}
		sleep.For(ctx, drainInterval)
	}
}

// cutOne cuts an arbitrary link.
func (s *Server) cutOne() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.links {
		if l.cut != nil {
			l.cut(errDrained)
			l.cut = nil // it is ending
			return
		}
	}
}

// linkCount returns the number of links, including those in the making.
func (s *Server) linkCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.links)
}

// awaitQuiet returns when there has been no connection and no change for d, or when ctx ends.
func (s *Server) awaitQuiet(ctx context.Context, d time.Duration) {
	for ctx.Err() == nil {
		changed, busy := s.busy()
		t := time.NewTimer(d)
		select {
		case <-t.C:
			if _, still := s.busy(); !busy && !still {
				return
			}
			// Not everything that ends is reported as a change: check again.
		case <-changed:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// busy reports whether there is a link or one in the making, and returns the channel that is closed
// when that may change.
func (s *Server) busy() (changed <-chan struct{}, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed, len(s.links)+len(s.waiting)+s.half.Stats().Used > 0
}

// serveReturned serves the connections that a successor passes on, until it is quiet here or ctx
// ends, and returns when the last of them has ended.
func (s *Server) serveReturned(ctx context.Context, returned <-chan daemon.Returned) {
	var work sync.WaitGroup
	defer work.Wait()
	quiet := make(chan struct{})
	work.Go(func() {
		s.awaitQuiet(ctx, returnQuiet)
		close(quiet)
	})
	for {
		select {
		case r := <-returned:
			s.count.accept()
			work.Go(func() { s.serveReturn(ctx, r) })
		case <-quiet:
			return
		}
	}
}

func (s *Server) serveReturn(ctx context.Context, r daemon.Returned) {
	e := &end{conn: r.Conn, since: time.Now()}
	frame, err := wire.Read(bytes.NewReader(r.First))
	if err != nil {
		s.refuse(e, s.unreadable(err))
		return
	}
	s.serveFirst(ctx, e, frame)
}

// passOn hands an end whose ticket is not under this proxy's key to the predecessor, and reports
// whether that took it. Only a plain socket can be handed over: an end inside TLS is refused, and
// returns with a ticket of this proxy.
func (s *Server) passOn(e *end, why error) bool {
	var r *refusalError
	if s.set.PassOn == nil || e.ticket == nil || !errors.As(why, &r) || r.reason != Reason(ticket.Forged) {
		return false
	}
	c, bare := e.conn.(*net.TCPConn)
	return bare && s.set.PassOn(c, wire.Append(nil, e.ticket)) == nil
}
