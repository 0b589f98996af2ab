package frontal

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/frontal/directory"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// patience bounds every wait of the tests. It decides only how long a broken
// one takes.
const patience = time.Minute

// rig is a frontal between a scripted broker and helpers made by hand, all in
// this process, on real sessions over loopback.
type rig struct {
	t      *testing.T
	ca     *ca.CA
	broker *fakeBroker
	f      *Frontal
	at     string // the frontal's control address
	log    *logText
	bounds bounds
	trail  *audit.Log // of frontals to come
	stop   func()     // ends the frontal and waits for it

	mu     sync.Mutex
	mapped map[string]string // where an address outside really is
}

// logText is a log that a test can read while it is written.
type logText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// bounds are waits that no setting changes; what is 0 is as it is.
type bounds struct{ intro, carry, meet, refuse, another, doubt, idle time.Duration }

var standardBounds bounds

func (b bounds) apply(f *Frontal) {
	g := &f.gateway.Bounds
	for _, one := range []struct {
		to *time.Duration
		v  time.Duration
	}{
		{&g.Intro, b.intro}, {&g.Carry, b.carry}, {&g.Meet, b.meet}, {&g.Refuse, b.refuse},
		{&f.up.Another, b.another}, {&f.measure.DoubtAfter, b.doubt}, {&f.measure.IdleAfter, b.idle},
	} {
		if one.v != 0 {
			*one.to = one.v
		}
	}
}

// openPolicy permits the site all links.
const openPolicy = "contact: ops\nrules:\n- {name: all, effect: allow}\n"

// newRig starts a broker and the frontal of sitea, a gateway_only site with
// an open inbound side, and waits until the site has joined.
func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	return newRigWith(t, standardBounds, change)
}

// newRigWith is newRig with other bounds.
func newRigWith(t *testing.T, b bounds, change func(*Config)) *rig {
	t.Helper()
	authority, _, err := ca.New("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, bounds: b, ca: authority, log: new(logText), mapped: map[string]string{}}
	r.broker = newFakeBroker(r)
	cfg := daemon.Defaults[Config]()
	loop := netip.MustParseAddrPort("127.0.0.1:0")
	cfg.Site, cfg.Broker, cfg.Listen, cfg.DataListen, cfg.PublicListen = "sitea", []string{r.broker.addr}, loop, loop, loop
	cfg.Profile.GatewayOnly, cfg.Profile.Inbound = true, Given(overlay.InboundOpen)
	cfg.Patience = 0
	cfg.Measure = 0 // of a broker that only has its lines
	withPolicy(t, openPolicy)(&cfg)
	if change != nil {
		change(&cfg)
	}
	r.startFrontal(cfg)
	r.waitUp()
	return r
}

func (r *rig) startFrontal(cfg Config) {
	r.t.Helper()
	f, err := New(cfg, r.creds(control.Identity{Role: control.RoleFrontal, Site: "sitea"}), slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		r.t.Fatal(err)
	}
	r.bounds.apply(f)
	f.audit = r.trail
	outward := f.gateway.Dial
	f.gateway.Dial = func(ctx context.Context, addr string) (*net.TCPConn, error) { return outward(ctx, r.really(addr)) }
	r.f = f
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan []string, 1), make(chan error, 1)
	go func() { ended <- f.Serve(ctx, func(facts ...string) { ready <- facts }) }()
	select {
	case facts := <-ready:
		r.at = strings.TrimPrefix(facts[0], "listen=")
	case err := <-ended:
		r.t.Fatal(err)
	case <-time.After(patience):
		cancel()
		r.t.Fatal("the frontal is not ready")
	}
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				r.t.Errorf("Serve: %v", err)
			}
		case <-time.After(patience):
			r.t.Error("Serve did not end")
		}
	})
	r.t.Cleanup(r.stop)
}

