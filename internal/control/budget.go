package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/limit"
)

// Budget bounds what one peer may have under way at an Endpoint, all its
// sessions together. A certificate proves who a peer is, not that it means well.
// A bound of 0 is none.
type Budget struct {
	Sessions int // that the peer made, those that only ask included
	Streams  int // of the multiplexers: a peer needs one in each session
	Calls    int // that are not answered yet; more are refused, and a quarter more end the session
	Bytes    int // that came with calls which are not answered yet; more end the session

	// AllCalls and AllBytes are of all peers together. Where that is too much, a call
	// is refused, and whoever has the most bytes loses its sessions.
	AllCalls, AllBytes int

	// Request is how long a call's request may take to come whole. The call is
	// then cancelled.
	Request time.Duration
}

// openCalls bounds the calls whose answers or refusals have not left.
func (b Budget) openCalls() int { return b.Calls + b.Calls/4 }

// The budgets of an Endpoint that nobody set: of the peers that come to it, and
// of those that it dials, which serve it and have more to ask.
var (
	StandardBudget = Budget{Sessions: 16, Streams: 32, Calls: 1280, Bytes: 4 << 20, AllBytes: 512 << 20, Request: requestTimeout}
	dialledBudget  = Budget{Streams: 32, Calls: 16384, Bytes: 32 << 20, Request: requestTimeout}
)

// requestTimeout is Budget.Request where nobody set another.
const requestTimeout = 30 * time.Second

// maxHeader bounds the headers of a call as they are kept: names, values and 32
// bytes for each. Honest ones take some hundred bytes.
const maxHeader = 4 << 10

// accounts are what the peers of an Endpoint or a Meter have under way, by who they are.
type accounts struct {
	sessions, streams, calls, bytes *limit.Counter[string]
	open                            *limit.Counter[string] // calls whose answers have not left, refusals too
	request                         time.Duration
	streaming                       bool // messages of a stream are given back as they are read

	mu     sync.Mutex // guards purses
	purses map[*streamBudget]struct{}
}

func newAccounts(b Budget) *accounts {
	counter := func(what, setting string, most int) *limit.Counter[string] {
		return limit.NewCounter[string](limit.Bounds{What: what, PerKey: most, KeySetting: "limits." + setting})
	}
	return &accounts{
		sessions: counter("sessions of one peer", "peer_sessions", b.Sessions),
		streams:  counter("streams of one peer", "peer_streams", b.Streams),
		calls:    counter("calls of one peer that are not answered yet", "peer_calls", b.Calls),
		bytes: limit.NewCounter[string](limit.Bounds{
			What: "bytes of calls that are not answered yet", Total: b.AllBytes, PerKey: b.Bytes,
			TotalSetting: "limits.peer_bytes_total", KeySetting: "limits.peer_bytes",
		}),
		open:    counter("calls of one peer that are not answered or refused yet, a quarter more than limits.peer_calls", "peer_calls", b.openCalls()),
		request: b.Request,
		purses:  map[*streamBudget]struct{}{},
	}
}

// set changes all bounds but Request.
func (a *accounts) set(b Budget) {
	a.sessions.SetMax(0, b.Sessions)
	a.streams.SetMax(0, b.Streams)
	a.calls.SetMax(b.AllCalls, b.Calls)
	a.open.SetMax(0, b.openCalls())
	a.bytes.SetMax(b.AllBytes, b.Bytes)
}

// forgive ends the connections of whoever has the most bytes, because all together have
// too many, and reports whether that is another than who.
func (a *accounts) forgive(who string, why error) bool {
	heaviest, any := a.bytes.Heaviest()
	if !any || a.bytes.Held(who) >= a.bytes.Held(heaviest) {
		return false
	}
	a.mu.Lock()
	var victims []*streamBudget
	for p := range a.purses {
		if p.who == heaviest {
			victims = append(victims, p)
		}
	}
	a.mu.Unlock()
	why = fmt.Errorf("%w; %s has the most", why, heaviest)
	for _, p := range victims {
		p.close()
		p.exceed(why, true)
	}
	return len(victims) > 0
}

