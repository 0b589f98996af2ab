package encap

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// patience bounds what might hang.
const patience = time.Minute

// grid is a CA with a proxy and a helper.
type grid struct{ proxy, helper *control.Credentials }

func newGrid(t testing.TB) grid {
	t.Helper()
	authority, _, err := ca.New("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(id control.Identity) *control.Credentials {
		cert, key, err := authority.Issue(id, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		c, err := control.NewCredentials(cert, key, authority.CertPEM())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	return grid{
		proxy:  issue(control.Identity{Role: control.RoleProxy, Name: "p1"}),
		helper: issue(control.Identity{Role: control.RoleHelper, Site: "sitea", Name: "n1"}),
	}
}

func (g grid) clientTLS() *tls.Config { return g.helper.DataClient(control.RoleProxy) }

// server accepts connections in every form, answers observe frames and echoes everything else.
type server struct {
	addr string
	mu   sync.Mutex
	got  []Form // forms with a first frame other than observe
	errs []error
}

func serve(t *testing.T, cfg *tls.Config) *server {
	t.Helper()
	ln, err := carrier.ListenIn(t.Context(), netip.MustParseAddr("127.0.0.1"), overlay.Ports{})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{addr: ln.Addr().String()}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := ln.AcceptTCP()
			if err != nil {
				return
			}
			conns.Go(func() { s.one(c, cfg) })
		}
	})
	t.Cleanup(func() { ln.Close(); conns.Wait() })
	return s
}

func (s *server) one(c *net.TCPConn, cfg *tls.Config) {
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	a, err := Accept(c, cfg)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.errs = append(s.errs, err)
		return
	}
	defer a.Stream.Close()
	f, err := wire.Read(a.First)
	if err != nil {
		return
	}
	if f.Type() == wire.TypeObserve {
		a.Stream.Write(wire.Append(nil, &wire.Observed{From: netip.MustParseAddrPort("192.0.2.1:1"), Time: time.Now()}))
		return
	}
	s.mu.Lock()
	s.got = append(s.got, a.Form)
	s.mu.Unlock()
	io.Copy(a.Stream, a.Stream)
	a.Stream.CloseWrite()
	io.Copy(io.Discard, a.Stream)
}

func (s *server) forms() []Form {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

// talk sends a frame and some bytes over c and checks that the bytes are echoed, and that each
// direction ends separately.
func talk(t *testing.T, c carrier.Stream) {
	t.Helper()
	talkFor(t, c, 300<<10)
}

// talkFor is talk with so many bytes.
func talkFor(t *testing.T, c carrier.Stream, n int) {
	t.Helper()
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	want := make([]byte, n)
	rand.Read(want)
	var sent sync.WaitGroup
	sent.Go(func() {
		c.Write(wire.Append(nil, &wire.Refuse{By: "test"}))
		for rest := want; len(rest) > 0; rest = rest[min(len(rest), 70_001):] {
			c.Write(rest[:min(len(rest), 70_001)])
		}
		c.CloseWrite()
	})
	got, err := io.ReadAll(c)
	sent.Wait()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back, %v; want the %d that were sent and their end", len(got), err, len(want))
	}
}

func TestForms(t *testing.T) {
	g := newGrid(t)
	s := serve(t, g.proxy.DataServer())
	d := NewDialer(g.clientTLS)
	for form := range Shared {
		t.Run(form.String(), func(t *testing.T) {
			c, err := d.open(t.Context(), form, s.addr, Route{})
			if err != nil {
				t.Fatal(err)
			}
			talk(t, c)
			if got := s.forms(); len(got) == 0 || got[len(got)-1] != form {
				t.Errorf("the server saw %v", got)
			}
		})
	}
}

// inspector passes on connections to a server, except those whose first client byte is not allowed.
type inspector struct {
	addr   string
	mu     sync.Mutex
	likes  string // first bytes that pass
	resets bool   // others are reset; otherwise they are swallowed
	dials  int
}

func inspect(t *testing.T, to, likes string, resets bool) *inspector {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	i := &inspector{addr: ln.Addr().String(), likes: likes, resets: resets}
	ctx, cancel := context.WithCancel(t.Context())
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { i.one(ctx, c.(*net.TCPConn), to) })
		}
	})
	t.Cleanup(func() { cancel(); ln.Close(); conns.Wait() })
	return i
}

