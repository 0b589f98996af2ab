package punch

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/isthmus-grid/isthmus/overlay"
)

// How a stream begins.
const (
	hello   = 1 // the first stream, from the controlling end; without data the other end would not see it
	opened  = 2 // a later stream; token[16] follows
	welcome = 3 // the accepting end's answer on a later stream
)

const (
	// arrivedLife is how long a stream waits to be accepted, and for the rest of its token.
	arrivedLife = 5 * time.Second
	maxArrived  = 16 // waiting streams; one more is refused
)

// arrival is a stream for whose token no Accept is pending yet.
type arrival struct {
	stream *quic.Stream
	life   *time.Timer
}

// serveStreams accepts the peer's streams until the connection is over.
func (t *Tunnel) serveStreams() {
	for {
		s, err := t.quic.AcceptStream(t.quic.Context())
		if err != nil {
			return
		}
		go t.admit(s) // QUIC limits these to maxStreams
	}
}

// admit reads the token of a stream and hands the stream to the pending Accept.
func (t *Tunnel) admit(s *quic.Stream) {
	var head [1 + TokenLen]byte
	s.SetReadDeadline(time.Now().Add(arrivedLife))
	_, err := io.ReadFull(s, head[:])
	s.SetReadDeadline(time.Time{})
	if err != nil || head[0] != opened || !t.arrive(Token(head[1:]), s) {
		refuse(s)
	}
}

func refuse(s *quic.Stream) {
	s.CancelRead(codeAbort)
	s.CancelWrite(codeAbort)
}

// arrive hands the stream to a pending Accept or stores it, and reports whether it could.
func (t *Tunnel) arrive(token Token, s *quic.Stream) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ch := t.awaited[token]; ch != nil {
		delete(t.awaited, token)
		ch <- s
		return true
	}
	if t.over || t.arrived[token] != nil || len(t.arrived) >= maxArrived {
		return false
	}
	a := &arrival{stream: s}
	a.life = time.AfterFunc(arrivedLife, func() {
		t.mu.Lock()
		mine := t.arrived[token] == a
		if mine {
			delete(t.arrived, token)
		}
		t.mu.Unlock()
		if mine {
			refuse(s)
		}
	})
	t.arrived[token] = a
	return true
}

// Accept waits for the stream with the token, which the peer may have opened already, and welcomes
// it. When ctx ends first, the error is overlay.ErrTimeout; when the tunnel ends, net.ErrClosed.
func (t *Tunnel) Accept(ctx context.Context, token Token) (*Conn, error) {
	if err := t.enter(); err != nil {
		return nil, fmt.Errorf("punch.Accept: %w", err)
	}
	s, err := t.await(ctx, token)
	if err != nil {
		t.leave(codeClosed)
		return nil, fmt.Errorf("punch.Accept: waiting for a stream from %v that shows its token: %w", t.quic.RemoteAddr(), err)
	}
	c := t.newConn(s, Setup{})
	if _, err := s.Write([]byte{welcome}); err != nil {
		c.Abort()
		return nil, fmt.Errorf("punch.Accept: %w", err)
	}
	return c, nil
}

// await returns the stream with the token.
func (t *Tunnel) await(ctx context.Context, token Token) (*quic.Stream, error) {
	t.mu.Lock()
	if a := t.arrived[token]; a != nil {
		a.life.Stop()
		delete(t.arrived, token)
		t.mu.Unlock()
		return a.stream, nil
	}
	if t.awaited[token] != nil {
		t.mu.Unlock()
		return nil, fmt.Errorf("%w: another caller waits for that token already", overlay.ErrRefused)
	}
	ch := make(chan *quic.Stream, 1)
	t.awaited[token] = ch
	t.mu.Unlock()

	var err error
	select {
	case s := <-ch:
		return s, nil
	case <-t.Done():
		err = net.ErrClosed
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", overlay.ErrTimeout, context.Cause(ctx))
	}
	t.mu.Lock()
	delete(t.awaited, token)
	t.mu.Unlock()
	select {
	case s := <-ch: // it arrived at the same time
		refuse(s)
	default:
	}
	return nil, err
}