func (r *rig) creds(id control.Identity) *control.Credentials {
	r.t.Helper()
	c, err := r.ca.Credentials(id)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) really(addr string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to, ok := r.mapped[addr]; ok {
		return to
	}
	return addr
}

// outside makes addr, an address of the wide world, lead to a loopback one.
func (r *rig) outside(addr, really string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mapped[addr] = really
}

func (r *rig) waitUp() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if r.f.up.Await(ctx) == nil {
		r.t.Fatalf("the frontal did not join the broker\n%s", r.log)
	}
}

// until waits for something that is under way to have happened.
func (r *rig) until(what string, happened func() bool) {
	r.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !happened(); <-tick.C {
		if time.Now().After(end) {
			r.t.Fatalf("waited %v for this: %s\n%s", patience, what, r.log)
		}
	}
}

// fakeBroker does what its functions say, and remembers what it was asked.
type fakeBroker struct {
	controlpb.UnimplementedDirectoryServer
	r    *rig
	name string
	addr string
	stop func()

	mu         sync.Mutex
	resolves   []*controlpb.ResolveRequest
	joins      []*controlpb.JoinRequest
	registered map[uint32]*controlpb.AccessPoint // by rank
	largest    int                               // bytes of a call that registers or publishes
	withdrawn  []uint32
	reports    []*controlpb.ReportRequest
	asked      []*controlpb.SignalRequest
	session    *control.Session
	epoch      uint64
	names      fakeNames
	told       []*controlpb.HostList // by the frontal, of its site
	hosts      *controlpb.HostList   // of the grid
	listed     int                   // calls for that

	resolve  func(context.Context, *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error)
	refuse   func(*controlpb.AccessPoint) *controlpb.Fault
	signal   func(*controlpb.SignalRequest, grpc.ServerStreamingServer[controlpb.SignalEvent]) error
	reserved *controlpb.Reserved // nil: it does not know the call
}

func newFakeBroker(r *rig) *fakeBroker {
	b := &fakeBroker{r: r, name: "main", registered: map[uint32]*controlpb.AccessPoint{}}
	b.resolve = b.everybodyAtSiteB(1)
	b.start()
	return b
}

// start listens, at the former address if there was one.
func (b *fakeBroker) start() {
	b.r.t.Helper()
	at := b.addr
	if at == "" {
		at = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", at)
	if err != nil {
		b.r.t.Fatal(err)
	}
	b.addr = ln.Addr().String()
	b.mu.Lock()
	b.epoch++
	b.mu.Unlock()
	ep := control.NewEndpoint(b.r.creds(control.Identity{Role: control.RoleBroker, Name: "main"}), slog.New(slog.DiscardHandler), func(s grpc.ServiceRegistrar) {
		controlpb.RegisterDirectoryServer(s, b)
		controlpb.RegisterSitesServer(s, fakeSites{b: b})
	})
	ep.SetTrust(control.Trust{Enrol: func(_ context.Context, c *tls.Conn, asked func() bool) { // echoes
		asked()
		io.Copy(c, c)
	}})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { ep.Serve(ctx, ln, nil, nil) })
	b.stop = sync.OnceFunc(func() { cancel(); wg.Wait(); ep.Close() })
	b.r.t.Cleanup(b.stop)
}

// everybodyAtSiteB answers every question with a process at siteb.
func (b *fakeBroker) everybodyAtSiteB(generation uint64) func(context.Context, *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
	plan := planTo("siteb", "siteb is open")
	return func(_ context.Context, req *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
		resp := &controlpb.ResolveResponse{}
		for _, q := range req.Questions {
			resp.Answers = append(resp.Answers, &controlpb.Answer{Point: pointAt(q.Process.Rank, generation, "siteb", "b1"), Plan: plan.Digest})
		}
		for _, known := range req.CachedPlans {
			if known == plan.Digest {
				return resp, nil
			}
		}
		resp.Plans = append(resp.Plans, plan)
		return resp, nil
	}
}

