package encap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Parameters of a shared connection.
const (
	// shareWindow is how much of a relay may be under way or unread. It bounds its rate, to 80 Mb/s at
	// 100 ms, and what a proxy keeps for one that does not read.
	shareWindow = 1 << 20

	shareBacklog   = 64               // relays that the proxy has not accepted; others wait
	shareKeepAlive = 30 * time.Second // between questions whether the other end is alive
	shareWrite     = 30 * time.Second // for one write, as for control sessions
	shareClosing   = time.Minute      // for the end of a direction after the other's

	// shareFresh is how long a shared connection is used without a question whether it lives, and
	// shareAnswer how long, beyond four round trips, the answer may take: a NAT forgets sessions, too.
	shareFresh  = 5 * time.Second
	shareAnswer = time.Second
)

// errCannotShare means that a proxy does not know shared connections.
var errCannotShare = errors.New("the proxy does not carry several relays on one connection; it may be older")

// shareConfig returns the settings of both ends.
func shareConfig() *yamux.Config {
	cfg := yamux.DefaultConfig()
	cfg.MaxStreamWindowSize, cfg.AcceptBacklog = shareWindow, shareBacklog
	cfg.KeepAliveInterval, cfg.ConnectionWriteTimeout = shareKeepAlive, shareWrite
	cfg.StreamCloseTimeout = shareClosing
	cfg.LogOutput, cfg.Logger = nil, log.New(io.Discard, "", 0) // its errors are those of the streams, too
	return cfg
}

// AcceptShared makes a session of a connection whose first frame was share. Its streams are those
// of SharedStream.
func AcceptShared(c carrier.Stream) (*yamux.Session, error) { return yamux.Server(c, shareConfig()) }

// SharedStream returns a stream of a shared connection as a connection.
func SharedStream(s *yamux.Stream) carrier.Stream { return &sharedStream{Stream: s} }

// sharedStream is a stream of a shared connection. Its Close ends both directions, and that of the
// yamux.Stream only the sending one.
type sharedStream struct {
	*yamux.Stream
	closed atomic.Bool
}

// Read implements net.Conn. The end of the shared connection is not one of the stream.
func (s *sharedStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	switch {
	case err == nil || n > 0:
	case s.closed.Load():
		err = io.ErrClosedPipe
	case err == io.EOF && s.Session().IsClosed():
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// CloseWrite ends the sending direction.
func (s *sharedStream) CloseWrite() error { return s.Stream.Close() }

// Close implements net.Conn.
func (s *sharedStream) Close() error {
	s.closed.Store(true)
	s.SetDeadline(time.Unix(1, 0)) // for a Read under way
	return s.Stream.Close()
}

// share is what a Dialer knows of one proxy behind a NAT.
type share struct {
	opening chan struct{} // held while the connection is made

	// Guarded by Dialer.mu.
	flows    flows
	mux      *yamux.Session // nil before the first
	making   bool           // a relay makes it
	rtt      time.Duration  // of mux
	answered time.Time      // when mux answered last
	unshared time.Time      // until when the proxy counts as one that cannot
}

// alive returns the shared connection, nil if there is none. The caller must hold Dialer.mu.
func (s *share) alive() *yamux.Session {
	if s.mux == nil || s.mux.IsClosed() {
		return nil
	}
	return s.mux
}

// shareOf returns what is known of a proxy, and whether a relay that begins has to share a connection.
func (d *Dialer) shareOf(at place) (sh *share, must bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if sh = d.shares[at]; sh == nil {
		sh = &share{opening: make(chan struct{}, 1)}
		if len(d.shares) < maxCached {
			d.shares[at] = sh
		}
	}
	now := time.Now()
	there := sh.alive() != nil || sh.making
	must = sh.flows.share(there, d.begins, now) && now.After(sh.unshared)
	sh.making = sh.making || must && sh.alive() == nil
	return sh, must
}

// full reports whether the NAT on the way to some proxy lets no new connection through, and how many
// there had been.
func (d *Dialer) full() (connections int, full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, sh := range d.shares {
		connections += sh.flows.own
		full = full || sh.flows.full(time.Now())
	}
	return connections, full
}

// Close ends the shared connections and what the Dialer has started.
func (d *Dialer) Close() {
	d.mu.Lock()
	d.closed = true
	var open []*yamux.Session
	for _, sh := range d.shares {
		if sh.mux != nil {
			open = append(open, sh.mux)
		}
	}
	d.mu.Unlock()
	for _, mux := range open {
		mux.Close()
	}
	d.work.Wait()
}

// dialled is the result of a dial.
type dialled struct {
	stream carrier.Stream
	form   Form
	err    error
}

// dialThroughNAT is Dial where the NAT may have no room for another session.
func (d *Dialer) dialThroughNAT(ctx context.Context, addr string, r Route) (carrier.Stream, Form, error) {
	sh, must := d.shareOf(place{addr: addr})
	if must {
		s, err := d.openShared(ctx, sh, addr, r)
		if !errors.Is(err, errCannotShare) {
			return s, Shared, err
		}
	}
	dial, cancel := context.WithCancel(ctx)
	own := make(chan dialled, 1)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		s, form, err := d.dialOwn(dial, addr, r)
		own <- dialled{s, form, err}
	})
	if d.isUnanswered(sh, own) {
		cancel()
		if got := <-own; got.err == nil { // at the last moment
			return got.stream, got.form, nil
		}
		s, err := d.openShared(ctx, sh, addr, r)
		return s, Shared, err
	}
	got := <-own
	if got.err == nil {
		d.mu.Lock()
		sh.flows.answered()
		d.mu.Unlock()
	}
	return got.stream, got.form, got.err
}

