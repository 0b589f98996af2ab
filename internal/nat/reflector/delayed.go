package reflector

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A delayed answer is a nonce that is sent after an idle period, to a question: from the
// STUN port to the source of a request, or on the connection of an observe frame. Whether it
// arrives shows whether the asker's NAT or filter still has the state of the question.

// Bounds of delayed answers.
const (
	maxOwed   = 256             // connections with a delayed answer, per Observer
	maxDue    = 1024            // delayed datagrams, per Sockets
	keepBound = 5 * time.Second // to write a nonce and wait for the other side to close
)

// Point is the source of one reflector's call-backs. Sockets may be nil.
type Point struct {
	Observer *Observer
	Sockets  *Sockets
}

// CallBack is the function CallBack for immediate targets. For a delayed target it schedules an
// answer: the outcome is PROMISED, or UNKNOWN with the reason.
func (p Point) CallBack(ctx context.Context, t Target) *controlpb.CallBackResponse {
	var err error
	switch {
	case t.Quiet:
		port, err := p.Observer.keepQuiet(t.To)
		if err != nil {
			return &controlpb.CallBackResponse{Outcome: controlpb.CallBackResponse_UNKNOWN, Text: err.Error()}
		}
		return &controlpb.CallBackResponse{Outcome: controlpb.CallBackResponse_PROMISED, Port: uint32(port), Text: fmt.Sprintf("port %d is kept for %v", port, quietLife)}
	case t.Port != 0:
		return p.Observer.callQuiet(ctx, t)
	case t.After == 0:
		return CallBack(ctx, t, netip.Addr{})
	case !t.UDP:
		err = p.Observer.delay(t)
	case p.Sockets == nil:
		err = fmt.Errorf("%w: there is no STUN port here to answer from", overlay.ErrNoPath)
	default:
		err = p.Sockets.due.add(due{to: t.To, nonce: t.Nonce, at: time.Now().Add(t.After), copies: udpCopies})
	}
	if err != nil {
		return &controlpb.CallBackResponse{Outcome: controlpb.CallBackResponse_UNKNOWN, Text: err.Error()}
	}
	return &controlpb.CallBackResponse{Outcome: controlpb.CallBackResponse_PROMISED, Text: fmt.Sprintf("%v is answered in %v", t.To, t.After)}
}

// question is a connection that an Observer holds, with its delayed answer. Observer.mu guards all
// but conn.
type question struct {
	conn  net.Conn
	at    time.Time // zero: no delayed answer
	nonce [NonceLen]byte
}

// enter records a held connection, so that an answer can be scheduled on it.
func (o *Observer) enter(from netip.AddrPort, c net.Conn) *question {
	q := &question{conn: c}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held[from] = q
	return q
}

func (o *Observer) leave(from netip.AddrPort, q *question) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held[from] == q { // an address may have asked again
		delete(o.held, from)
	}
	if !q.at.IsZero() {
		o.owed--
	}
}

// delay holds the connection from t.To until t.After is over, and has the nonce sent on it then.
// It is idle until then: the system's keep-alive is turned off, too.
func (o *Observer) delay(t Target) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.held[t.To]
	switch {
	case q == nil:
		return fmt.Errorf("%w: no connection from %v is held here", overlay.ErrUnreachable, t.To)
	case !q.at.IsZero():
		return fmt.Errorf("%w: an answer to %v is scheduled already", overlay.ErrForbidden, t.To)
	case o.owed >= maxOwed:
		return fmt.Errorf("%w: %d connections wait for a delayed answer, the limit", overlay.ErrOverloaded, o.owed)
	}
	if tcp, ok := q.conn.(interface{ SetKeepAlive(bool) error }); ok {
		if err := tcp.SetKeepAlive(false); err != nil {
			return fmt.Errorf("turning off the keep-alive of the connection from %v: %w", t.To, err)
		}
	}
	o.owed++
	q.at, q.nonce = time.Now().Add(t.After), t.Nonce
	q.conn.SetDeadline(q.at) // wakes its reader, serveConn
	return nil
}

// keep sends the delayed answer to q, if it is due. The reader of the connection calls it.
func (o *Observer) keep(q *question) {
	o.mu.Lock()
	at, nonce := q.at, q.nonce
	o.mu.Unlock()
	if at.IsZero() || time.Now().Before(at) {
		return // the connection is being ended
	}
	q.conn.SetDeadline(time.Now().Add(keepBound))
	if _, err := q.conn.Write(nonce[:]); err != nil {
		return
	}
	if half, ok := q.conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
		io.Copy(io.Discard, io.LimitReader(q.conn, 4<<10)) // until the other side has read and closed
	}
}

// due is a datagram to be sent.
type due struct {
	to     netip.AddrPort
	nonce  [NonceLen]byte
	at     time.Time
	copies int // still to be sent, a little apart
}

// schedule holds the delayed datagrams, at most maxDue. It is safe for concurrent use.
type schedule struct {
	wake chan struct{} // holds a value after an addition

	mu  sync.Mutex // guards all
	all []due      // unordered
}

func newSchedule() *schedule { return &schedule{wake: make(chan struct{}, 1)} }

func (s *schedule) add(d due) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= maxDue {
		return fmt.Errorf("%w: %d datagrams are scheduled, the limit", overlay.ErrOverloaded, len(s.all))
	}
	s.all = append(s.all, d)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// take returns the datagrams that are due, each once, and when to call it again; the zero time
// means when something was added.
func (s *schedule) take(now time.Time) (send []due, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := s.all[:0]
	for _, d := range s.all {
		if !d.at.After(now) {
			send = append(send, d)
			d.copies--
			d.at = now.Add(udpSilence / udpCopies)
		}
		if d.copies <= 0 {
			continue
		}
		if next.IsZero() || d.at.Before(next) {
			next = d.at
		}
		rest = append(rest, d)
	}
	clear(s.all[len(rest):])
	s.all = rest
	return send, next
}

// serve sends due datagrams from pc until ctx is done. What cannot be sent counts as lost on the
// way.
func (s *schedule) serve(ctx context.Context, pc net.PacketConn) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-t.C:
		}
		send, next := s.take(time.Now())
		for _, d := range send {
			pc.WriteTo(d.nonce[:], net.UDPAddrFromAddrPort(d.to))
		}
		if !next.IsZero() {
			t.Reset(time.Until(next))
		}
	}
}
