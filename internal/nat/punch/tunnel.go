package punch

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/isthmus-grid/isthmus/internal/rtt"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A Tunnel is the QUIC connection between two hosts, with its socket. Connect makes it with its
// first stream; either end may open more, which takes no negotiation, and the other accepts each by
// the token that it presents:
//
//	end A: Open(token) ──── stream: token ────▶ Accept(token)
//	       Await       ◀─── stream: welcome ──
//
// Whichever end has the tunnel and knows a token that the other end waits for gets a stream; the
// two ends agree on tokens over another channel, which must be as secure as that of the
// descriptions.
//
// A tunnel ends with its last stream, or as long after it as Keep says; nothing else ends it. Its
// methods are safe for concurrent use.
type Tunnel struct {
	quic    *quic.Conn
	id      [TokenLen]byte
	release func() // closes transport and socket

	mu       sync.Mutex
	users    int           // streams, and calls that open or wait for one
	keep     time.Duration // how long to stay without users
	idle     *time.Timer   // ends the tunnel; not nil while it is kept without users
	rests    uint64        // number of periods without users so far
	over     bool          // ending or ended
	unmarked map[quic.StreamID]chan struct{}
	arrived  map[Token]*arrival          // streams that are not accepted yet
	awaited  map[Token]chan *quic.Stream // pending Accepts; each channel is buffered for one
}

// TokenLen is the length of a Token in bytes.
const TokenLen = 16

// A Token names one stream. It should be random, because it is valid for one stream, and only the
// two ends should know it.
type Token [TokenLen]byte

// maxStreams is the maximum number of streams that each end may have open in a tunnel.
const maxStreams = 64

func newTunnel(q *quic.Conn, release func()) (*Tunnel, error) {
	t := &Tunnel{
		quic: q, release: release,
		unmarked: make(map[quic.StreamID]chan struct{}),
		arrived:  make(map[Token]*arrival),
		awaited:  make(map[Token]chan *quic.Stream),
	}
	tls := q.ConnectionState().TLS
	id, err := tls.ExportKeyingMaterial("EXPORTER-isthmus-punch-tunnel", nil, len(t.id))
	if err != nil {
		return nil, fmt.Errorf("naming the tunnel: %w", err)
	}
	copy(t.id[:], id)
	return t, nil
}

// start serves the peer's streams and marks until the connection is over.
func (t *Tunnel) start() {
	go t.serveMarks()
	go func() {
		t.serveStreams()
		// Streams fail a moment before the context is done, and died must find it done: otherwise it
		// would keep a dead tunnel for as long as one without users.
		<-t.quic.Context().Done()
		t.died()
	}()
}

// ID names the tunnel, the same at both ends. It is derived from the TLS keys (RFC 8446 section
// 7.5) and cannot be used by other hosts.
func (t *Tunnel) ID() [TokenLen]byte { return t.id }

// Done returns a channel that is closed when the connection has ended or its path was found dead,
// which takes up to half a minute of silence.
func (t *Tunnel) Done() <-chan struct{} { return t.quic.Context().Done() }

// RTT returns what is known of the path, from all that the tunnel has carried.
func (t *Tunnel) RTT() rtt.Estimate {
	s := t.quic.ConnectionStats()
	return rtt.Estimate{SRTT: s.SmoothedRTT, Var: s.MeanDeviation}
}

// Keep sets how long the tunnel stays when no stream is left. Zero, the initial value, ends it with
// its last stream, or now if there is none.
func (t *Tunnel) Keep(d time.Duration) {
	t.mu.Lock()
	t.keep = d
	end := t.users == 0 && t.enterIdle()
	t.mu.Unlock()
	if end {
		t.end(codeClosed)
	}
}

// enter adds a user.
func (t *Tunnel) enter() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return fmt.Errorf("the tunnel to %v has ended: %w", t.quic.RemoteAddr(), net.ErrClosed)
	}
	if cause := context.Cause(t.quic.Context()); cause != nil {
		return fmt.Errorf("the tunnel to %v has ended: %w: %w", t.quic.RemoteAddr(), net.ErrClosed, cause)
	}
	t.users++
	if t.idle != nil {
		t.idle.Stop()
		t.idle = nil
	}
	return nil
}

