package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Bounds of an Observer.
const (
	DefaultPlaces = 1024             // connections held at a time
	DefaultHold   = 30 * time.Second // how long one is held: a NAT's mapping lives at least as long as its connection
	firstFrame    = 7 * time.Second  // for the first frame to arrive
	maxQuestions  = 64               // observe frames on one connection
)

// Observer answers observe frames. It is safe for concurrent use.
type Observer struct {
	// Log, if not nil, gets a line when Serve cannot accept for a while. Set it before Serve.
	Log *slog.Logger

	by     string // "broker main", for refusals
	hold   time.Duration
	seen   func(netip.AddrPort)
	places *accept.HalfOpen

	mu   sync.Mutex                   // guards the fields below, and the delayed answers
	held map[netip.AddrPort]*question // by source address; at most one for each place
	owed int                          // delayed answers among them

	quiet map[uint16]*quietPort

	answered, refused atomic.Uint64
}

// NewObserver returns an Observer that names itself by in refusals. It holds as many connections as
// places admits; nil means DefaultPlaces, half of them from one source. Each is held for at most
// hold; zero means DefaultHold. seen, if not nil, is called with every address that was answered;
// it must not block.
func NewObserver(by string, places *accept.HalfOpen, hold time.Duration, seen func(netip.AddrPort)) *Observer {
	if places == nil {
		places = accept.NewHalfOpen(accept.Bounds{Total: DefaultPlaces, PerSource: DefaultPlaces / 2}, nil)
	}
	if hold == 0 {
		hold = DefaultHold
	}
	return &Observer{by: by, hold: hold, seen: seen, places: places, held: make(map[netip.AddrPort]*question), quiet: make(map[uint16]*quietPort)}
}

// ObserverStats are counters since the Observer was made.
type ObserverStats struct {
	Answered   uint64 `json:"answered"`   // observe frames
	Refused    uint64 `json:"refused"`    // connections whose first frame was not an observe frame
	Overloaded uint64 `json:"overloaded"` // connections closed because too many were held
	Held       int    `json:"held"`       // current connections
}

// Stats returns the counts so far.
func (o *Observer) Stats() ObserverStats {
	at := o.places.Stats()
	return ObserverStats{o.answered.Load(), o.refused.Load(), at.Refused + at.KeyRefused + at.Evicted, at.Used}
}

// Limits returns the usage of the bounds of held connections, for metrics.
func (o *Observer) Limits() limit.Stats { return o.places.Stats() }

// Serve answers the connections that ln accepts until ctx is done or ln fails,
// and closes ln. It returns when all its connections are closed.
func (o *Observer) Serve(ctx context.Context, ln net.Listener) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	defer ln.Close()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	err := accept.Each(ctx, cmp.Or(o.Log, slog.New(slog.DiscardHandler)), ln.Addr(), ln.Accept, func(c net.Conn) { conns.Go(func() { o.Take(ctx, c) }) })
	if err != nil {
		return fmt.Errorf("observing on %v: %w", ln.Addr(), err)
	}
	return nil
}

// Take reads the first frame of c, answers it if it is an observe frame and refuses it otherwise.
// It owns c and returns when c is closed.
func (o *Observer) Take(ctx context.Context, c net.Conn) {
	o.within(ctx, c, func() {
		c.SetDeadline(time.Now().Add(firstFrame))
		frame, err := wire.Read(c)
		if _, ok := frame.(*wire.Observe); err != nil || !ok {
			o.refuse(c, frame, err)
			return
		}
		o.serveConn(c)
	})
}

// Answer is Take for a connection whose first observe frame has been read already.
func (o *Observer) Answer(ctx context.Context, c net.Conn) {
	o.within(ctx, c, func() { o.serveConn(c) })
}

// within runs serve if the limits on connections admit c, ends it with ctx, and closes c.
func (o *Observer) within(ctx context.Context, c net.Conn, serve func()) {
	defer c.Close()
	place, err := o.places.Enter(c)
	if err != nil {
		return
	}
	defer place.Leave()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	serve()
}

// serveConn answers the question that was read and those that follow, until the peer closes, its
// time is over or a delayed answer is sent.
func (o *Observer) serveConn(c net.Conn) {
	c.SetDeadline(time.Now().Add(o.hold))
	from := addrPort(c.RemoteAddr())
	q := o.enter(from, c)
	defer o.leave(from, q)
	for range maxQuestions {
		answer := &wire.Observed{From: from, Time: time.Now()}
		if _, err := c.Write(wire.Append(nil, answer)); err != nil {
			return
		}
		o.answered.Add(1)
		if o.seen != nil {
			o.seen(from)
		}
		f, err := wire.Read(c)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			o.keep(q)
			return
		}
		if err != nil || f.Type() != wire.TypeObserve {
			return
		}
	}
}

// refuse sends the error about the first frame.
func (o *Observer) refuse(c net.Conn, frame wire.Frame, err error) {
	o.refused.Add(1)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		return // the peer is gone
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("%w: no frame came within %v", overlay.ErrTimeout, firstFrame)
	case err == nil:
		err = fmt.Errorf("%w: a %v in place of an observe frame", wire.ErrType, frame.Type())
	}
	c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write(wire.Append(nil, &wire.Refuse{Code: wire.CodeOf(err), By: o.by, Text: err.Error()})); err != nil {
		return
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		half.CloseWrite() // closing with unread input would destroy the refusal
		io.Copy(io.Discard, io.LimitReader(c, 64<<10))
	}
}

// addrPort returns the address of a TCP or UDP peer, IPv4 unmapped.
func addrPort(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.TCPAddr:
		return plain(a.AddrPort())
	case *net.UDPAddr:
		return plain(a.AddrPort())
	}
	return netip.AddrPort{}
}

func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
