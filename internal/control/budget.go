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

// Budget bounds what one peer may have in flight at an Endpoint, over all its sessions. A
// certificate authenticates a peer, but does not make it well-behaved. A bound of 0 is unlimited.
type Budget struct {
	Sessions int // opened by the peer, including visits
	Streams  int // of the multiplexers: a peer needs one in each session
	Calls    int // unanswered; more are refused, and a quarter more end the session
	Bytes    int // of unanswered calls, until they are decoded, and then of their messages in memory; more end the session

	// AllCalls and AllBytes are over all peers. Above AllCalls a call is refused; above AllBytes
	// the peer with the most bytes loses its sessions.
	AllCalls, AllBytes int

	// Request bounds the arrival of a call's complete request. The call is then cancelled.
	Request time.Duration
}

// openCalls returns the bound on calls whose answers or refusals have not been sent.
func (b Budget) openCalls() int { return b.Calls + b.Calls/4 }

// The default budgets of an Endpoint: of peers that connect to it, and of those that it dials,
// which serve it and have more calls to make.
var (
	StandardBudget = Budget{Sessions: 16, Streams: 32, Calls: 1280, Bytes: 4 << 20, AllBytes: 512 << 20, Request: requestTimeout}
	dialledBudget  = Budget{Streams: 32, Calls: 16384, Bytes: 32 << 20, Request: requestTimeout}
)

// requestTimeout is the default of Budget.Request.
const requestTimeout = 30 * time.Second

// maxHeader bounds the headers of a call in memory: names, values and 32 bytes for each. Regular
// calls need some hundred bytes.
const maxHeader = 4 << 10

// accounts count what the peers of an Endpoint or a Meter have in flight, by name.
type accounts struct {
	sessions, streams, calls, bytes *limit.Counter[string]
	open                            *limit.Counter[string] // calls whose answers have not been sent, refusals included
	request                         time.Duration
	answers                         bool // the answers to the peers' calls count until they are sent

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

// set changes all bounds except Request.
func (a *accounts) set(b Budget) {
	a.sessions.SetMax(0, b.Sessions)
	a.streams.SetMax(0, b.Streams)
	a.calls.SetMax(b.AllCalls, b.Calls)
	a.open.SetMax(0, b.openCalls())
	a.bytes.SetMax(b.AllBytes, b.Bytes)
}

// take counts n more bytes of a peer. If all have too many, those of the peer with the most end.
func (a *accounts) take(who string, n int) error {
	err := a.bytes.Take(who, n)
	if over := (*limit.Exceeded)(nil); errors.As(err, &over) && over.Of == "" && a.evictHeaviest(who, err) {
		err = a.bytes.Take(who, n)
	}
	return err
}

// evictHeaviest ends the connections of the peer with the most bytes, because the total is too high, and
// reports whether that is another peer than who.
func (a *accounts) evictHeaviest(who string, why error) bool {
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

// SetBudget changes the bounds for peers that connect to the endpoint. Set it before Serve, or
// during Serve for later requests; only Request then stays unchanged.
func (e *Endpoint) SetBudget(b Budget) { e.accepted.set(b) }

// SetStreaming declares that calls of this endpoint are long and carry files and output: streams get
// windows for a high throughput over long paths, and answers count until they are sent. It does not
// count a peer's sessions, nor the peers' answers, which gRPC's windows limit. Call it before the
// first session.
func (e *Endpoint) SetStreaming() {
	e.window = streamWindow
	e.accepted.answers = true
	e.accepted.bytes = limit.NewCounter[string](limit.Bounds{
		What: "bytes of messages that are not read yet", TotalSetting: "limits.node_bytes_total", KeySetting: "limits.node_bytes",
	})
	e.dialled.bytes.SetMax(0, 0)
	e.accepted.sessions.SetMax(0, 0)
}

// Limits returns the use of the peers' budgets, for metrics. Each value is that of the peer that
// uses most.
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

// ByteStats returns the use of the bounds on bytes.
func (e *Endpoint) ByteStats() limit.Stats { return e.accepted.bytes.Stats() }

// exceeded reports that a peer went over its budget, to the log and to OverBudget; end means that
// its session must end.
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
		default: // it is ending already
		}
	}
}

// call is one call of a peer, from its header on.
type call struct {
	over   error       // why it is refused; nil if it is not
	timer  *time.Timer // cancels it; nil: none
	purse  *streamBudget
	stream uint32 // of HTTP/2
}

type callKey struct{}

// callOf returns the call that ctx belongs to.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil {
		return new(call)
	}
	return c
}

// messageReceived records that the request is complete, and returns an error if the call is
// refused.
func (c *call) messageReceived() error {
	if c.timer != nil {
		c.timer.Stop()
	}
	return Status(c.over)
}

// meteredInfo is the credentials.AuthInfo of a metered connection.
type meteredInfo interface{ meter() *metered }

// serverOptions returns the options of a server all of whose connections are metered. gRPC reads
// them frame by frame, so that the last header that a meter saw is that of the call that begins.
func serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ReadBufferSize(0), grpc.MaxHeaderListSize(maxHeader),
		grpc.InTapHandle(begin), grpc.UnaryInterceptor(serveUnary), grpc.StreamInterceptor(serveStream),
		grpc.ForceServerCodecV2(newCodec()),
	}
}

