package control

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"

	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/metrics"
)

// Budget bounds what one peer may have under way at an Endpoint, all its
// sessions together. A certificate proves who a peer is, not that it means well.
// A bound of 0 is none.
type Budget struct {
	Sessions int // that the peer made, those that only ask included
	Streams  int // of the multiplexers: a peer needs one in each session
	Calls    int // that are not answered yet; more are refused, and a quarter more end the session
	Bytes    int // that came with calls which are not answered yet; more end the session

	// Request is how long a call's request may take to come whole. The call is
	// then cancelled.
	Request time.Duration
}

// openCalls bounds the calls whose answers or refusals have not left.
func (b Budget) openCalls() int { return b.Calls + b.Calls/4 }

// The budgets of an Endpoint that nobody set: of the peers that come to it, and
// of those that it dials, which serve it and have more to ask.
var (
	StandardBudget = Budget{Sessions: 16, Streams: 32, Calls: 1280, Bytes: 4 << 20, Request: requestTimeout}
	dialledBudget  = Budget{Streams: 32, Calls: 16384, Bytes: 32 << 20, Request: requestTimeout}
)

// requestTimeout is Budget.Request where nobody set another.
const requestTimeout = 30 * time.Second

// maxHeader bounds the headers of a call as they are kept: names, values and 32
// bytes for each. Honest ones take some hundred bytes.
const maxHeader = 4 << 10

// accounts are what the peers of an Endpoint have under way, by identity.
type accounts struct {
	sessions, streams, calls, bytes *limit.Counter[string]
	open                            *limit.Counter[string] // calls whose answers have not left, refusals too
	request                         time.Duration
}

func newAccounts(b Budget) *accounts {
	counter := func(what, setting string, most int) *limit.Counter[string] {
		return limit.NewCounter[string](limit.Bounds{What: what, PerKey: most, KeySetting: "limits." + setting})
	}
	return &accounts{
		sessions: counter("sessions of one peer", "peer_sessions", b.Sessions),
		streams:  counter("streams of one peer", "peer_streams", b.Streams),
		calls:    counter("calls of one peer that are not answered yet", "peer_calls", b.Calls),
		bytes:    counter("bytes of one peer's calls that are not answered yet", "peer_bytes", b.Bytes),
		open:     counter("calls of one peer that are not answered or refused yet, a quarter more than limits.peer_calls", "peer_calls", b.openCalls()),
		request:  b.Request,
	}
}

// SetBudget changes the bounds for peers that come to the endpoint. Set it
// before Serve, or while it runs for what comes from then on; only Request stays
// as it was.
func (e *Endpoint) SetBudget(b Budget) {
	a := e.accepted
	a.sessions.SetMax(0, b.Sessions)
	a.streams.SetMax(0, b.Streams)
	a.calls.SetMax(0, b.Calls)
	a.open.SetMax(0, b.openCalls())
	a.bytes.SetMax(0, b.Bytes)
}

// SetStreaming says that calls of this endpoint last and carry files and output,
// so that what comes with a call is held back by gRPC's windows alone and not
// counted, and that streams are to be fast over a long way. Call it before the
// first session.
func (e *Endpoint) SetStreaming() {
	e.window = streamWindow
	e.accepted.bytes.SetMax(0, 0)
	e.dialled.bytes.SetMax(0, 0)
	e.accepted.sessions.SetMax(0, 0)
}

// Limits returns how far the budgets of peers are used, for metrics. Each is
// that of the peer that has the most.
func (e *Endpoint) Limits() []metrics.Limit {
	a := e.accepted
	calls := a.calls.Stats()
	calls.KeyRefused += a.open.Stats().KeyRefused // a burst can end the session before gRPC has begun its first call
	all := metrics.LimitsOf("half_open_control", "half_open_control_per_source", e.half.Stats())
	for name, s := range map[string]limit.Stats{"peer_sessions": a.sessions.Stats(), "peer_streams": a.streams.Stats(), "peer_calls": calls, "peer_bytes": a.bytes.Stats()} {
		all = append(all, metrics.LimitsOf("", name, s)...)
	}
	return all
}

