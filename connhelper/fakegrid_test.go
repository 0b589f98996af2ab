package connhelper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// fakeFrontal is broker and frontal of one site in one: a directory in memory, a plan that the test
// sets, and signalling requests straight to the target's helper. Sessions are real.
type fakeFrontal struct {
	controlpb.UnimplementedDirectoryServer
	controlpb.UnimplementedNodesServer

	t       *testing.T
	ca      *ca.CA
	addr    string
	profile overlay.SiteProfile

	mu        sync.Mutex
	plan      overlay.Plan
	points    map[overlay.ProcessName]overlay.AccessPoint
	died      map[overlay.ProcessName]bool
	names     map[string]string // published names, with their ports
	taken     map[string]bool   // names of other processes
	nameEnds  int               // how many waiting lookups end their session
	registers chan struct{}     // closed and replaced at every registration
	helpers   map[string]*control.Session
	relay     *controlpb.Assignment
	alone     bool                  // there is no other relay
	doubtful  *controlpb.Assignment // in place of relay, unless another one is asked for
	memory    *controlpb.Memory     // part of every answer
	reports   []*controlpb.ReportRequest
	resolves  int
	accepted  int                         // signalling requests that the target's helper has accepted
	asked     int                         // signalling requests
	unused    int                         // connections to the relay that were closed without a ticket
	refuse    error                       // for Register
	fails     map[overlay.Technique]error // of signalling requests
	ends      int                         // how many signalling requests end their session
	endsAgain int                         // how many registrations end it
	noPlan    bool                        // answer without a plan
	old       bool                        // Resolve does not wait
	late      bool                        // Resolve answers only the first question in time
	away      bool                        // Resolve has no broker to ask, and later does not answer
	offered   []*controlpb.HostOffer
	hosts     *controlpb.HostList
	last      *Helper // the last helper made by helper
	accounts  []*controlpb.AccountRequest
	reserves  int        // requested reserves
	full      []uint32   // connections with which the NAT was full
	audit     *audit.Log // of later helpers

	hasAddress func(netip.Addr) bool // of later helpers' hosts; nil: the system's
}

func newFakeFrontal(t *testing.T, profile overlay.SiteProfile, techniques ...overlay.Technique) *fakeFrontal {
	authority, _, err := ca.New("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	profile.Site = "sitea"
	f := &fakeFrontal{t: t, ca: authority, profile: profile,
		points: map[overlay.ProcessName]overlay.AccessPoint{}, died: map[overlay.ProcessName]bool{}, helpers: map[string]*control.Session{}, registers: make(chan struct{}), names: map[string]string{},
		plan: overlay.Plan{Asker: "sitea", Target: "sitea"},
	}
	for _, tech := range techniques {
		f.plan.Steps = append(f.plan.Steps, overlay.Step{Technique: tech, Reason: "the test says so"})
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	f.start(ln)
	return f
}

// nowhere is an address without a listener.
const nowhere = "127.0.0.1:1"

// start serves on ln until the test ends or stop is called.
func (f *fakeFrontal) start(ln net.Listener) (stop func()) {
	creds, err := f.ca.Credentials(control.Identity{Role: control.RoleFrontal, Site: "sitea"})
	if err != nil {
		f.t.Fatal(err)
	}
	e := control.NewEndpoint(creds, slog.New(slog.DiscardHandler), func(r grpc.ServiceRegistrar) {
		controlpb.RegisterDirectoryServer(r, f)
		controlpb.RegisterNodesServer(r, f)
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { e.Serve(ctx, ln, nil, nil) })
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); wg.Wait(); e.Close() }) }
	f.t.Cleanup(stop)
	return stop
}

