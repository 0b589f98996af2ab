package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/ticket"
	"github.com/isthmus-grid/isthmus/wire"
)

// end is one connection that showed a good ticket.
type end struct {
	conn   *net.TCPConn
	ticket *wire.Ticket
	since  time.Time // when it was accepted
}

// serveConn takes a connection from its first byte to its link's end, or to
// the hands of the other end's goroutine.
//
//	accepted --ticket--> first of its link --second comes--> joined by the second's goroutine
//	    |                        \--nobody comes--> refused
//	    |---ticket--> second of its link --> joined here
//	    |---observe--> told where it comes from, and held until it closes
//	    \---no ticket, bad ticket, over a limit--> refused
func (s *Server) serveConn(ctx context.Context, c *net.TCPConn) {
	e := &end{conn: c, since: time.Now()}
	if !s.beginHandshake() {
		s.refuseUnread(c)
		return
	}
	if err := carrier.Tune(c, s.set.Tuning); err != nil {
		s.log.Debug("socket not tuned", "error", err)
	}
	frame, err := s.readFirst(ctx, e)
	s.endHandshake()
	if err != nil {
		s.refuse(e, err)
		return
	}
	s.serveFirst(ctx, e, frame)
}

// serveFirst does what the connection's first frame asks for.
func (s *Server) serveFirst(ctx context.Context, e *end, frame wire.Frame) {
	asks, err := s.take(e, frame)
	switch {
	case err != nil && s.passOn(e, err):
	case err != nil:
		s.refuse(e, err)
	case asks:
		s.observe(ctx, e.conn)
	default:
		s.meet(ctx, e)
	}
}

// observe answers somebody who asks where he comes from, until he hangs up. After
// StopAccepting nobody is waited for: who measures may hold on for minutes.
func (s *Server) observe(ctx context.Context, c *net.TCPConn) {
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

// readFirst reads the first frame and nothing after it.
func (s *Server) readFirst(ctx context.Context, e *end) (wire.Frame, error) {
	e.conn.SetReadDeadline(time.Now().Add(s.set.TicketTime))
	stop := context.AfterFunc(ctx, func() { e.conn.SetReadDeadline(time.Unix(1, 0)) })
	frame, err := wire.Read(e.conn)
	if !stop() {
		return nil, stopping()
	}
	e.conn.SetReadDeadline(time.Time{})
	if err != nil {
		return nil, s.unreadable(err)
	}
	return frame, nil
}

// take checks the ticket that the first frame should be. Instead of a ticket
// there may be an observe frame, from somebody who only asks.
func (s *Server) take(e *end, frame wire.Frame) (asks bool, err error) {
	if frame.Type() == wire.TypeObserve {
		return true, nil
	}
	t, ok := frame.(*wire.Ticket)
	if !ok {
		return false, refusal(NotATicket, wire.CodeMalformed, "the first frame must be a ticket, this is a %v frame", frame.Type())
	}
	e.ticket = t
	if err := s.checker.Check(t, time.Now()); err != nil {
		var bad *ticket.Error
		errors.As(err, &bad)
		return false, refusal(Reason(bad.Reason), wire.CodeOf(err), "%v", err)
	}
	return false, nil
}

// unreadable says why no frame could be read.
func (s *Server) unreadable(err error) error {
	var ne net.Error
	switch {
	case errors.As(err, &ne) && ne.Timeout():
		return refusal(NoTicket, wire.CodeTimeout, "waited %v for a ticket; it did not come", s.set.TicketTime)
	case errors.Is(err, wire.ErrMagic), errors.Is(err, wire.ErrVersion), errors.Is(err, wire.ErrMalformed), errors.Is(err, wire.ErrType):
		return refusal(NotATicket, wire.CodeOf(err), "%v", err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return refusal(NoTicket, wire.CodeRefused, "the connection ended before a ticket came")
	}
	return refusal(NoTicket, wire.CodeRefused, "no ticket came: %v", err)
}

func (s *Server) beginHandshake() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handshakes >= s.limits.Handshakes {
		return false
	}
	s.handshakes++
	return true
}

func (s *Server) endHandshake() {
	s.mu.Lock()
	s.handshakes--
	s.mu.Unlock()
}

// refuseUnread turns a connection away before reading its ticket. Those who
// are told so are as many as may show a ticket; the rest is closed on.
func (s *Server) refuseUnread(c *net.TCPConn) {
	s.mu.Lock()
	most := s.limits.Handshakes
	told := s.refusing < most
	if told {
		s.refusing++
	}
	s.mu.Unlock()
	if !told {
		s.count.refuse(TooManyHandshakes)
		s.auditRefusal(&end{conn: c}, &refusalError{reason: TooManyHandshakes, text: "closed without a word"})
		c.Close()
		return
	}
	s.refuse(&end{conn: c}, refusal(TooManyHandshakes, wire.CodeOverloaded,
		"%d connections are showing their tickets already; try again", most))
	s.mu.Lock()
	s.refusing--
	s.mu.Unlock()
}
