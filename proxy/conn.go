package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/encap"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/wire"
)

// end is one connection that presented a valid ticket.
type end struct {
	conn   carrier.Stream // the accepted *net.TCPConn, or the stream inside it
	form   encap.Form
	ticket *wire.Ticket
	since  time.Time // when it was accepted
}

// serveConn serves a connection from its first byte to its link's end, or until the other end's
// goroutine takes it over.
//
//	accepted --handshake, if it begins as TLS or HTTP--> the stream inside
//	    |---ticket--> first of its link --second arrives--> joined by the second's goroutine
//	    |                        \--second does not arrive--> refused
//	    |---ticket--> second of its link --> joined here
//	    |---observe--> answered with its source address, and held until it closes
//	    |---share--> its streams are served so, from the ticket on
//	    \---no ticket, bad ticket, over a limit--> refused
func (s *Server) serveConn(ctx context.Context, c *net.TCPConn) {
	e := &end{conn: c, since: time.Now()}
	place, err := s.half.Enter(c)
	if err != nil {
		s.refuseUnread(c, err)
		return
	}
	if err := carrier.Tune(c, s.set.Tuning); err != nil {
		s.log.Debug("socket not tuned", "error", err)
	}
	frame, err := s.readFirst(ctx, e, c)
	if !place.Leave() {
		return // closed to make room for another source
	}
	if err != nil {
		s.refuse(e, err)
		return
	}
	s.serveFirst(ctx, e, frame)
}

// serveFirst serves the request of the connection's first frame.
func (s *Server) serveFirst(ctx context.Context, e *end, frame wire.Frame) {
	switch frame.Type() {
	case wire.TypeObserve: // a peer that only asks for its address
		s.observe(ctx, e.conn)
		return
	case wire.TypeShare:
		s.share(ctx, e)
		return
	}
	switch err := s.take(e, frame); {
	case err != nil && s.passOn(e, err):
	case err != nil:
		s.refuse(e, err)
	default:
		s.pair(ctx, e)
	}
}

// observe answers a peer that asks for its source address, until the peer hangs up. After
// StopAccepting it does not wait for the peer: one that measures may hold the connection for
// minutes.
func (s *Server) observe(ctx context.Context, c carrier.Stream) {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() {
		select {
		case <-s.closed:
			cancel()
		case <-ctx.Done():
		}
	})
	s.observer.Answer(ctx, c)
}

// readFirst determines the encapsulation of the connection, and reads the first frame and nothing
// after it.
func (s *Server) readFirst(ctx context.Context, e *end, c *net.TCPConn) (frame wire.Frame, err error) {
	c.SetDeadline(time.Now().Add(s.set.TicketTime))
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	var cfg *tls.Config
	if s.set.TLS != nil {
		cfg = s.set.TLS()
	}
	accepted, err := encap.Accept(c, cfg)
	if err == nil {
		e.conn, e.form = accepted.Stream, accepted.Form
		frame, err = wire.Read(accepted.First)
	}
	if !stop() {
		return nil, stopping()
	}
	c.SetDeadline(time.Time{})
	if err != nil {
		return nil, s.unreadable(err)
	}
	return frame, nil
}

// take checks the ticket, which should be the first frame.
func (s *Server) take(e *end, frame wire.Frame) error {
	t, ok := frame.(*wire.Ticket)
	if !ok {
		return refusal(NotATicket, wire.CodeMalformed, "the first frame must be a ticket, this is a %v frame", frame.Type())
	}
	e.ticket = t
	if err := s.checker.Check(t, s.clock()); err != nil {
		var bad *ticket.Error
		errors.As(err, &bad)
		return refusal(Reason(bad.Reason), wire.CodeOf(err), "%v", err)
	}
	return nil
}

// unreadable returns why no frame could be read.
func (s *Server) unreadable(err error) error {
	var ne net.Error
	switch {
	case errors.Is(err, encap.ErrHandshake):
		return refusal(NoHandshake, wire.CodeMalformed, "%v", err)
	case errors.As(err, &ne) && ne.Timeout():
		return refusal(NoTicket, wire.CodeTimeout, "no ticket within %v", s.set.TicketTime)
	case errors.Is(err, wire.ErrMagic), errors.Is(err, wire.ErrVersion), errors.Is(err, wire.ErrMalformed), errors.Is(err, wire.ErrType):
		return refusal(NotATicket, wire.CodeOf(err), "%v", err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return refusal(NoTicket, wire.CodeRefused, "the connection ended before a ticket")
	}
	return refusal(NoTicket, wire.CodeRefused, "no ticket: %v", err)
}

// refuseUnread refuses a connection before reading its ticket. At most limits.Handshakes
// connections at a time get a refusal; the others are closed without one.
func (s *Server) refuseUnread(c *net.TCPConn, why error) {
	s.mu.Lock()
	told := s.refusing < s.limits.Handshakes
	if told {
		s.refusing++
	}
	s.mu.Unlock()
	if !told {
		c.Close()
		return
	}
	sayGoodbye(c, &wire.Refuse{Code: wire.CodeOverloaded, By: "proxy " + s.set.Name, Text: why.Error()})
	s.mu.Lock()
	s.refusing--
	s.mu.Unlock()
}