func (i *inspector) one(ctx context.Context, c *net.TCPConn, to string) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	i.mu.Lock()
	i.dials++
	likes, resets := i.likes, i.resets
	i.mu.Unlock()
	first, err := firstByte(c)
	if err != nil {
		return
	}
	if !strings.Contains(likes, string(first)) {
		if resets {
			carrier.Reset(c)
			return
		}
		io.Copy(io.Discard, c)
		return
	}
	up, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	up.Write(first)
	carrier.Join(ctx, c, up.(*net.TCPConn), carrier.Options{})
}

func (i *inspector) change(likes string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.likes = likes
}

func (i *inspector) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.dials
}

const (
	onlyTLS  = "\x16"
	onlyHTTP = "G"
	all      = "I\x16G"
)

// Whatever an inspection lets through, a dial succeeds in that form; the next dial uses it
// directly; and a change of the inspection is detected one dial later.
func TestDialFindsTheForm(t *testing.T) {
	g := newGrid(t)
	for _, c := range []struct {
		name, likes string
		resets      bool
		want        Form
	}{
		{"all passes", all, false, Plain},
		{"others vanish but TLS", onlyTLS, false, TLS},
		{"others are reset but TLS", onlyTLS, true, TLS},
		{"others vanish but HTTP", onlyHTTP, false, WebSocket},
		{"others are reset but HTTP", onlyHTTP, true, WebSocket},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, g.proxy.DataServer())
			i := inspect(t, s.addr, c.likes, c.resets)
			d := NewDialer(g.clientTLS)
			dial := func(want Form, dials int) {
				t.Helper()
				before := i.count()
				conn, form, err := d.Dial(t.Context(), i.addr, Route{})
				if err != nil || form != want {
					t.Fatalf("connected %v, %v; want %v", form, err, want)
				}
				if _, bare := conn.(*net.TCPConn); bare != (want == Plain) {
					t.Errorf("%v is a %T", form, conn)
				}
				talk(t, conn)
				if n := i.count() - before; dials > 0 && n != dials {
					t.Errorf("%d connections were opened, want %d", n, dials)
				}
			}
			dial(c.want, 0)
			dial(c.want, 1)
			if c.want == Plain {
				return
			}
			i.change("I") // and nothing else
			if conn, form, err := d.Dial(t.Context(), i.addr, Route{}); err == nil {
				t.Fatalf("connected %v (%T) past an inspection that swallows it", form, conn)
			}
			dial(Plain, 0)
		})
	}
}

// However many dials there are to a proxy of which nothing is known yet, one determines the form:
// one connection for that, and one for each. No other form is tried before one has connected.
func TestManyFindTheForm(t *testing.T) {
	const dials = 8
	g := newGrid(t)
	s := serve(t, g.proxy.DataServer())
	d := NewDialer(g.clientTLS)
	var asked atomic.Int32
	route := Route{Dial: func(ctx context.Context, addr string) (*net.TCPConn, error) {
		if asked.Add(1) == 1 {
			time.Sleep(2 * stagger) // SYNs get lost
		}
		return carrier.DialTCP(ctx, addr, carrier.HTTPProxy{})
	}}
	var all sync.WaitGroup
	for range dials {
		all.Go(func() {
			if c, form, err := d.Dial(t.Context(), s.addr, route); err != nil || form != Plain {
				t.Errorf("%v, %v", form, err)
			} else {
				c.Close()
			}
		})
	}
	all.Wait()
	if n := asked.Load(); n != dials+1 {
		t.Errorf("%d connections for %d dials, want one more", n, dials)
	}
}

// A dial that gives up determining the form does not fail those that wait for it.
func TestGivenUpFindingTheForm(t *testing.T) {
	g := newGrid(t)
	s := serve(t, g.proxy.DataServer())
	d := NewDialer(g.clientTLS)
	ctx, giveUp := context.WithCancel(t.Context())
	begun := make(chan struct{})
	var first sync.WaitGroup
	first.Go(func() {
		_, _, err := d.Dial(ctx, s.addr, Route{Dial: func(ctx context.Context, _ string) (*net.TCPConn, error) {
			close(begun)
			<-ctx.Done()
			return nil, ctx.Err()
		}})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
	})
	<-begun
	asked, mine := d.joinRace(place{s.addr, ""}) // as a concurrent dial would
	giveUp()
	if <-asked.over; mine || asked.err != nil {
		t.Errorf("who waits is told %v", asked.err)
	}
	first.Wait()
	c, form, err := d.Dial(t.Context(), s.addr, Route{})
	if err != nil || form != Plain {
		t.Fatalf("afterwards: %v, %v", form, err)
	}
	c.Close()
}