func (f *fakeFrontal) Enter(ctx context.Context, r *controlpb.EnterRequest) (*controlpb.EnterResponse, error) {
	s := control.SessionOf(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offered = append(f.offered, r.Offer)
	f.helpers[s.Peer().Name] = s
	return &controlpb.EnterResponse{Site: "sitea", Profile: control.ProfileToPB(f.profile)}, nil
}

func (f *fakeFrontal) Account(_ context.Context, r *controlpb.AccountRequest) (*controlpb.AccountResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, here := f.points[overlay.ProcessName{Job: overlay.JobID(r.Process.Job), Rank: r.Process.Rank}]; !here {
		f.t.Errorf("told of the links of %v, which is not registered any more", r.Process)
	}
	f.accounts = append(f.accounts, r)
	return &controlpb.AccountResponse{}, nil
}

func (f *fakeFrontal) Hosts(context.Context, *controlpb.HostsRequest) (*controlpb.HostList, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hosts, nil
}

func (f *fakeFrontal) Register(ctx context.Context, r *controlpb.RegisterRequest) (*controlpb.RegisterResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.endsAgain > 0 {
		f.endsAgain--
		control.SessionOf(ctx).Close()
		return nil, ctx.Err()
	}
	if f.refuse != nil {
		return &controlpb.RegisterResponse{Faults: []*controlpb.Fault{control.Fault(f.refuse)}}, nil
	}
	for _, m := range r.Points {
		p, err := control.PointFromPB(m)
		if err != nil {
			return nil, control.Status(err)
		}
		f.points[p.Process] = p
	}
	close(f.registers)
	f.registers = make(chan struct{})
	return &controlpb.RegisterResponse{}, nil
}

func (f *fakeFrontal) Withdraw(_ context.Context, r *controlpb.WithdrawRequest) (*controlpb.WithdrawResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range r.Processes {
		name, _ := control.ProcessFromPB(w.Process)
		delete(f.points, name)
		f.died[name] = w.Died
	}
	return &controlpb.WithdrawResponse{}, nil
}

func (f *fakeFrontal) answer(m *controlpb.Process) (*controlpb.Answer, <-chan struct{}) {
	name, err := control.ProcessFromPB(m)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resolves++
	p, ok := f.points[name]
	if err == nil && !ok {
		err = fmt.Errorf("%w: %v", overlay.ErrUnknownProcess, name)
		if f.died[name] {
			err = fmt.Errorf("%w: %v", overlay.ErrEnded, name)
		}
	}
	if err != nil {
		return &controlpb.Answer{Fault: control.Fault(err)}, f.registers
	}
	if f.noPlan {
		return &controlpb.Answer{Point: control.PointToPB(p)}, nil
	}
	plan := control.PlanToPB(f.plan)
	return &controlpb.Answer{Point: control.PointToPB(p), Plan: plan.Digest, PlanIfNew: plan, Memory: f.memory}, nil
}

func (f *fakeFrontal) Resolve(ctx context.Context, r *controlpb.ResolveRequest) (*controlpb.ResolveResponse, error) {
	response := &controlpb.ResolveResponse{}
	for _, q := range r.Questions {
		a, changed := f.answer(q.Process)
		over := time.After(time.Duration(r.WaitMs) * time.Millisecond)
		if f.late && f.resolves > 1 {
			over = nil
		}
		for waits := !f.old && !f.away; waits && errors.Is(control.FaultErr(a.Fault), overlay.ErrUnknownProcess); {
			select {
			case <-changed:
				a, changed = f.answer(q.Process)
			case <-over:
				waits = false
			case <-ctx.Done():
				return nil, control.Status(ctx.Err())
			}
		}
		if f.away && f.resolves > 1 {
			<-ctx.Done()
			return nil, control.Status(ctx.Err())
		}
		if f.away {
			a.Fault = control.Fault(wire.CodeNoSession.Errorf("the broker is stopped"))
		}
		response.Answers = append(response.Answers, a)
	}
	return response, nil
}

func (f *fakeFrontal) Report(_ context.Context, r *controlpb.ReportRequest) (*controlpb.ReportResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports = append(f.reports, r)
	return &controlpb.ReportResponse{}, nil
}

func (f *fakeFrontal) SessionLimit(_ context.Context, r *controlpb.SessionLimitRequest) (*controlpb.SessionLimitResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = append(f.full, r.Connections)
	return &controlpb.SessionLimitResponse{}, nil
}

func (f *fakeFrontal) Signal(r *controlpb.SignalRequest, up grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
	name, err := control.ProcessFromPB(r.Target)
	if err != nil {
		return control.Status(err)
	}
	f.mu.Lock()
	node := f.points[name].Node
	helper, relay := f.helpers[node.Name], f.relay
	alone := f.alone && r.OtherThan != ""
	if f.doubtful != nil && r.OtherThan != f.doubtful.Proxy {
		relay = f.doubtful
	}
	fails := f.fails[overlay.Technique(r.Technique)]
	f.asked++
	ends := f.ends > 0
	if ends {
		f.ends--
	}
	f.mu.Unlock()
	if alone {
		return control.Status(overlay.ErrNoRelay)
	}
	if ends {
		control.SessionOf(up.Context()).Close()
		return up.Context().Err()
	}
	if fails == nil && helper == nil { // it has withdrawn meanwhile
		fails = overlay.ErrUnknownProcess
	}
	if fails != nil {
		return up.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_FAILED, Fault: control.Fault(fails)})
	}
	if err := up.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_ASSIGNED, Relay: relay}); err != nil {
		return err
	}
	down, err := controlpb.NewTargetClient(helper.Conn()).Signal(up.Context(), &controlpb.Signal{
		Link: r.Link, Technique: r.Technique, Asker: r.Asker, AskerSite: "sitea", AskerNode: r.AskerNode,
		Target: r.Target, TargetGeneration: r.TargetGeneration, ConnectAddress: r.ConnectAddress, ConnectId: r.ConnectId, Relay: relay,
	})
	if err != nil {
		return err
	}
	for {
		e, err := down.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if e.Kind == controlpb.SignalEvent_ACCEPTED {
			f.mu.Lock()
			f.accepted++
			f.mu.Unlock()
		}
		if err := up.Send(e); err != nil {
			return err
		}
	}
}