// SetBudget changes the bounds for peers that come to the endpoint. Set it
// before Serve, or while it runs for what comes from then on; only Request stays
// as it was.
func (e *Endpoint) SetBudget(b Budget) { e.accepted.set(b) }

// SetStreaming says that calls of this endpoint last and carry files and output: a
// message of a stream is counted from its first byte until it is read, and streams are
// to be fast over a long way. The sessions of a peer are not counted, nor what peers
// answer, which gRPC's windows hold back. Call it before the first session.
func (e *Endpoint) SetStreaming() {
	e.window = streamWindow
	e.accepted.streaming = true
	e.accepted.bytes = limit.NewCounter[string](limit.Bounds{
		What: "bytes of messages that are not read yet", TotalSetting: "limits.node_bytes_total", KeySetting: "limits.node_bytes",
	})
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
	for name, s := range map[string]limit.Stats{"peer_sessions": a.sessions.Stats(), "peer_streams": a.streams.Stats(), "peer_calls": calls} {
		all = append(all, metrics.LimitsOf("", name, s)...)
	}
	return append(all, metrics.LimitsOf("peer_bytes_total", "peer_bytes", a.bytes.Stats())...)
}

// ByteStats returns how far the bounds of bytes are used.
func (e *Endpoint) ByteStats() limit.Stats { return e.accepted.bytes.Stats() }

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
	over   error       // why it is refused; nil if it is not
	timer  *time.Timer // cancels it; nil for none
	purse  *streamBudget
	stream uint32 // of HTTP/2
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

// messageReceived notes that the request is whole, and says whether the call is refused.
func (c *call) messageReceived() error {
	if c.timer != nil {
		c.timer.Stop()
	}
	return Status(c.over)
}

// meteredInfo is a credentials.AuthInfo of a connection that is metered.
type meteredInfo interface{ meter() *metered }

// serverOptions are those of a server all of whose connections are metered. gRPC reads
// them frame by frame, so that the header that a meter saw last is that of the call which
// begins.
func serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ReadBufferSize(0), grpc.MaxHeaderListSize(maxHeader),
		grpc.InTapHandle(begin), grpc.UnaryInterceptor(serveUnary), grpc.StreamInterceptor(serveStream),
	}
}