// What was determined in advance is not determined again when a connection is needed.
func TestPrepare(t *testing.T) {
	g := newGrid(t)
	for _, likes := range []string{all, onlyTLS, onlyHTTP} {
		s := serve(t, g.proxy.DataServer())
		i := inspect(t, s.addr, likes, true)
		d := NewDialer(g.clientTLS)
		for range 2 {
			if err := d.Prepare(t.Context(), i.addr, Route{}, 2*memory); err != nil {
				t.Fatal(err)
			}
		}
		before := i.count()
		conn, form, err := d.Dial(t.Context(), i.addr, Route{})
		if err != nil {
			t.Fatal(err)
		}
		talk(t, conn)
		if n := i.count() - before; n != 1 {
			t.Errorf("%v: %d connections were opened", form, n)
		}
		d.remember(place{i.addr, ""}, form, memory)
		if left := time.Until(d.cache[place{i.addr, ""}].until); left < memory+time.Minute {
			t.Errorf("%v is remembered for %v", form, left)
		}
	}
}

// With a profile that says so, plain connections are not tried at all.
func TestOnlyTLS(t *testing.T) {
	g := newGrid(t)
	s := serve(t, g.proxy.DataServer())
	i := inspect(t, s.addr, onlyTLS, false)
	for _, egress := range []overlay.Egress{overlay.EgressTLS443, overlay.EgressHTTPProxyTLS} {
		d := NewDialer(g.clientTLS)
		route := RouteOf(overlay.SiteProfile{Egress: egress}, carrier.HTTPProxy{})
		d.remember(place{i.addr, ""}, Plain, memory) // before the site was measured
		before := i.count()
		c, form, err := d.Dial(t.Context(), i.addr, route)
		if err != nil || form != TLS || i.count() != before+1 {
			t.Fatalf("%v: %v, %v, %d connections", egress, form, err, i.count()-before)
		}
		talk(t, c)
	}
}