// leave removes a user; the last one may end the tunnel, with code.
func (t *Tunnel) leave(code quic.ApplicationErrorCode) {
	t.mu.Lock()
	t.users--
	end := t.users == 0 && t.enterIdle()
	t.mu.Unlock()
	if end {
		t.end(code)
	}
}

// enterIdle begins a period without users. mu is held. It reports whether the tunnel is not kept
// and the caller must end it.
func (t *Tunnel) enterIdle() (end bool) {
	if t.over {
		return false
	}
	if t.idle != nil {
		t.idle.Stop()
		t.idle = nil
	}
	if t.keep <= 0 || t.quic.Context().Err() != nil {
		t.over = true
		return true
	}
	t.rests++
	this := t.rests
	t.idle = time.AfterFunc(t.keep, func() { t.expire(this) })
	return false
}

// expire ends the tunnel unless it was used since that period began.
func (t *Tunnel) expire(rest uint64) {
	t.mu.Lock()
	end := t.idle != nil && t.rests == rest && !t.over
	t.over = t.over || end
	t.mu.Unlock()
	if end {
		t.end(codeClosed)
	}
}

// died ends a tunnel whose connection is over, unless it still has users; the last of them ends it
// on leaving.
func (t *Tunnel) died() {
	t.mu.Lock()
	end := t.users == 0 && t.enterIdle()
	t.mu.Unlock()
	if end {
		t.end(codeClosed)
	}
}

// end ends the tunnel. The caller has set over.
func (t *Tunnel) end(code quic.ApplicationErrorCode) {
	t.mu.Lock()
	if t.idle != nil {
		t.idle.Stop()
	}
	for _, a := range t.arrived {
		a.life.Stop()
	}
	clear(t.arrived)
	t.mu.Unlock()
	t.quic.CloseWithError(code, "")
	t.release()
}

// newConn makes a Conn of a stream, for a user that has entered.
func (t *Tunnel) newConn(s *quic.Stream, setup Setup) *Conn {
	c := &Conn{
		tunnel: t, stream: s, setup: setup,
		marked: make(chan struct{}), closed: make(chan struct{}), left: make(chan struct{}),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unmarked[s.StreamID()] = c.marked
	return c
}

// An Opening is a stream that the peer has not accepted yet.
type Opening struct{ conn *Conn }

// Open opens a stream and presents the token. It does not wait; Await does. The error is
// net.ErrClosed when the tunnel has ended, overlay.ErrOverloaded when too many streams are open.
func (t *Tunnel) Open(token Token) (*Opening, error) {
	if err := t.enter(); err != nil {
		return nil, fmt.Errorf("punch.Open: %w", err)
	}
	s, err := t.quic.OpenStream()
	if err != nil {
		t.leave(codeClosed)
		return nil, fmt.Errorf("punch.Open: a stream of the tunnel to %v: %w: %w", t.quic.RemoteAddr(), overlay.ErrOverloaded, err)
	}
	o := &Opening{t.newConn(s, Setup{})}
	if _, err := s.Write(append([]byte{opened}, token[:]...)); err != nil {
		o.Abort()
		return nil, fmt.Errorf("punch.Open: %w", err)
	}
	return o, nil
}

// Await waits until the peer has accepted the stream, which shows that the path works both ways.
// When ctx ends first, the error is overlay.ErrTimeout and the stream is gone.
func (o *Opening) Await(ctx context.Context) (*Conn, error) {
	stop := context.AfterFunc(ctx, func() { o.conn.stream.SetReadDeadline(time.Unix(1, 0)) })
	var first [1]byte
	_, err := o.conn.stream.Read(first[:])
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil && first[0] != welcome {
		err = fmt.Errorf("the peer's first byte is %#x, not %#x: %w", first[0], welcome, overlay.ErrRefused)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", overlay.ErrTimeout, context.Cause(ctx))
		}
		remote := o.conn.RemoteAddr()
		o.Abort()
		return nil, fmt.Errorf("punch.Await: waiting until %v takes the stream: %w", remote, err)
	}
	return o.conn, nil
}

// Abort gives the stream up.
func (o *Opening) Abort() { o.conn.Abort() }