// helper runs a helper of the site until the test ends, and returns the path of its socket and a
// function that stops it earlier.
func (f *fakeFrontal) helper(name string) (socket string, stop func()) {
	f.t.Helper()
	creds, err := f.ca.Credentials(control.Identity{Role: control.RoleHelper, Site: "sitea", Name: name})
	if err != nil {
		f.t.Fatal(err)
	}
	h, err := New(Options{Credentials: creds, Frontal: f.addr, Log: slog.New(slog.DiscardHandler), MaxOpen: 64, AllowLoopback: true, Audit: f.audit})
	if err != nil {
		f.t.Fatal(err)
	}
	f.last = h
	if f.hasAddress != nil {
		h.traversals.hasAddress = f.hasAddress
	}
	dir, err := os.MkdirTemp("", "h") // short: the length of a socket's path is limited
	if err != nil {
		f.t.Fatal(err)
	}
	socket = filepath.Join(dir, "s")
	ln, err := local.ListenUnix(socket, 0o600)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := h.Serve(ctx, ln); err != nil {
			f.t.Errorf("helper %s: %v", name, err)
		}
	})
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); wg.Wait(); os.RemoveAll(dir) }) }
	f.t.Cleanup(stop)
	if f.addr != nowhere {
		entered, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		if _, err := h.uplink.frontal(entered); err != nil {
			f.t.Fatal(err)
		}
	}
	return socket, stop
}

// rank is the process's end of a helper's socket, operated by the test.
type rank struct {
	t    *testing.T
	conn *local.Conn
	said signedHello
}

// signedHello is a hello, and the key by which its rank signs its place.
type signedHello struct {
	*wire.LocalHello
	auth jobkey.ForAuth
}

func hello(key jobkey.Key, n uint32, generation overlay.Generation) signedHello {
	return signedHello{&wire.LocalHello{Key: key.Auth().Public(), Job: key.ID(), Rank: n, Generation: generation}, key.Auth()}
}

// say2helper connects to a helper and sends one frame.
func say2helper(t *testing.T, socket string, first wire.Frame) *rank {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	r := &rank{t: t, conn: local.NewConn(c)}
	r.said, _ = first.(signedHello)
	t.Cleanup(func() { r.conn.Close() })
	r.send(first)
	return r
}