// isUnanswered waits until a dial has a result, or gets none while the shared connection is alive.
func (d *Dialer) isUnanswered(sh *share, own chan dialled) bool {
	for {
		d.mu.Lock()
		wait := d.unansweredAfter + 4*sh.rtt
		d.mu.Unlock()
		late := time.NewTimer(wait)
		select {
		case got := <-own:
			late.Stop()
			own <- got
			return false
		case <-late.C:
		}
		d.mu.Lock()
		mux := sh.alive()
		d.mu.Unlock()
		if mux == nil {
			continue
		}
		if d.ping(sh, mux, own, nil) == nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			sh.flows.notAnswered(time.Now())
			return true
		}
	}
}

// errNoPing means that a shared connection was not waited for any longer.
var errNoPing = errors.New("there was no answer to a ping in time")

// ping asks for a sign of life of a shared connection, until a dial has a result or the time is over;
// either may be nil.
func (d *Dialer) ping(sh *share, mux *yamux.Session, own chan dialled, over <-chan time.Time) error {
	answer := make(chan error, 1)
	if !d.start(func() {
		rtt, err := mux.Ping()
		if err == nil {
			d.mu.Lock()
			sh.rtt, sh.answered = rtt, time.Now()
			d.mu.Unlock()
		}
		answer <- err
	}) {
		return net.ErrClosed
	}
	select {
	case err := <-answer:
		return err
	case got := <-own:
		own <- got
	case <-over:
	}
	return errNoPing
}

// start runs f as something that Close waits for, unless that was called.
func (d *Dialer) start(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.work.Go(f)
	}
	return !d.closed
}

// openShared opens a stream of the shared connection to a proxy, which it makes if there is none.
func (d *Dialer) openShared(ctx context.Context, sh *share, addr string, r Route) (carrier.Stream, error) {
	select {
	case sh.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: waited for the connection to %s that relays share", overlay.ErrTimeout, addr)
	}
	defer func() {
		d.mu.Lock()
		sh.making = false
		d.mu.Unlock()
		<-sh.opening
	}()
	if mux := d.living(sh); mux != nil {
		if s, err := mux.OpenStream(); err == nil {
			return SharedStream(s), nil
		}
	}
	mux, rtt, err := d.newShared(ctx, addr, r)
	d.mu.Lock()
	switch {
	case errors.Is(err, errCannotShare):
		sh.unshared = time.Now().Add(fullMemory)
	case err == nil && d.closed:
		err = overlay.ErrUnreachable
	case err == nil:
		sh.mux, sh.rtt, sh.answered = mux, rtt, time.Now()
	}
	d.mu.Unlock()
	if err != nil {
		if mux != nil {
			mux.Close()
		}
		return nil, err
	}
	s, err := mux.OpenStream()
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", overlay.ErrUnreachable, addr, err)
	}
	return SharedStream(s), nil
}

// living returns the shared connection to a proxy, nil if there is none. It ends one that does not answer
// any more: its relays go elsewhere, and the NAT has room for another.
func (d *Dialer) living(sh *share) *yamux.Session {
	d.mu.Lock()
	mux, bound, fresh := sh.alive(), shareAnswer+4*sh.rtt, time.Since(sh.answered) < shareFresh
	d.mu.Unlock()
	if mux == nil || fresh {
		return mux
	}
	over := time.NewTimer(bound)
	defer over.Stop()
	if err := d.ping(sh, mux, nil, over.C); err != nil {
		mux.Close()
		return nil
	}
	return mux
}

// newShared makes a connection that relays share, and asks whether the proxy knows such.
func (d *Dialer) newShared(ctx context.Context, addr string, r Route) (*yamux.Session, time.Duration, error) {
	c, _, err := d.dialOwn(ctx, addr, r)
	if err != nil {
		return nil, 0, err
	}
	if _, err := c.Write(wire.Append(nil, &wire.Share{})); err != nil {
		carrier.Reset(c)
		return nil, 0, fmt.Errorf("%w: %w", overlay.ErrUnreachable, err)
	}
	mux, err := yamux.Client(c, shareConfig())
	if err != nil {
		carrier.Reset(c)
		return nil, 0, err
	}
	stop := context.AfterFunc(ctx, func() { mux.Close() })
	rtt, err := mux.Ping()
	switch {
	case !stop():
		err = context.Cause(ctx)
	case errors.Is(err, yamux.ErrSessionShutdown):
		err = fmt.Errorf("%w: %w", overlay.ErrRefused, errCannotShare)
	}
	if err != nil {
		mux.Close()
		return nil, 0, err
	}
	return mux, rtt, nil
}