// locked runs f while nothing of the broker changes.
func (b *fakeBroker) locked(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

func (b *fakeBroker) calls() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.resolves)
}

// waits counts the calls that waited.
func (b *fakeBroker) waits() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.resolves {
		if r.WaitMs > 0 {
			n++
		}
	}
	return n
}

// startsWhen answers that no process is registered, or everybody at siteb once one is closed.
func (b *fakeBroker) startsWhen(started <-chan struct{}, arrived chan<- struct{}) func(context.Context, *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
	all := b.everybodyAtSiteB(1)
	return func(ctx context.Context, req *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
		if req.WaitMs > 0 {
			arrived <- struct{}{}
			select {
			case <-started:
			case <-ctx.Done():
				return nil, control.Status(ctx.Err())
			}
		}
		select {
		case <-started:
			return all(ctx, req)
		default:
			return nobody(ctx, req)
		}
	}
}

// nobody answers that no process is registered.
func nobody(_ context.Context, req *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
	resp := &controlpb.ResolveResponse{}
	for range req.Questions {
		resp.Answers = append(resp.Answers, &controlpb.Answer{Fault: control.Fault(overlay.ErrUnknownProcess)})
	}
	return resp, nil
}

// point returns what the broker has of a process.
func (b *fakeBroker) point(rank uint32) *controlpb.AccessPoint {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.registered[rank]
}

// signalRequests returns the signalling requests that the broker received.
func (b *fakeBroker) signalRequests() []*controlpb.SignalRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.asked)
}

func (b *fakeBroker) has(rank uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.registered[rank] != nil
}

// fakeSites is the service of a fakeBroker that has a call named as one of the
// other.
type fakeSites struct {
	controlpb.UnimplementedSitesServer
	b *fakeBroker
}

func (s fakeSites) Join(ctx context.Context, req *controlpb.JoinRequest) (*controlpb.JoinResponse, error) {
	return s.b.join(ctx, req)
}

func (s fakeSites) Hosts(_ context.Context, list *controlpb.HostList) (*controlpb.HostsTaken, error) {
	s.b.locked(func() { s.b.told = append(s.b.told, list) })
	return &controlpb.HostsTaken{}, nil
}

func (b *fakeBroker) Hosts(context.Context, *controlpb.HostsRequest) (*controlpb.HostList, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listed++
	return b.hosts, nil
}

func (b *fakeBroker) join(ctx context.Context, req *controlpb.JoinRequest) (*controlpb.JoinResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.joins = append(b.joins, req)
	b.session = control.SessionOf(ctx)
	return &controlpb.JoinResponse{Broker: b.name, Epoch: b.epoch}, nil
}

func (b *fakeBroker) Register(_ context.Context, req *controlpb.RegisterRequest) (*controlpb.RegisterResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.largest = max(b.largest, proto.Size(req))
	resp := &controlpb.RegisterResponse{}
	for _, p := range req.Points {
		if b.refuse != nil {
			if fault := b.refuse(p); fault != nil {
				resp.Faults = append(resp.Faults, fault)
				continue
			}
		}
		b.registered[p.Process.Rank] = p
	}
	return resp, nil
}

func (b *fakeBroker) Withdraw(_ context.Context, req *controlpb.WithdrawRequest) (*controlpb.WithdrawResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range req.Processes {
		delete(b.registered, w.Process.Rank)
		b.withdrawn = append(b.withdrawn, w.Process.Rank)
	}
	return &controlpb.WithdrawResponse{}, nil
}

func (b *fakeBroker) Resolve(ctx context.Context, req *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
	b.mu.Lock()
	b.resolves = append(b.resolves, req)
	resolve := b.resolve
	b.mu.Unlock()
	return resolve(ctx, req)
}

func (b *fakeBroker) Report(_ context.Context, req *controlpb.ReportRequest) (*controlpb.ReportResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reports = append(b.reports, req)
	return &controlpb.ReportResponse{}, nil
}