// When nothing gets through the error names every form, its cause, and the class of the first.
func TestNothingGetsThrough(t *testing.T) {
	g := newGrid(t)
	s := serve(t, nil) // answers plain and HTTP
	swallows, resets := inspect(t, s.addr, "", false), inspect(t, s.addr, "", true)
	for _, c := range []struct {
		to    string
		class error
		words []string
	}{
		{swallows.addr, overlay.ErrTimeout, []string{"plain: ", "nothing that was sent got an answer", "TLS: ", "WebSocket: "}},
		{resets.addr, overlay.ErrRefused, []string{"plain: ", "cut off when something was sent", "TLS handshake failed", "WebSocket handshake failed"}},
	} {
		patience := time.Minute
		if c.class == overlay.ErrTimeout {
			if patience = 10 * stagger; !testload.Full() { // in which all forms must have been tried
				continue
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, _, err := NewDialer(g.clientTLS).Dial(ctx, c.to, Route{})
		cancel()
		for _, w := range c.words {
			if !errors.Is(err, c.class) || !strings.Contains(err.Error(), w) {
				t.Errorf("%v; want a %v that says %q", err, c.class, w)
			}
		}
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	_, _, err = NewDialer(g.clientTLS).Dial(t.Context(), gone.Addr().String(), Route{})
	want := "dial " + gone.Addr().String() + ": refused: nothing listens there, or a firewall resets"
	if !errors.Is(err, overlay.ErrRefused) || err.Error() != want {
		t.Errorf("got %v, want %s, once", err, want)
	}
}

// A middlebox that terminates TLS presents another certificate, or that of a host that is no proxy.
func TestWrongCertificate(t *testing.T) {
	g, other := newGrid(t), newGrid(t)
	for _, c := range []struct {
		name string
		of   *control.Credentials
		want string
	}{
		{"another grid's proxy", other.proxy, "was not issued by this grid's CA"},
		{"this grid's helper", g.helper, "wanted a proxy"},
	} {
		s := serve(t, c.of.DataServer())
		_, err := NewDialer(g.clientTLS).open(t.Context(), TLS, s.addr, Route{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// A failed handshake is reported as such, for counting by reason.
func TestAcceptSaysWhy(t *testing.T) {
	g := newGrid(t)
	for _, c := range []struct{ name, send, want string }{
		{"no TLS behind the first byte", "\x16\x03\x01\x00\x05hello", "TLS handshake failed"},
		{"no HTTP", "GARBAGE\r\n\r\n", "WebSocket handshake failed"},
		{"no upgrade", "GET /isthmus HTTP/1.1\r\nHost: x\r\n\r\n", "Connection: Upgrade"},
		{"another path", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "only GET /isthmus"},
		{"a head without end", "GET /isthmus HTTP/1.1\r\nX: " + strings.Repeat("x", maxHead), "WebSocket handshake failed"},
	} {
		ln, err := carrier.ListenIn(t.Context(), netip.MustParseAddr("127.0.0.1"), overlay.Ports{})
		if err != nil {
			t.Fatal(err)
		}
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := ln.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		io.WriteString(client, c.send)
		client.(*net.TCPConn).CloseWrite()
		server.SetDeadline(time.Now().Add(patience))
		_, err = Accept(server, g.proxy.DataServer())
		if !errors.Is(err, ErrHandshake) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		ln.Close()
	}
}

// Another implementation's client and server understand this WebSocket.
func TestWebSocketInterworks(t *testing.T) {
	s := serve(t, nil)
	cfg, err := websocket.NewConfig("ws://"+s.addr+webSocketPath, "http://"+s.addr)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Protocol = []string{webSocketProtocol}
	theirs, err := websocket.DialConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	theirs.PayloadType = websocket.BinaryFrame
	theirs.SetDeadline(time.Now().Add(patience))
	words := bytes.Repeat([]byte("isthmus "), 10_000) // longer than a 16-bit length
	theirs.Write(append(wire.Append(nil, &wire.Refuse{By: "test"}), words...))
	got := make([]byte, len(words))
	if _, err := io.ReadFull(theirs, got); err != nil || !bytes.Equal(got, words) {
		t.Errorf("their client: %v", err)
	}

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go serveHTTP(ln, websocket.Server{Handler: func(c *websocket.Conn) {
		c.PayloadType = websocket.BinaryFrame
		io.CopyN(c, c, int64(len(words)))
		c.Read(make([]byte, 1)) // until the other side hangs up
	}})
	ours, err := NewDialer(nil).open(t.Context(), WebSocket, ln.Addr().String(), Route{})
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	ours.SetDeadline(time.Now().Add(patience))
	go ours.Write(words)
	if _, err := io.ReadFull(ours, got); err != nil || !bytes.Equal(got, words) {
		t.Errorf("their server: %v", err)
	}
}

// On a long path an answer takes longer than the usual wait, and no further form is tried for that.
func TestSilenceFollowsRoundTrip(t *testing.T) {
	for rtt, want := range map[time.Duration]time.Duration{0: stagger, 100 * time.Millisecond: stagger, 1400 * time.Millisecond: 2800 * time.Millisecond} {
		if got := silentAfter(rtt); got != want {
			t.Errorf("%v: %v, want %v", rtt, got, want)
		}
	}
}

// The connection to use is made while the test of the form is under way, which saves a round trip.
func TestConnectionIsMadeBesideTheTest(t *testing.T) {
	g := newGrid(t)
	s := serve(t, g.proxy.DataServer())
	d := NewDialer(g.clientTLS)
	var dials atomic.Int32
	second := make(chan struct{})
	c, form, err := d.Dial(t.Context(), s.addr, Route{Dial: func(ctx context.Context, addr string) (*net.TCPConn, error) {
		c, err := carrier.DialTCP(ctx, addr, carrier.HTTPProxy{})
		if dials.Add(1) == 2 {
			close(second)
			return c, err
		}
		relay, err := heldBack(t, c, second)
		return relay, err
	}})
	if err != nil || form != Plain || dials.Load() != 2 {
		t.Fatalf("%v after %d dials: %v", form, dials.Load(), err)
	}
	talk(t, c)
}

// heldBack returns a connection to which what comes from the far end passes when until is closed.
func heldBack(t *testing.T, far *net.TCPConn, until <-chan struct{}) (*net.TCPConn, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	near, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return nil, err
	}
	between, err := ln.Accept()
	if err != nil {
		return nil, err
	}
	var ways sync.WaitGroup
	ways.Go(func() { io.Copy(far, between); far.CloseWrite() })
	ways.Go(func() { <-until; io.Copy(between, far); between.Close() })
	t.Cleanup(func() { between.Close(); far.Close(); ways.Wait() })
	return near.(*net.TCPConn), nil
}