func join(t *testing.T, socket string, key jobkey.Key, n uint32) *rank {
	t.Helper()
	r := say2helper(t, socket, hello(key, n, 1))
	f, _ := r.next()
	if _, ok := f.(*wire.LocalWelcome); !ok {
		t.Fatalf("rank %d got %+v", n, f)
	}
	return r
}

func (r *rank) send(f wire.Frame) {
	r.t.Helper()
	if err := r.conn.Send(f, nil); err != nil {
		r.t.Fatal(err)
	}
}

// next returns the next frame and the connection that came with it. It signs a place and skips it.
func (r *rank) next() (wire.Frame, net.Conn) {
	r.t.Helper()
	r.conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	f, file, err := r.conn.Receive()
	if err != nil {
		r.t.Fatal(err)
	}
	if place, ok := f.(*wire.LocalPlace); ok {
		name := overlay.ProcessName{Job: r.said.Job, Rank: r.said.Rank}
		proof := r.said.auth.Prove(name, place.Generation, place.Node)
		r.send(&wire.LocalProof{Signature: [64]byte(proof[32:])})
		return r.next()
	}
	if file == nil {
		return f, nil
	}
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return f, c
}

// dialled requests a connection and returns it with its path.
func (r *rank) dialled(to uint32) (overlay.Path, net.Conn) {
	r.t.Helper()
	return r.dialledBy(to, overlay.AllWays)
}

// dialledBy dials, and reports that the handshake succeeded.
func (r *rank) dialledBy(to uint32, ways overlay.Ways) (overlay.Path, net.Conn) {
	r.t.Helper()
	d, c := r.dial(to, ways)
	r.send(&wire.LocalOutcome{Carrier: d.Carrier})
	return d.Path, c
}

func (r *rank) dial(to uint32, ways overlay.Ways) (*wire.LocalDialled, net.Conn) {
	r.t.Helper()
	r.send(&wire.LocalDial{Request: 1, Rank: to, Budget: time.Minute, Ways: ways})
	f, c := r.next()
	d, ok := f.(*wire.LocalDialled)
	if !ok {
		r.t.Fatalf("got %+v", f)
	}
	return d, c
}

// failed requests a connection that is not available and returns why.
func (r *rank) failed(to uint32, budget time.Duration) *wire.LocalFailed {
	r.t.Helper()
	return r.failedBy(to, overlay.AllWays, budget)
}

func (r *rank) failedBy(to uint32, ways overlay.Ways, budget time.Duration) *wire.LocalFailed {
	r.t.Helper()
	r.send(&wire.LocalDial{Request: 1, Rank: to, Budget: budget, Ways: ways})
	f, _ := r.next()
	d, ok := f.(*wire.LocalFailed)
	if !ok {
		r.t.Fatalf("got %+v", f)
	}
	return d
}

// failedAs is failed with growing budgets, until code and words are the expected ones: a busy
// machine may let a short budget pass before the helper has asked.
func (r *rank) failedAs(to uint32, budget time.Duration, code wire.Code, words ...string) {
	r.t.Helper()
	for tries := 1; ; tries++ {
		got := r.failed(to, budget)
		fits := got.Code == code
		for _, want := range words {
			fits = fits && strings.Contains(got.Text, want)
		}
		switch {
		case fits:
			return
		case tries == 3:
			r.t.Errorf("%+v, want code %v and %q", got, code, words)
			return
		}
		budget *= 10
	}
}

func (r *rank) incoming() (overlay.Path, net.Conn) {
	r.t.Helper()
	f, c := r.next()
	in, ok := f.(*wire.LocalIncoming)
	if !ok {
		r.t.Fatalf("got %+v", f)
	}
	return in.Path, c
}

// joined checks that two connections are the ends of one.
func joined(t *testing.T, a, b net.Conn) {
	t.Helper()
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		if _, err := pair[0].Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4)
		pair[1].SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.ReadFull(pair[1], buf); err != nil || string(buf) != "ping" {
			t.Fatalf("got %q, %v", buf, err)
		}
	}
}

func newKey(t *testing.T) jobkey.Key {
	k, err := jobkey.New("demo")
	if err != nil {
		t.Fatal(err)
	}
	return k
}