// exceeded notes that a peer went over its budget, for the log and whoever
// wants to know; end says that its session does not outlive that.
func (e *Endpoint) exceeded(s *Session, err error, end bool) {
	if now, last := time.Now().Unix(), s.overLogged.Load(); end || now-last >= 10 && s.overLogged.CompareAndSwap(last, now) {
		e.log.Warn("a peer is over its budget", "peer", s.Peer().String(), "from", s.RemoteAddr().String(), "session_ends", end, "error", err)
	}
	if e.OverBudget != nil {
		e.OverBudget(s, err)
	}
	if end {
		select {
		case s.excess <- err:
		default: // it ends already
		}
	}
}

// call is one call of a peer, from its header on.
type call struct {
	over  error       // why it is refused; nil if it is not
	timer *time.Timer // cancels it; nil for none
}

type callKey struct{}

// callOf returns the call that ctx is of.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil {
		return new(call)
	}
	return c
}

// came notes that the request is whole, and says whether the call is refused.
func (c *call) came() error {
	if c.timer != nil {
		c.timer.Stop()
	}
	return Status(c.over)
}

// begin counts a call when its header has come. It does not refuse it by an
// error: gRPC would keep the context of a call that is refused so early until its
// connection ends.
func (e *Endpoint) begin(ctx context.Context, _ *tap.Info) (context.Context, error) {
	s := SessionOf(ctx)
	who, c := s.Peer().String(), new(call)
	ctx, cancel := context.WithCancel(context.WithValue(ctx, callKey{}, c))
	if err := s.accounts.calls.Take(who, 1); err != nil {
		c.over = fmt.Errorf("%v: %w", e.Identity(), err)
		e.exceeded(s, err, false)
	}
	if s.accounts.request > 0 {
		c.timer = time.AfterFunc(s.accounts.request, cancel)
	}
	context.AfterFunc(ctx, func() { // gRPC cancels it when the call is over
		if c.over == nil {
			s.accounts.calls.Give(who, 1)
		}
		cancel()
		if c.timer != nil {
			c.timer.Stop()
		}
	})
	return ctx, nil
}

// serveUnary and serveStream are interceptors.
func serveUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := callOf(ctx).came(); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func serveStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := callOf(ss.Context())
	if c.over != nil {
		return c.came()
	}
	return handler(srv, &beginning{ServerStream: ss, call: c})
}

// beginning is a stream of messages that tells when the first has come.
type beginning struct {
	grpc.ServerStream
	call *call
}

func (b *beginning) RecvMsg(m any) error {
	err := b.ServerStream.RecvMsg(m)
	if err == nil {
		b.call.came()
	}
	return err
}

// purse is what one HTTP/2 connection has taken from its peer's accounts of open
// calls and of bytes. What comes with a call is counted until the call is over, by
// the frames that go either way: gRPC takes a connection's bytes in as fast as
// they come, whether or not a handler reads them, and keeps its answers for as
// long as the peer does not.
type purse struct {
	who   string
	open  *limit.Counter[string] // nil where this end calls
	bytes *limit.Counter[string]

	mu     sync.Mutex     // guards the fields below
	calls  map[uint32]int // bytes of each call that is not over
	closed bool
}

// frameCost is what gRPC keeps of a frame besides its bytes, so that many small
// ones are no way around the limit.
const frameCost = 256

func (p *purse) opened(stream uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.calls[stream]; open || p.closed {
		return nil
	}
	if p.open != nil {
		if err := p.open.Take(p.who, 1); err != nil {
			return err
		}
	}
	p.calls[stream] = 0
	return nil
}

func (p *purse) received(stream uint32, n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.calls[stream]; !open || n == 0 {
		return nil // gRPC keeps nothing of that
	}
	if err := p.bytes.Take(p.who, n+frameCost); err != nil {
		return err
	}
	p.calls[stream] += n + frameCost
	return nil
}

func (p *purse) over(stream uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(stream)
}

// end forgets a call, if it is one of those that are not over. The lock is held.
func (p *purse) end(stream uint32) {
	n, open := p.calls[stream]
	if !open {
		return
	}
	p.bytes.Give(p.who, n)
	if p.open != nil {
		p.open.Give(p.who, 1)
	}
	delete(p.calls, stream)
}

func (p *purse) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for stream := range p.calls {
		p.end(stream)
	}
}
