package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/daemon/daemontest"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/wire"
)

func TestSampleSettings(t *testing.T) { daemontest.Sample[Config](t, Spec().Name) }

func TestConfigCheck(t *testing.T) {
	at := func(s string) []netip.AddrPort { return []netip.AddrPort{netip.MustParseAddrPort(s)} }
	for _, tc := range []struct {
		listen, advertise []netip.AddrPort
		fault             string
	}{
		{at("[::]:443"), at("203.0.113.7:443"), ""},
		{at("203.0.113.7:443"), nil, ""},
		{nil, nil, "listen: needs at least one address"},
		{at("0.0.0.0:443"), nil, ""},
		{at("203.0.113.7:443"), at("[::]:443"), "advertise: [::]:443 is not an address that a node can dial"},
		{at("203.0.113.7:443"), at("203.0.113.7:0"), "advertise: 203.0.113.7:0 is not an address that a node can dial"},
	} {
		err := Config{Listen: tc.listen, Advertise: tc.advertise}.Check()
		if tc.fault == "" && err != nil || tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)) {
			t.Errorf("%v %v: %v, want %q", tc.listen, tc.advertise, err, tc.fault)
		}
	}
}

// Where a proxy listens on all addresses it offers those of both versions of IP, in the order of the one
// from which it reaches the broker, and never one that it does not listen on.
func TestAdvertised(t *testing.T) {
	v4, v6, none := netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("2001:db8::9"), netip.Addr{}
	at := func(s ...string) (out []netip.AddrPort) {
		for _, a := range s {
			out = append(out, netip.MustParseAddrPort(a))
		}
		return out
	}
	for _, tc := range []struct {
		set, listen []netip.AddrPort
		own, other  netip.Addr
		want        string
	}{
		{at("203.0.113.7:443"), at("[::]:4443"), v4, v6, "[203.0.113.7:443]"},
		{nil, at("[::]:4443", "203.0.113.8:4443"), v4, none, "[198.51.100.9:4443 203.0.113.8:4443]"},
		{nil, at("[::]:443"), v4, v6, "[198.51.100.9:443 [2001:db8::9]:443]"},
		{nil, at("[::]:443"), v6, v4, "[[2001:db8::9]:443 198.51.100.9:443]"},
		{nil, at("[::]:443"), v6, none, "[[2001:db8::9]:443]"},
		{nil, at("0.0.0.0:443"), v4, v6, "[198.51.100.9:443]"},
		{nil, at("0.0.0.0:443"), v6, v4, "[198.51.100.9:443]"},
		{nil, at("0.0.0.0:443"), v6, none, "[[2001:db8::9]:443]"},
		{nil, at("[::]:1", "[::]:2", "[::]:3", "[::]:4", "[::]:5"), v4, none, "[198.51.100.9:1 198.51.100.9:2 198.51.100.9:3 198.51.100.9:4 198.51.100.9:5]"},
	} {
		if got := advertised(tc.set, tc.listen, tc.own, tc.other); fmt.Sprint(got) != tc.want {
			t.Errorf("%v, %v of %v and %v: advertised %v, want %s", tc.set, tc.listen, tc.own, tc.other, got, tc.want)
		}
	}
	if got := advertised(nil, at("[::]:1", "[::]:2", "[::]:3", "[::]:4", "[::]:5"), v4, v6); len(got) != maxOffered {
		t.Errorf("%d addresses are offered", len(got))
	}
}

// fakeSTUN serves the versions of IP of its addresses.
type fakeSTUN []netip.Addr

func (fakeSTUN) Port() uint16 { return 3478 }
func (f fakeSTUN) Serves(ip netip.Addr) bool {
	return slices.ContainsFunc(f, func(a netip.Addr) bool { return a.Is4() == ip.Is4() })
}

func TestSTUNAddress(t *testing.T) {
	v4, v6 := netip.MustParseAddr("198.51.100.9"), netip.MustParseAddr("2001:db8::9")
	both := []netip.AddrPort{netip.AddrPortFrom(v6, 443), netip.AddrPortFrom(v4, 443)}
	for want, s := range map[string]stunServer{
		"": nil, "[2001:db8::9]:3478": fakeSTUN{v4, v6}, "198.51.100.9:3478": fakeSTUN{v4},
	} {
		if got := stunAddress(both, s); got != want {
			t.Errorf("%v: %q, want %q", s, got, want)
		}
	}
	if got := stunAddress(both[:1], fakeSTUN{v4}); got != "" {
		t.Errorf("IPv4 alone, offered over IPv6: %q", got)
	}
}

func TestOpenFiles(t *testing.T) {
	l := Limits{Links: 100, Handshakes: 10}
	if err := l.openFiles(1000); err != nil {
		t.Error(err)
	}
	if err := l.openFiles(600); err == nil || !strings.Contains(err.Error(), "limits allow for 684 open files, the system for 600") {
		t.Errorf("%v", err)
	}
}

// fakeBroker keeps the offers of proxies.
type fakeBroker struct {
	controlpb.UnimplementedRelaysServer
	offers chan *controlpb.OfferRequest
	peers  chan *control.Session
}

func (b *fakeBroker) Offer(ctx context.Context, r *controlpb.OfferRequest) (*controlpb.OfferResponse, error) {
	select {
	case b.offers <- r:
	case <-ctx.Done():
	}
	return &controlpb.OfferResponse{}, nil
}

