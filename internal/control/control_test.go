package control_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

var (
	broker  = control.Identity{Role: control.RoleBroker, Name: "main"}
	frontal = control.Identity{Role: control.RoleFrontal, Site: "sitea"}
	helper  = control.Identity{Role: control.RoleHelper, Site: "sitea", Name: "a1"}
)

type grid struct {
	t  *testing.T
	ca *ca.CA
}

func newGrid(t *testing.T) *grid {
	a, _, err := ca.New("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return &grid{t, a}
}

func (g *grid) creds(id control.Identity) *control.Credentials {
	c, err := g.ca.Credentials(id)
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

// admin answers Status with the caller, and calls the caller's own Status if it has one: a call in
// each direction on the same session.
type admin struct {
	controlpb.UnimplementedAdminServer
	err error
}

func (a admin) Status(ctx context.Context, _ *controlpb.StatusRequest) (*controlpb.StatusResponse, error) {
	if a.err != nil {
		return nil, control.Status(a.err)
	}
	s := control.SessionOf(ctx)
	if s.Peer().Role != control.RoleFrontal {
		return &controlpb.StatusResponse{Json: []byte("I was called by " + s.Peer().String())}, nil
	}
	r, err := controlpb.NewAdminClient(s.Conn()).Status(ctx, &controlpb.StatusRequest{})
	if err != nil {
		return nil, control.Status(control.FromStatus(err))
	}
	return &controlpb.StatusResponse{Json: append([]byte("back: "), r.Json...)}, nil
}

func endpoint(t *testing.T, c *control.Credentials, a controlpb.AdminServer) *control.Endpoint {
	e := control.NewEndpoint(c, slog.New(slog.DiscardHandler), func(r grpc.ServiceRegistrar) { controlpb.RegisterAdminServer(r, a) })
	t.Cleanup(e.Close)
	return e
}

// serve runs e on loopback until the test ends and returns its address.
func serve(t *testing.T, e *control.Endpoint, admit func(control.Identity) error, joined func(context.Context, *control.Session)) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := e.Serve(ctx, ln, admit, joined); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return ln.Addr().String()
}

func TestCallsGoBothWays(t *testing.T) {
	g := newGrid(t)
	addr := serve(t, endpoint(t, g.creds(broker), admin{}), nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := endpoint(t, g.creds(frontal), admin{}).Dial(ctx, control.DialConfig{Addr: addr, Role: control.RoleBroker})
	if err != nil {
		t.Fatal(err)
	}
	if s.Peer() != broker {
		t.Errorf("peer is %v", s.Peer())
	}
	r, err := controlpb.NewAdminClient(s.Conn()).Status(ctx, &controlpb.StatusRequest{})
	if err != nil || string(r.Json) != "back: I was called by broker main" {
		t.Fatalf("got %q, %v", r.GetJson(), err)
	}
	s.Close()
	if _, err := controlpb.NewAdminClient(s.Conn()).Status(ctx, &controlpb.StatusRequest{}); err == nil {
		t.Error("a call on a closed session succeeded")
	}
}

// lingering is a connection that takes long to close.
type lingering struct {
	net.Conn
	closing sync.Once
	begun   chan struct{} // closed when Close was called
	linger  chan struct{} // Close waits until it is closed
}

func (c *lingering) Close() error {
	c.closing.Do(func() { close(c.begun) })
	<-c.linger
	return c.Conn.Close()
}

// waiting answers Status when the caller no longer waits.
type waiting struct {
	controlpb.UnimplementedAdminServer
	asked chan struct{}
}

func (w waiting) Status(ctx context.Context, _ *controlpb.StatusRequest) (*controlpb.StatusResponse, error) {
	close(w.asked)
	<-ctx.Done()
	return nil, ctx.Err()
}

// Calls on a session that is closed end at once, and do not spin until its connection has been
// closed, which may take long.
func TestCallsEndBeforeTheConnection(t *testing.T) {
	g := newGrid(t)
	asked := make(chan struct{})
	addr := serve(t, endpoint(t, g.creds(broker), waiting{asked: asked}), nil, nil)
	c := &lingering{begun: make(chan struct{}), linger: make(chan struct{})}
	release := sync.OnceFunc(func() { close(c.linger) })
	defer release()
	s, err := endpoint(t, g.creds(frontal), admin{}).Dial(t.Context(), control.DialConfig{Addr: addr, Role: control.RoleBroker,
		Dial: func(_ context.Context, addr string) (_ net.Conn, err error) {
			c.Conn, err = net.Dial("tcp", addr)
			return c, err
		}})
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan error, 1)
	go func() { // ends with the session
		_, err := controlpb.NewAdminClient(s.Conn()).Status(t.Context(), &controlpb.StatusRequest{})
		called <- err
	}()
	testkit.Receive(t, "the call at the other end", asked)
	closed := make(chan struct{})
	go func() { // ends when the connection is closed
		s.Close()
		close(closed)
	}()
	testkit.Receive(t, "the closing of the connection", c.begun)
	select {
	case err := <-called:
		if err := control.FromStatus(err); !errors.Is(err, overlay.ErrNoSession) {
			t.Errorf("the call ended with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the call waits for the connection to be closed")
	}
	release()
	testkit.Receive(t, "the end of Close", closed)
}

func TestErrorsKeepTheirClass(t *testing.T) {
	g := newGrid(t)
	for _, class := range []error{overlay.ErrUnknownSite, overlay.ErrNoRelay, overlay.ErrOverloaded, overlay.ErrForbidden, overlay.ErrStale, overlay.ErrTimeout} {
		addr := serve(t, endpoint(t, g.creds(broker), admin{err: fmt.Errorf("broker main: siteb: %w", class)}), nil, nil)
		s, err := endpoint(t, g.creds(frontal), admin{}).Dial(t.Context(), control.DialConfig{Addr: addr, Role: control.RoleBroker})
		if err != nil {
			t.Fatal(err)
		}
		_, err = controlpb.NewAdminClient(s.Conn()).Status(t.Context(), &controlpb.StatusRequest{})
		if err = control.FromStatus(err); !errors.Is(err, class) || err.Error() != "broker main: siteb: "+class.Error() {
			t.Errorf("%v arrived as %v", class, err)
		}
	}
}

// TestRefusals: a refused caller gets the reason as a message, and so does this side when the
// daemon it dialled is not the expected one.
func TestRefusals(t *testing.T) {
	g, other := newGrid(t), newGrid(t)
	issue := func(notAfter time.Time) func() (*control.Credentials, error) {
		return func() (*control.Credentials, error) {
			cert, key, err := g.ca.Issue(helper, notAfter)
			if err != nil {
				return nil, err
			}
			return control.NewCredentials(cert, key, g.ca.CertPEM())
		}
	}
	if _, err := issue(time.Now().Add(-time.Hour))(); err == nil || !strings.Contains(err.Error(), "the certificate of helper sitea/a1 expired at") {
		t.Errorf("own expired certificate: %v", err)
	}
	addr := serve(t, endpoint(t, g.creds(frontal), admin{}), func(id control.Identity) error {
		if id.Site != "sitea" {
			return fmt.Errorf("%w: %v is not of sitea", overlay.ErrForbidden, id)
		}
		return nil
	}, nil)

	dial := func(c *control.Credentials, role control.Role) error {
		_, err := endpoint(t, c, admin{}).Dial(t.Context(), control.DialConfig{Addr: addr, Role: role})
		return err
	}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"wanted another daemon": {dial(g.creds(helper), control.RoleBroker), "this is frontal sitea, wanted a broker"},
		"foreign server":        {dial(other.creds(helper), control.RoleFrontal), "the certificate of frontal sitea was not issued by this grid's CA"},
		"another site's helper": {dial(g.creds(control.Identity{Role: control.RoleHelper, Site: "siteb", Name: "b1"}), control.RoleFrontal), "frontal sitea: not permitted: helper siteb/b1 is not of sitea"},
	} {
		if tc.err == nil || !strings.Contains(tc.err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, tc.err, tc.want)
		}
	}
	if err := dial(g.creds(helper), control.RoleFrontal); err != nil {
		t.Errorf("a helper of the site: %v", err)
	}
}