func (b *fakeBroker) Signal(req *controlpb.SignalRequest, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
	b.mu.Lock()
	b.asked = append(b.asked, req)
	signal := b.signal
	b.mu.Unlock()
	return signal(req, out)
}

func (b *fakeBroker) Reserve(ctx context.Context, req *controlpb.SignalRequest) (*controlpb.Reserved, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, req)
	if b.reserved == nil {
		return b.UnimplementedDirectoryServer.Reserve(ctx, req)
	}
	return b.reserved, nil
}

// reserve calls the frontal as the broker does.
func (b *fakeBroker) reserve(in *controlpb.Signal) error {
	b.mu.Lock()
	s := b.session
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(b.r.t.Context(), patience)
	defer cancel()
	_, err := controlpb.NewTargetClient(s.Conn()).Reserve(ctx, in)
	return control.FromStatus(err)
}

// signalTarget calls the frontal as the broker does and returns its events.
func (b *fakeBroker) signalTarget(in *controlpb.Signal) ([]*controlpb.SignalEvent, error) {
	b.mu.Lock()
	s := b.session
	b.mu.Unlock()
	return eventsOf(b.r.t, func(ctx context.Context) (grpc.ServerStreamingClient[controlpb.SignalEvent], error) {
		return controlpb.NewTargetClient(s.Conn()).Signal(ctx, in)
	})
}