// serveAt runs the broker on ln until stop is called.
func (b *fakeBroker) serveAt(t *testing.T, grid *ca.CA, ln net.Listener) (stop func()) {
	t.Helper()
	creds, err := grid.Credentials(control.Identity{Role: control.RoleBroker, Name: "b"})
	if err != nil {
		t.Fatal(err)
	}
	e := control.NewEndpoint(creds, slog.New(slog.DiscardHandler), func(r grpc.ServiceRegistrar) {
		controlpb.RegisterRelaysServer(r, b)
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		e.Serve(ctx, ln, nil, func(ctx context.Context, s *control.Session) {
			select {
			case b.peers <- s:
			case <-ctx.Done():
			}
		})
	})
	stop = sync.OnceFunc(func() {
		cancel()
		e.Close()
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// startDaemon runs the whole daemon with a broker's address and returns its own.
func startDaemon(t *testing.T, grid *ca.CA, id control.Identity, broker string) (addr string, result <-chan error) {
	t.Helper()
	files, err := grid.Write(t.TempDir(), id, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	cfg := daemon.Defaults[Config]()
	cfg.Listen = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}
	cfg.STUNListen = netip.MustParseAddrPort("127.0.0.1:0")
	cfg.Broker = []string{broker}
	cfg.TLS = TLS{Cert: daemon.Path(files.Cert), Key: daemon.Path(files.Key), CA: daemon.Path(files.CA)}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- serve(ctx, cfg, slog.New(slog.DiscardHandler), func(facts ...string) { ready <- facts[0] })
	}()
	t.Cleanup(cancel)
	select {
	case fact := <-ready:
		t.Cleanup(func() {
			cancel()
			if err := testkit.Receive(t, "the daemon's end", done); err != nil {
				t.Errorf("serve: %v", err)
			}
		})
		return strings.TrimPrefix(fact, "listen="), nil
	case err := <-done:
		done <- err
		return "", done
	case <-time.After(30 * time.Second):
		t.Fatal("the daemon is not ready")
		panic("unreachable")
	}
}

// A proxy and its broker: the proxy starts without a broker, offers itself when the broker is up,
// honours its tickets, reports load, continues to serve while the broker is away, and offers the
// same key when it is back.
func TestBrokerComesAndGoes(t *testing.T) {
	grid, _, err := ca.New("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	broker := ln.Addr().String()
	ln.Close() // no broker listens when the proxy starts
	addr, _ := startDaemon(t, grid, control.Identity{Role: control.RoleProxy, Name: "p1"}, broker)

	b := &fakeBroker{offers: make(chan *controlpb.OfferRequest), peers: make(chan *control.Session)}
	listen := func() net.Listener {
		ln, err := net.Listen("tcp", broker)
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	stop := b.serveAt(t, grid, listen())
	session := testkit.Receive(t, "the session", b.peers)
	offer := testkit.Receive(t, "the offer", b.offers)
	at := netip.MustParseAddrPort(offer.Stun)
	if offer.Name != "p1" || at.Addr() != netip.MustParseAddr("127.0.0.1") || fmt.Sprint(offer.Addresses) != "["+addr+"]" || offer.Capacity != 10000 || offer.Live != 0 {
		t.Errorf("offered %+v, want p1 at %s", offer, addr)
	}

	key, err := ticket.ParseKey(offer.TicketKey)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, key: key, addr: addr}
	asker, target := r.link()
	echoes(t, asker, target)
	for testkit.Receive(t, "the load of one link", b.offers).Live != 1 {
	}
	status, err := controlpb.NewAdminClient(session.Conn()).Status(t.Context(), &controlpb.StatusRequest{})
	var st Status
	if err != nil || json.Unmarshal(status.GetJson(), &st) != nil || st.Links != 1 || st.Name != "p1" {
		t.Errorf("status %s, %v", status.GetJson(), err)
	}

	issued := r.tickets()
	stop()
	echoes(t, asker, target)
	late, later := r.show(issued[0]), r.show(issued[1]) // tickets issued before are still valid
	echoes(t, late, later)

	b.serveAt(t, grid, listen())
	testkit.Receive(t, "the second session", b.peers)
	again := testkit.Receive(t, "the second offer", b.offers)
	if string(again.TicketKey) != string(offer.TicketKey) || again.Live != 2 {
		t.Errorf("offered %+v with two links and the same key", again)
	}
	asker.Close()
	if _, err := target.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the link ended with %v", err)
	}
}

func TestDaemonRefusesToStart(t *testing.T) {
	grid, _, err := ca.New("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	_, failed := startDaemon(t, grid, control.Identity{Role: control.RoleFrontal, Site: "s"}, "127.0.0.1:1")
	if failed == nil {
		t.Fatal("a frontal's certificate starts a proxy")
	}
	if err := <-failed; !strings.Contains(err.Error(), "is the certificate of frontal s, want one of a proxy") {
		t.Error(err)
	}

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	at := netip.MustParseAddrPort(taken.Addr().String())
	if _, err := listenAll(t.Context(), []netip.AddrPort{at}); err == nil || !strings.Contains(err.Error(), at.String()+" is in use") {
		t.Errorf("listening where another does: %v", err)
	}
	cert := filepath.Join(t.TempDir(), "no.pem")
	err = serve(t.Context(), Config{TLS: TLS{Cert: daemon.Path(cert)}}, slog.New(slog.DiscardHandler), func(...string) {})
	if err == nil || !strings.Contains(err.Error(), cert) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a certificate: %v", err)
	}
}

// A ticket made by the broker's side of the package survives encoding.
func TestTicketSurvivesTheWire(t *testing.T) {
	r := start(t, Settings{})
	issued := r.tickets()[0]
	f, err := wire.Read(strings.NewReader(string(wire.Append(nil, issued))))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.checker.Check(f.(*wire.Ticket), time.Now()); err != nil {
		t.Error(err)
	}
}