// begin counts a call when its header has arrived. It does not refuse it by an error: gRPC would
// keep the context of a call refused that early until its connection ends.
func begin(ctx context.Context, _ *tap.Info) (context.Context, error) {
	from, _ := peer.FromContext(ctx)
	m := from.AuthInfo.(meteredInfo).meter()
	p, c := m.purse, &call{purse: m.purse, stream: m.last}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, callKey{}, c))
	if err := p.begun(c.stream); err != nil {
		c.over = fmt.Errorf("%v: %w", p.by, err)
		p.exceed(err, false)
	}
	if p.accounts.request > 0 {
		c.timer = time.AfterFunc(p.accounts.request, cancel)
	}
	context.AfterFunc(ctx, func() { // gRPC cancels it when the call is over
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
	if m, ok := resp.(proto.Message); ok && err == nil && c.purse != nil && c.purse.accounts.answers {
		if over := c.purse.add(c.stream, proto.Size(m)); over != nil { // until it has been sent, which takes as long as the peer wants
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

// beginning is a stream of messages that reports when the first has arrived, and counts each.
type beginning struct {
	grpc.ServerStream
	call *call
}

func (b *beginning) RecvMsg(m any) error {
	if b.call.purse != nil {
		b.call.purse.handled(b.call.stream)
	}
	err := b.call.receive(m, b.ServerStream.RecvMsg)
	if err == nil {
		b.call.messageReceived()
	}
	return err
}

// streamBudget is one HTTP/2 connection's share of its peer's accounts of open calls and of bytes.
// The bytes of a message count until it is decoded: gRPC buffers a connection's bytes as fast as they
// arrive, whether or not a handler reads them, and keeps its answers until the peer reads them. The
// message in memory counts until the handler asks for the next one, or the call is over by the frames
// in either direction.
type streamBudget struct {
	who      string
	by       string // this end, as refusals name it
	accounts *accounts
	open     *limit.Counter[string]    // nil where this end calls
	exceed   func(err error, end bool) // called when the budget is exceeded
	mu       sync.Mutex                // guards the fields below
	calls    map[uint32]*taken         // calls that are not over
	closed   bool
}

func newPurse(who, by string, a *accounts, open *limit.Counter[string], exceed func(error, bool)) *streamBudget {
	p := &streamBudget{who: who, by: by, accounts: a, open: open, exceed: exceed, calls: make(map[uint32]*taken)}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.purses[p] = struct{}{}
	return p
}

// taken is one call's share.
type taken struct {
	counted  bool // among the unanswered calls
	bytes    int  // all that counts: of the messages below, and of what is not split into messages
	messages messages
	decoded  int // of the latest message in memory
}

// frameCost is gRPC's memory for a frame besides its bytes, so that many small frames cannot evade
// the limit.
const frameCost = 256

// errClosed means that the connection takes nothing more.
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

// begun counts a call among the unanswered ones. It counts until the frame that ends it, not until
// gRPC has seen to it: a peer may begin as many calls as it has just cancelled.
func (p *streamBudget) begun(stream uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.calls[stream]
	if t == nil {
		return nil // the connection is being closed
	}
	if err := p.accounts.calls.Take(p.who, 1); err != nil {
		return err
	}
	t.counted = true
	return nil
}

// received counts a frame of a call.
func (p *streamBudget) received(stream uint32, n int) error {
	if n == 0 {
		return nil // gRPC keeps nothing of that
	}
	err := p.add(stream, n+frameCost)
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if t := p.calls[stream]; t != nil {
			t.messages.cost += frameCost
		}
	}
	return err
}

// add counts n more bytes for a call that is not over.
func (p *streamBudget) add(stream uint32, n int) error {
	err := p.tryAdd(stream, n)
	if over := (*limit.Exceeded)(nil); errors.As(err, &over) && over.Of == "" && p.accounts.evictHeaviest(p.who, err) {
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

// body splits a part of a call's DATA frame into messages.
func (p *streamBudget) body(stream uint32, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.calls[stream]; t != nil {
		t.messages.scan(b)
	}
}

// handled releases a call's message in memory.
func (p *streamBudget) handled(stream uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.calls[stream]; t != nil {
		p.accounts.bytes.Give(p.who, t.decoded)
		t.bytes -= t.decoded
		t.decoded = 0
	}
}

// decode counts the oldest message that has arrived as what it will take in memory, in place of its
// bytes. A call that is over needs none.
func (p *streamBudget) decode(stream uint32, cost int) error {
	p.mu.Lock()
	t := p.calls[stream]
	if t == nil {
		p.mu.Unlock()
		return context.Canceled
	}
	before := t.messages.read() + t.decoded
	if more := cost - before; more > 0 {
		t.decoded = before
		p.mu.Unlock()
		if err := p.add(stream, more); err != nil {
			return err
		}
		p.mu.Lock()
	} else {
		p.accounts.bytes.Give(p.who, -more)
		t.bytes += more
	}
	t.decoded = cost
	p.mu.Unlock()
	return nil
}

func (p *streamBudget) streamEnded(stream uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(stream)
}

// end releases the share of a call that is not over yet. The caller must hold mu.
func (p *streamBudget) end(stream uint32) {
	t := p.calls[stream]
	if t == nil {
		return
	}
	p.accounts.bytes.Give(p.who, t.bytes)
	if t.counted {
		p.accounts.calls.Give(p.who, 1)
	}
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