func eventsOf(t *testing.T, open func(context.Context) (grpc.ServerStreamingClient[controlpb.SignalEvent], error)) (events []*controlpb.SignalEvent, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := open(ctx)
	for err == nil {
		var e *controlpb.SignalEvent
		if e, err = stream.Recv(); err == nil {
			events = append(events, e)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return events, control.FromStatus(err)
}

// fakeHelper is one node's session with the frontal, and the node's listener.
type fakeHelper struct {
	controlpb.UnimplementedTargetServer
	r            *rig
	node         string
	end          *control.Endpoint
	s            *control.Session
	dir          controlpb.DirectoryClient
	nodes        controlpb.NodesClient
	ln           net.Listener
	signalTarget func(*controlpb.Signal, grpc.ServerStreamingServer[controlpb.SignalEvent]) error
	reserved     func(*controlpb.Signal) error // nil: it does not know the call
}

func (h *fakeHelper) Reserve(ctx context.Context, in *controlpb.Signal) (*controlpb.ReserveResponse, error) {
	if h.reserved == nil {
		return h.UnimplementedTargetServer.Reserve(ctx, in)
	}
	return &controlpb.ReserveResponse{}, control.Status(h.reserved(in))
}

func (h *fakeHelper) Signal(in *controlpb.Signal, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
	return h.signalTarget(in, out)
}

// dialAs makes a session with the frontal under any identity.
func (r *rig) dialAs(id control.Identity, services func(grpc.ServiceRegistrar)) (*control.Session, error) {
	return r.dialFrom(r.endpoint(id, services))
}

// endpoint returns a process of an identity.
func (r *rig) endpoint(id control.Identity, services func(grpc.ServiceRegistrar)) *control.Endpoint {
	ep := control.NewEndpoint(r.creds(id), slog.New(slog.DiscardHandler), services)
	r.t.Cleanup(ep.Close)
	return ep
}

func (r *rig) dialFrom(ep *control.Endpoint) (*control.Session, error) {
	return ep.Dial(r.t.Context(), control.DialConfig{Addr: r.at, Role: control.RoleFrontal})
}

func (r *rig) helper(node string) *fakeHelper {
	r.t.Helper()
	h := &fakeHelper{r: r, node: node, ln: testkit.Listen(r.t)}
	h.end = r.endpoint(control.Identity{Role: control.RoleHelper, Site: "sitea", Name: node}, func(reg grpc.ServiceRegistrar) {
		controlpb.RegisterTargetServer(reg, h)
	})
	h.join()
	return h
}

// join opens a session, another one if there was one.
func (h *fakeHelper) join() {
	h.r.t.Helper()
	s, err := h.r.dialFrom(h.end)
	if err != nil {
		h.r.t.Fatal(err)
	}
	h.s, h.dir, h.nodes = s, controlpb.NewDirectoryClient(s.Conn()), controlpb.NewNodesClient(s.Conn())
	h.r.until("helper "+h.node+" is on the registry", func() bool {
		return h.r.joined(h.node, s)
	})
}

// joined reports whether s is the session that the frontal has with a node's helper.
func (r *rig) joined(node string, s *control.Session) bool {
	return slices.ContainsFunc(r.f.registry.Helpers(), func(h directory.HelperState) bool {
		return h.Node == node && h.Session != nil && h.Session.RemoteAddr() == s.LocalAddr()
	})
}

func (h *fakeHelper) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	h.r.t.Cleanup(cancel)
	return ctx
}

func (h *fakeHelper) point(rank uint32, generation uint64) *controlpb.AccessPoint {
	p := &controlpb.AccessPoint{Process: control.ProcessToPB(proc(rank)), Generation: generation, Site: "sitea", Node: h.node, Local: h.ln.Addr().String()}
	p.Proof = jobKey.Auth().Prove(proc(rank), overlay.Generation(generation), overlay.NodeID{Site: "sitea", Name: h.node})
	return p
}

// register registers ranks in generation 1 and expects no fault.
func (h *fakeHelper) register(ranks ...uint32) {
	h.r.t.Helper()
	req := &controlpb.RegisterRequest{}
	for _, rank := range ranks {
		req.Points = append(req.Points, h.point(rank, 1))
	}
	resp, err := h.dir.Register(h.ctx(), req)
	if err != nil || len(resp.Faults) > 0 {
		h.r.t.Fatalf("register: %v, %v", resp, control.FromStatus(err))
	}
}

// ask resolves one process.
func (h *fakeHelper) ask(rank uint32, fresh bool) (*controlpb.Answer, error) {
	return h.resolve(&controlpb.Question{Process: control.ProcessToPB(proc(rank)), Fresh: fresh}, 0)
}

// await resolves one process, and waits for it.
func (h *fakeHelper) await(rank uint32, wait time.Duration) error {
	_, err := h.resolve(&controlpb.Question{Process: control.ProcessToPB(proc(rank))}, wait)
	return err
}

func (h *fakeHelper) resolve(q *controlpb.Question, wait time.Duration) (*controlpb.Answer, error) {
	resp, err := h.dir.Resolve(h.ctx(), &controlpb.ResolveRequest{Questions: []*controlpb.Question{q}, WaitMs: uint32(wait.Milliseconds())})
	if err != nil {
		return nil, control.FromStatus(err)
	}
	return resp.Answers[0], control.FaultErr(resp.Answers[0].Fault)
}

func (h *fakeHelper) signal(req *controlpb.SignalRequest) ([]*controlpb.SignalEvent, error) {
	return eventsOf(h.r.t, func(ctx context.Context) (grpc.ServerStreamingClient[controlpb.SignalEvent], error) {
		return h.dir.Signal(ctx, req)
	})
}

// carry asks for addrs and returns the connection that shows the carry-id.
func (h *fakeHelper) carry(addrs ...string) (*net.TCPConn, error) {
	resp, err := h.nodes.Carry(h.ctx(), &controlpb.CarryRequest{Addresses: addrs, Asker: control.ProcessToPB(proc(0)), Target: control.ProcessToPB(proc(9))})
	if err != nil {
		return nil, control.FromStatus(err)
	}
	return testkit.Show(h.r.t, h.r.f.gateway.DataAddr, &wire.Intro{Kind: wire.IntroCarry, ID: wire.ID(resp.CarryId), Job: job}), nil
}

// echo answers every connection to ln with what it sends, until it ends.
func echo(t *testing.T, ln net.Listener) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
}