// rawClient makes a client's TLS connection directly, with any certificate, and returns the first
// frame from the server.
func rawClient(t *testing.T, addr string, cert tls.Certificate, send wire.Frame) wire.Frame {
	t.Helper()
	c, err := tls.Dial("tcp", addr, &tls.Config{
		Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true, NextProtos: []string{"isthmus-control"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if send != nil {
		if _, err := c.Write(wire.Append(nil, send)); err != nil {
			t.Fatal(err)
		}
	}
	for {
		f, err := wire.Read(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, own := f.(*wire.ControlHello); !own || send == nil {
			return f
		}
	}
}

func TestClientIsToldWhatIsWrongWithItsCertificate(t *testing.T) {
	g, other := newGrid(t), newGrid(t)
	addr := serve(t, endpoint(t, g.creds(frontal), admin{}), nil, nil)
	pair := func(a *ca.CA, notAfter time.Time) tls.Certificate {
		cert, key, err := a.Issue(helper, notAfter)
		if err != nil {
			t.Fatal(err)
		}
		p, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, tc := range []struct {
		cert tls.Certificate
		want string
	}{
		{pair(g.ca, time.Now().Add(-time.Hour)), "the certificate of helper sitea/a1 expired at "},
		{pair(other.ca, time.Now().Add(time.Hour)), "the certificate of helper sitea/a1 was not issued by this grid's CA"},
	} {
		f := rawClient(t, addr, tc.cert, nil)
		refusal, ok := f.(*wire.Refuse)
		if !ok || refusal.Code != wire.CodeForbidden || refusal.By != "frontal sitea" || !strings.Contains(refusal.Text, tc.want) {
			t.Errorf("got %+v, want a refusal with %q", f, tc.want)
		}
	}
}

// shared collects the output of several goroutines.
type shared struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// The tolerated clock skew, at either end; beyond that both ends report it. The certificates are
// valid from five minutes ago for an hour.
func TestClocksMayDiffer(t *testing.T) {
	g := newGrid(t)
	const late, early = "expired at ", "is not valid before "
	for _, c := range []struct {
		off  time.Duration
		want string
	}{
		{10 * time.Minute, ""}, {-10 * time.Minute, ""},
		{time.Hour + overlay.MaxLate - time.Minute, ""}, {time.Hour + overlay.MaxLate + time.Minute, late},
		{-overlay.MaxAhead, ""}, {-overlay.MaxAhead - 10*time.Minute, early},
	} {
		for _, server := range []bool{true, false} {
			above, below := g.creds(frontal), g.creds(helper)
			off := map[bool]*control.Credentials{true: above, false: below}[server]
			off.SetClock(func() time.Time { return time.Now().Add(c.off) })
			var log shared
			e := control.NewEndpoint(above, slog.New(slog.NewTextHandler(&log, nil)), func(grpc.ServiceRegistrar) {})
			t.Cleanup(e.Close)
			addr := serve(t, e, nil, nil)
			_, err := endpoint(t, below, admin{}).Dial(t.Context(), control.DialConfig{Addr: addr, Role: control.RoleFrontal})
			if c.want == "" {
				if err != nil {
					t.Errorf("off by %v, the server's: %v: %v", c.off, server, err)
				}
				continue
			}
			said := func(text string) bool {
				return strings.Contains(text, c.want) && strings.Contains(text, "the clocks of this host and its issuer differ by at least ")
			}
			if err == nil || !said(err.Error()) {
				t.Errorf("off by %v, the server's: %v: the client says %v", c.off, server, err)
			}
			for end := time.Now().Add(time.Minute); !said(log.String()); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Errorf("off by %v, the server's: %v: the server says %q", c.off, server, log.String())
					break
				}
			}
		}
	}
}

// A server whose certificate is of another grid does not receive the client's certificate, whatever
// its time.
func TestClockIsNoExcuse(t *testing.T) {
	g, other := newGrid(t), newGrid(t)
	below := other.creds(helper)
	below.SetClock(func() time.Time { return time.Now().Add(72 * time.Hour) })
	addr := serve(t, endpoint(t, g.creds(frontal), admin{}), nil, nil)
	_, err := endpoint(t, below, admin{}).Dial(t.Context(), control.DialConfig{Addr: addr, Role: control.RoleFrontal})
	if err == nil || !strings.Contains(err.Error(), "was not issued by this grid's CA") {
		t.Error(err)
	}
}

func TestUnknownVersionIsRefused(t *testing.T) {
	g := newGrid(t)
	addr := serve(t, endpoint(t, g.creds(frontal), admin{}), nil, nil)
	cert, key, err := g.ca.Issue(helper, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	f := rawClient(t, addr, pair, &wire.ControlHello{Oldest: 7, Newest: 9, Software: "isthmus/9"})
	refusal, ok := f.(*wire.Refuse)
	if !ok || refusal.Code != wire.CodeVersion || !strings.Contains(refusal.Text, "helper sitea/a1 (isthmus/9) speaks control versions 7 to 9, frontal sitea (isthmus/0.1) speaks 1 to 1; upgrade the older one") {
		t.Errorf("got %+v", f)
	}
}

// TestKeep: the session is opened again after the server disappeared and returned on the same
// address, and nothing is left at the end.
func TestKeep(t *testing.T) {
	g := newGrid(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client := endpoint(t, g.creds(frontal), admin{})
	ups := make(chan *control.Session)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		client.Keep(ctx, control.DialConfig{Addr: ln.Addr().String(), Role: control.RoleBroker}, func(ctx context.Context, s *control.Session) error {
			select {
			case ups <- s:
			case <-ctx.Done():
			}
			return nil
		})
	})
	for range 3 {
		serverCtx, stop := context.WithCancel(t.Context())
		server := endpoint(t, g.creds(broker), admin{})
		served := make(chan struct{})
		go func() {
			defer close(served)
			server.Serve(serverCtx, ln, nil, nil)
		}()
		s := testkit.Receive(t, "a session", ups)
		if _, err := controlpb.NewAdminClient(s.Conn()).Status(ctx, &controlpb.StatusRequest{}); err != nil {
			t.Fatal(control.FromStatus(err))
		}
		stop()
		testkit.Receive(t, "the session's end", s.Done())
		testkit.Receive(t, "the end of Serve", served) // the port is free again
		if ln, err = net.Listen("tcp", ln.Addr().String()); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	wg.Wait()
	ln.Close()
}

func TestUnreachableAndSilentServers(t *testing.T) {
	g := newGrid(t)
	e := endpoint(t, g.creds(frontal), admin{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	// The kernel accepts, no process answers.
	if _, err := e.Dial(ctx, control.DialConfig{Addr: addr, Role: control.RoleBroker}); !errors.Is(err, overlay.ErrTimeout) || !strings.Contains(err.Error(), "broker at "+addr) {
		t.Errorf("silent server: %v", err)
	}
	ln.Close()
	if _, err := e.Dial(t.Context(), control.DialConfig{Addr: addr, Role: control.RoleBroker}); !errors.Is(err, overlay.ErrRefused) || !strings.Contains(err.Error(), "nothing listens there") {
		t.Errorf("nobody there: %v", err)
	}
}

func TestSessionsLeakNothing(t *testing.T) {
	g := newGrid(t)
	server := endpoint(t, g.creds(broker), admin{})
	addr := serve(t, server, nil, nil)
	client := endpoint(t, g.creds(helper), admin{})
	once := func() {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := client.Dial(ctx, control.DialConfig{Addr: addr, Role: control.RoleBroker})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := controlpb.NewAdminClient(s.Conn()).Status(ctx, &controlpb.StatusRequest{}); err != nil {
			t.Fatal(err)
		}
		cancel()
		testkit.Receive(t, "the session's end", s.Done())
	}
	once() // what starts with the first session stays
	before := runtime.NumGoroutine()
	for range 20 {
		once()
	}
	deadline := time.Now().Add(30 * time.Second)
	for runtime.NumGoroutine() > before+5 {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, %d after 20 sessions:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
		runtime.Gosched()
	}
}

func TestConversionsAreChecked(t *testing.T) {
	job := overlay.JobID("demo-00112233445566778899aabbccddeeff")
	good := func() *controlpb.AccessPoint {
		return &controlpb.AccessPoint{Process: &controlpb.Process{Job: string(job), Rank: 3}, Generation: 4, Site: "sitea", Node: "a1", Local: "10.1.0.11:7000", Public: "[2001:db8::1]:443"}
	}
	point, err := control.PointFromPB(good())
	if err != nil {
		t.Fatal(err)
	}
	point.Public6 = netip.MustParseAddrPort("[2001:db8::2]:444")
	if back, err := control.PointFromPB(control.PointToPB(point)); err != nil || back != point {
		t.Errorf("%+v became %+v, %v", point, back, err)
	}
	for name, spoil := range map[string]func(*controlpb.AccessPoint){
		"no process": func(m *controlpb.AccessPoint) { m.Process = nil },
		"job":        func(m *controlpb.AccessPoint) { m.Process.Job = "demo" },
		"site":       func(m *controlpb.AccessPoint) { m.Site = "A site" },
		"local":      func(m *controlpb.AccessPoint) { m.Local = "a1" },
		"public":     func(m *controlpb.AccessPoint) { m.Public = "host:1" },
		"public6":    func(m *controlpb.AccessPoint) { m.Public6 = "192.0.2.1:443" },
	} {
		m := good()
		spoil(m)
		if _, err := control.PointFromPB(m); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	profile := overlay.SiteProfile{Site: "sitea", Inbound: overlay.InboundPorts, Ports: overlay.Ports{First: 20000, Last: 20999},
		Filter: overlay.FilterStrict, Refusal: overlay.RefuseReset, Egress: overlay.Egress443, UDP: true, GatewayOnly: true, Privileged: true, HighPortsOnly: true,
		NAT:     overlay.NAT{Mapping: overlay.AddressDependent, Filtering: overlay.AddressAndPortDependent, KeepsPort: true},
		NATUDP:  overlay.NAT{Mapping: overlay.EndpointIndependent, Filtering: overlay.AddressDependent, KeepsPort: true},
		UDPRate: 1_000_000, MTU: 1400, IdleTCP: 300, IdleUDP: 30, IPv6: true, IPv6Only: true,
		IPv6Rules: overlay.IPv6Rules{Measured: true, Inbound: overlay.InboundOpen, Filter: overlay.FilterStateless, Refusal: overlay.RefuseReset, Egress: overlay.EgressNone, UDP: true},
		SeenAt:    netip.MustParseAddr("10.1.0.5"), Private: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/10")}, PrivateGiven: true,
		Forbidden: []overlay.Technique{overlay.Direct}}
	if back, err := control.ProfileFromPB("sitea", control.ProfileToPB(profile)); err != nil || fmt.Sprint(back) != fmt.Sprint(profile) {
		t.Errorf("%+v became %+v, %v", profile, back, err)
	}
	for _, bad := range []*controlpb.Profile{{Inbound: 9}, {Inbound: 1}, {FirstPort: 70000}, {Egress: 6}, {Mtu: 1 << 16}, {Ipv6Rules: &controlpb.Rules{Inbound: 1}}, {Ipv6Rules: &controlpb.Rules{Filter: 4}}, {SeenAt: "10.1"}, {Private: []string{"10.0.0.0"}}, {Private: make([]string, overlay.MaxNetworks+1)}} {
		if _, err := control.ProfileFromPB("sitea", bad); err == nil {
			t.Errorf("%v: accepted", bad)
		}
	}
	plan := overlay.Plan{Asker: "sitea", Target: "siteb",
		Steps:    []overlay.Step{{Technique: overlay.SimultaneousOpen, Reason: "both have it", Port: 443, IPv6: true}, {Technique: overlay.Relay, Via: overlay.ViaAsker, Reason: "both closed"}},
		Rejected: []overlay.Rejection{{Technique: overlay.Direct, Reason: "siteb refuses"}}}
	m := control.PlanToPB(plan)
	if back, err := control.PlanFromPB(m); err != nil || fmt.Sprint(back) != fmt.Sprint(plan) {
		t.Errorf("%+v became %+v, %v", plan, back, err)
	}
	plan.Steps[1].Via = 0
	if control.PlanToPB(plan).Digest == m.Digest {
		t.Error("different plans have one digest")
	}
}

// TestAllComeBack: many helpers whose frontal was away have sessions again once it is back: they
// are not turned away, nor do they give up because of the load and add to it by retrying.
func TestAllComeBack(t *testing.T) {
	const crowd = 30
	g := newGrid(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ups := make(chan struct{}, crowd)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var kept sync.WaitGroup
	defer kept.Wait()
	defer cancel()
	for i := range crowd {
		e := endpoint(t, g.creds(control.Identity{Role: control.RoleHelper, Site: "sitea", Name: fmt.Sprintf("a%d", i)}), admin{})
		kept.Go(func() {
			e.Keep(ctx, control.DialConfig{Addr: addr, Role: control.RoleFrontal, Longest: time.Second}, func(ctx context.Context, s *control.Session) error {
				_, err := controlpb.NewAdminClient(s.Conn()).Status(ctx, &controlpb.StatusRequest{})
				if err == nil {
					select {
					case ups <- struct{}{}:
					case <-ctx.Done():
					}
				}
				return control.FromStatus(err)
			})
		})
	}
	for round := range 2 {
		if round > 0 {
			if ln, err = net.Listen("tcp", addr); err != nil {
				t.Fatal(err)
			}
		}
		counted := &countingListener{Listener: ln}
		served := make(chan struct{})
		serverCtx, stop := context.WithCancel(t.Context())
		server := endpoint(t, g.creds(frontal), admin{})
		begun := time.Now()
		go func() {
			defer close(served)
			server.Serve(serverCtx, counted, nil, nil)
		}()
		for range crowd {
			testkit.Receive(t, "one more session", ups)
		}
		took := time.Since(begun)
		t.Logf("%d sessions after %v", crowd, took.Round(time.Millisecond))
		// If the processors take longer than the bound of a handshake, giving up is correct.
		if n := counted.n.Load(); n > 2*crowd && took < 8*time.Second {
			t.Errorf("round %d: %d connections for %d sessions", round, n, crowd)
		}
		stop()
		testkit.Receive(t, "the end of Serve", served)
	}
}

type countingListener struct {
	net.Listener
	n atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.n.Add(1)
	}
	return c, err
}
