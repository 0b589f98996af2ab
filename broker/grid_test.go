package broker

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/overlay"
)

// patience bounds every wait of a test. It only affects how long a broken one takes.
const patience = time.Minute

// grid is a CA, and a broker on loopback after start.
type grid struct {
	t    testing.TB
	ca   *ca.CA
	log  *slog.Logger
	logs *logBuffer
	cfg  Config
	addr string
	tune func(*Broker) // changes a new broker before it serves
	b    *Broker
	stop func()
}

func newGrid(t testing.TB) *grid {
	t.Helper()
	authority, _, err := ca.New("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	logs := new(logBuffer)
	g := &grid{t: t, ca: authority, logs: logs, log: slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})), cfg: DefaultConfig(), addr: "127.0.0.1:0"}
	g.cfg.AllowLoopback = true
	return g
}

// logBuffer keeps the log.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (g *grid) credentials(id control.Identity) *control.Credentials {
	g.t.Helper()
	c, err := g.ca.Credentials(id)
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

// start starts a broker, at the address of the previous one if there was one.
func (g *grid) start() {
	g.t.Helper()
	b, err := New(g.cfg, g.credentials(control.Identity{Role: control.RoleBroker, Name: "main"}), g.log)
	if err != nil {
		g.t.Fatal(err)
	}
	if g.tune != nil {
		g.tune(b)
	}
	ln, err := net.Listen("tcp", g.addr)
	if err != nil {
		g.t.Fatal(err)
	}
	g.b, g.addr = b, ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Serve(ctx, ln) }()
	g.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				g.t.Errorf("Serve: %v", err)
			}
		case <-time.After(patience):
			g.t.Error("Serve did not return")
		}
	})
	g.t.Cleanup(g.stop)
}

func (g *grid) dialConfig() control.DialConfig {
	return control.DialConfig{Addr: g.addr, Role: control.RoleBroker}
}

// peer is a fake frontal, proxy or admin with one session.
type peer struct {
	id        control.Identity
	end       *control.Endpoint
	s         *control.Session
	directory controlpb.DirectoryClient
	sites     controlpb.SitesClient
	relays    controlpb.RelaysClient
	admin     controlpb.AdminClient
}

// scripted is a frontal's Target service with a behaviour set by the test.
type scripted struct {
	controlpb.UnimplementedTargetServer
	do func(*controlpb.Signal, grpc.ServerStreamingServer[controlpb.SignalEvent]) error
}

func (s scripted) Signal(in *controlpb.Signal, stream grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
	return s.do(in, stream)
}

// Reserve handles the call as a signalling request that the target's side keeps; without do, it
// behaves like a frontal that does not know the call.
func (s scripted) Reserve(ctx context.Context, in *controlpb.Signal) (*controlpb.ReserveResponse, error) {
	if s.do == nil {
		return s.UnimplementedTargetServer.Reserve(ctx, in)
	}
	return &controlpb.ReserveResponse{}, s.do(in, nil)
}

type targetFunc = func(*controlpb.Signal, grpc.ServerStreamingServer[controlpb.SignalEvent]) error

func (g *grid) dial(id control.Identity, target targetFunc) (*peer, error) {
	g.t.Helper()
	end := control.NewEndpoint(g.credentials(id), g.log, func(r grpc.ServiceRegistrar) {
		if target != nil {
			controlpb.RegisterTargetServer(r, scripted{do: target})
		}
	})
	s, err := end.Dial(context.Background(), g.dialConfig())
	if err != nil {
		end.Close()
		return nil, err
	}
	p := &peer{id: id, end: end, s: s,
		directory: controlpb.NewDirectoryClient(s.Conn()), sites: controlpb.NewSitesClient(s.Conn()),
		relays: controlpb.NewRelaysClient(s.Conn()), admin: controlpb.NewAdminClient(s.Conn())}
	g.t.Cleanup(p.close)
	return p, nil
}

func (p *peer) close() {
	p.s.Close()
	p.end.Close()
}

func (g *grid) peer(id control.Identity, target targetFunc) *peer {
	g.t.Helper()
	p, err := g.dial(id, target)
	if err != nil {
		g.t.Fatal(err)
	}
	return p
}

// frontal is a peer that has joined its site.
func (g *grid) frontal(profile overlay.SiteProfile, target targetFunc) *peer {
	g.t.Helper()
	p := g.peer(control.Identity{Role: control.RoleFrontal, Site: profile.Site}, target)
	if _, err := p.sites.Join(g.ctx(), joining(profile)); err != nil {
		g.t.Fatal(err)
	}
	return p
}

// openPolicy permits a site all links.
const openPolicy = "contact: ops\nrules:\n- {name: all, effect: allow}\n"

// declared returns the message of a profile, with the network of pointOf.
func declared(profile overlay.SiteProfile) *controlpb.Profile {
	profile.Networks = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	return control.ProfileToPB(profile)
}

// joining returns the request of a site that permits all links.
func joining(profile overlay.SiteProfile) *controlpb.JoinRequest {
	return &controlpb.JoinRequest{Profile: declared(profile), Policy: []byte(openPolicy)}
}

// proxy is a peer that has offered itself.
func (g *grid) proxy(name, address string) *peer {
	g.t.Helper()
	p := g.peer(control.Identity{Role: control.RoleProxy, Name: name}, nil)
	if _, err := p.relays.Offer(g.ctx(), offerOf(name, address)); err != nil {
		g.t.Fatal(err)
	}
	return p
}

// proxyClock is the clock of proxies: tickets expire by it.
func proxyClock() time.Time { return time.Now().Add(-2 * time.Hour) }

func offerOf(name, address string) *controlpb.OfferRequest {
	return &controlpb.OfferRequest{ClockMs: proxyClock().UnixMilli(), Name: name, Addresses: []string{address}, TicketKey: bytes.Repeat([]byte{7}, 32), Capacity: 100}
}

func (g *grid) adminPeer() *peer {
	return g.peer(control.Identity{Role: control.RoleAdmin, Name: "root"}, nil)
}

// ctx returns a context for one call.
func (g *grid) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	g.t.Cleanup(cancel)
	return ctx
}

// register registers processes of the peer's site on loopback.
func (g *grid) register(p *peer, points ...overlay.AccessPoint) {
	g.t.Helper()
	req := &controlpb.RegisterRequest{}
	for _, a := range points {
		req.Points = append(req.Points, control.RegistrationToPB(signed(a)))
	}
	resp, err := p.directory.Register(g.ctx(), req)
	if err != nil {
		g.t.Fatal(err)
	}
	for _, f := range resp.Faults {
		g.t.Error(f.Text)
	}
}