// begin counts a call when its header has come. It does not refuse it by an
// error: gRPC would keep the context of a call that is refused so early until its
// connection ends.
func begin(ctx context.Context, _ *tap.Info) (context.Context, error) {
	from, _ := peer.FromContext(ctx)
	m := from.AuthInfo.(meteredInfo).meter()
	p, c := m.purse, &call{purse: m.purse, stream: m.last}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, callKey{}, c))
	if err := p.accounts.calls.Take(p.who, 1); err != nil {
		c.over = fmt.Errorf("%v: %w", p.by, err)
		p.exceed(err, false)
	}
	if p.accounts.request > 0 {
		c.timer = time.AfterFunc(p.accounts.request, cancel)
	}
	context.AfterFunc(ctx, func() { // gRPC cancels it when the call is over
		if c.over == nil {
			p.accounts.calls.Give(p.who, 1)
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
	c := callOf(ctx)
	if err := c.messageReceived(); err != nil {
		return nil, err
	}
	resp, err := handler(ctx, req)
	if m, ok := resp.(proto.Message); ok && err == nil && c.purse != nil && c.purse.accounts.streaming {
		if over := c.purse.add(c.stream, proto.Size(m)); over != nil { // until it has left, which takes as long as the peer wants
			c.purse.exceed(over, false)
			return nil, Status(fmt.Errorf("%v: %w", c.purse.by, over))
		}
	}
	return resp, err
}

func serveStream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	c := callOf(ss.Context())
	if c.over != nil {
		return c.messageReceived()
	}
	return handler(srv, &beginning{ServerStream: ss, call: c})
}

// beginning is a stream of messages that tells when the first has come, and each is read.
type beginning struct {
	grpc.ServerStream
	call *call
}

func (b *beginning) RecvMsg(m any) error {
	err := b.ServerStream.RecvMsg(m)
	if err == nil {
		b.call.messageReceived()
		if b.call.purse != nil {
			b.call.purse.read(b.call.stream)
		}
	}
	return err
}

// streamBudget is what one HTTP/2 connection has taken from its peer's accounts of open
// calls and of bytes. What comes with a call is counted until the call is over, by
// the frames that go either way, or until the message is read: gRPC takes a
// connection's bytes in as fast as they come, whether or not a handler reads them,
// and keeps its answers for as long as the peer does not.
type streamBudget struct {
	who      string
	by       string // this end, as refusals name it
	accounts *accounts
	open     *limit.Counter[string]    // nil where this end calls
	exceed   func(err error, end bool) // told of what is over the budget
	mu       sync.Mutex                // guards the fields below
	calls    map[uint32]*taken         // of calls that are not over
	closed   bool
}

func newPurse(who, by string, a *accounts, open *limit.Counter[string], exceed func(error, bool)) *streamBudget {
	p := &streamBudget{who: who, by: by, accounts: a, open: open, exceed: exceed, calls: make(map[uint32]*taken)}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.purses[p] = struct{}{}
	return p
}

// taken is what one call has.
type taken struct {
	bytes    int // of all below, and of what is not split into messages
	messages messages
}

// frameCost is what gRPC keeps of a frame besides its bytes, so that many small
// ones are no way around the limit.
const frameCost = 256

// errClosed is why nothing more is taken for a connection.
var errClosed = errors.New("the connection is being closed")

func (p *streamBudget) opened(stream uint32) error {
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
	p.calls[stream] = new(taken)
	return nil
}

// received counts a frame of a call.
func (p *streamBudget) received(stream uint32, n int) error {
	if n == 0 {
		return nil // gRPC keeps nothing of that
	}
	err := p.add(stream, n+frameCost)
	if err == nil && p.accounts.streaming {
		p.mu.Lock()
		defer p.mu.Unlock()
		if t := p.calls[stream]; t != nil {
			t.messages.cost += frameCost
		}
	}
	return err
}

// add counts n bytes more for a call, if it is one of those that are not over.
func (p *streamBudget) add(stream uint32, n int) error {
	err := p.tryAdd(stream, n)
	if over := (*limit.Exceeded)(nil); errors.As(err, &over) && over.Of == "" && p.accounts.forgive(p.who, err) {
		err = p.tryAdd(stream, n)
	}
	return err
}

func (p *streamBudget) tryAdd(stream uint32, n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errClosed
	}
	t := p.calls[stream]
	if t == nil {
		return nil // gRPC keeps nothing of that
	}
	if err := p.accounts.bytes.Take(p.who, n); err != nil {
		return err
	}
	t.bytes += n
	return nil
}

// body finds the messages in a part of a frame of a call.
func (p *streamBudget) body(stream uint32, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.calls[stream]; t != nil && p.accounts.streaming {
		t.messages.scan(b)
	}
}

// read gives back the first message of a stream that was not read yet.
func (p *streamBudget) read(stream uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.calls[stream]; t != nil {
		n := t.messages.read()
		p.accounts.bytes.Give(p.who, n)
		t.bytes -= n
	}
}

func (p *streamBudget) streamEnded(stream uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(stream)
}

// end forgets a call, if it is one of those that are not over. The lock is held.
func (p *streamBudget) end(stream uint32) {
	t := p.calls[stream]
	if t == nil {
		return
	}
	p.accounts.bytes.Give(p.who, t.bytes)
	if p.open != nil {
		p.open.Give(p.who, 1)
	}
	delete(p.calls, stream)
}

func (p *streamBudget) close() {
	p.mu.Lock()
	p.closed = true
	for stream := range p.calls {
		p.end(stream)
	}
	p.mu.Unlock()
	p.accounts.mu.Lock()
	defer p.accounts.mu.Unlock()
	delete(p.accounts.purses, p)
}
