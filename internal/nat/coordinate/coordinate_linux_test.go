//go:build system

package coordinate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/nat/coordinate/coordinatepb"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate/coordinatetest"
	"github.com/isthmus-grid/isthmus/internal/nat/punch"
	"github.com/isthmus-grid/isthmus/internal/nat/simopen"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

func TestMain(m *testing.M) {
	for _, arg := range os.Args {
		if strings.HasPrefix(arg, "-test.fuzzworker") {
			os.Exit(m.Run()) // does not survive a re-execution
		}
	}
	lab.Main()
	m.Run()
}

// world is a lab with one node behind each preset and two reflectors.
type world struct {
	t *testing.T
	*lab.Lab
	reflectors Reflectors
	ctx        context.Context // ends before the lab does
	serving    *sync.WaitGroup
	sides      map[string]*Side
	carry      func(offer int, b []byte) // if set, called with each offer before it is carried; they count from 1
}

func newWorld(t *testing.T, presets ...string) *world {
	spec := lab.Spec{
		WAN:   lab.WAN{Default: wan.Shape{Delay: 5 * time.Millisecond}},
		Sites: []lab.Site{{Name: "v", Preset: lab.Public, Nodes: lab.Nodes(2)}},
	}
	for _, side := range []string{"a-", "b-"} {
		for _, p := range presets {
			spec.Sites = append(spec.Sites, lab.Site{Name: side + p, Preset: p, Nodes: lab.Nodes(1)})
		}
	}
	l, err := lab.Up(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	w := &world{t: t, Lab: l, ctx: ctx, serving: &serving, sides: map[string]*Side{}}
	t.Cleanup(func() {
		cancel()
		serving.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	w.reflectors.TCP, w.reflectors.STUN = coordinatetest.Reflectors(t, l.Host("v/n1"), l.Host("v/n2"))
	w.reflectors.Clocks = w.reflectors.TCP[:1]
	return w
}

// side returns the end at a site's node, with its port pool and its engine.
func (w *world) side(name string) (*Side, *lab.Host) {
	h := w.Host(name + "/n1")
	if s := w.sides[name]; s != nil {
		return s, h
	}
	profile, err := lab.Profile(h.Preset())
	if err != nil {
		w.t.Fatal(err)
	}
	profile.Site = overlay.SiteID(name)
	s := &Side{
		Address: h.Addr(), Other: h.Addr6(), Profile: profile, Log: slog.New(slog.DiscardHandler), PortPool: NewPortPool(),
		Reflectors: func(context.Context) (Reflectors, error) { return w.reflectors, nil },
	}
	err = h.Do(func() (err error) {
		s.Engine, err = OpenEngine(s.Log)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.serving.Go(func() { h.Do(func() error { s.PortPool.Serve(w.ctx); return nil }) })
	w.serving.Go(func() { ServeEngine(w.ctx, s.Engine, s.Log) })
	w.sides[name] = s
	return s, h
}

// met is the result of a traversal.
type met struct {
	asker, target net.Conn
	offers        int    // carried offers
	last          []byte // offer
}

// traverse connects two sites, each offer carried at once.
//
// It returns the target's error of the last answer.
func (w *world) traverse(t overlay.Technique, a, b string, port uint16) (m met, err error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	sa, ha := w.side(a)
	sb, hb := w.side(b)
	var answering sync.WaitGroup
	var mu sync.Mutex
	var errB error
	exchange := func(ctx context.Context, offer []byte) ([]byte, error) {
		m.offers, m.last = m.offers+1, offer
		if w.carry != nil {
			w.carry(m.offers, offer)
		}
		answers, failed := make(chan []byte, 1), make(chan error, 1)
		answering.Go(func() {
			var c net.Conn
			err := hb.Do(func() (err error) {
				c, err = sb.Answer(w.ctx, t, a, offer, func(answer []byte) error { answers <- answer; return nil })
				return err
			})
			failed <- err
			mu.Lock()
			defer mu.Unlock()
			errB = err
			if c != nil {
				m.target = c
			}
		})
		select {
		case answer := <-answers:
			return answer, nil
		case err := <-failed:
			if err == nil {
				return <-answers, nil
			}
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	errA := ha.Do(func() (err error) {
		m.asker, err = sa.Ask(ctx, t, b, port, exchange)
		return err
	})
	answering.Wait()
	return m, errors.Join(errA, errB)
}

// swap sends bytes both ways at once.
func swap(a, b net.Conn) error {
	var both sync.WaitGroup
	errs := make([]error, 4)
	for i, d := range [][2]net.Conn{{a, b}, {b, a}} {
		sent := bytes.Repeat([]byte{byte(i), 7, 9}, 70_000)
		both.Go(func() { _, errs[2*i] = d[0].Write(sent) })
		both.Go(func() {
			got := make([]byte, len(sent))
			d[1].SetReadDeadline(time.Now().Add(30 * time.Second))
			if _, err := io.ReadFull(d[1], got); err != nil {
				errs[2*i+1] = err
			} else if !bytes.Equal(got, sent) {
				errs[2*i+1] = errors.New("bytes arrived changed")
			}
		})
	}
	both.Wait()
	return errors.Join(errs...)
}

func TestTraversals(t *testing.T) {
	w := newWorld(t, "stateful", "nat", "syn-drop", "egress-443", "nat-random")
	for _, tc := range []struct {
		technique overlay.Technique
		a, b      string
		port      uint16
	}{
		{overlay.SimultaneousOpen, "a-stateful", "b-stateful", 0},
		{overlay.SimultaneousOpen, "a-nat", "b-nat", 0},
		{overlay.SimultaneousOpen, "a-nat", "b-syn-drop", 0},
		{overlay.SimultaneousOpen, "a-stateful", "b-egress-443", 443},
		{overlay.SimultaneousOpen, "a-egress-443", "b-nat", 0},
		{overlay.Traversing, "a-syn-drop", "b-syn-drop", 0},
		{overlay.Traversing, "a-nat", "b-stateful", 0},
		{overlay.Traversing, "a-nat-random", "b-nat-random", 0},
		{overlay.HolePunching, "a-stateful", "b-nat", 0},
		{overlay.HolePunching, "a-syn-drop", "b-syn-drop", 0},
		{overlay.HolePunching, "a-nat", "b-nat", 0},
	} {
		name := fmt.Sprintf("%v/%s/%s", tc.technique, tc.a, tc.b)
		w.mustTraverse(name, tc.technique, tc.a, tc.b, tc.port)
	}
}

// mustTraverse connects two sites, and closes the connections when data has passed.
func (w *world) mustTraverse(name string, technique overlay.Technique, a, b string, port uint16) met {
	w.t.Helper()
	var m met
	var err error
	for range 3 { // a busy machine may miss an instant; the helper retries, too
		if m, err = w.traverse(technique, a, b, port); err == nil {
			break
		}
	}
	if err == nil {
		err = swap(m.asker, m.target)
	}
	if err != nil {
		w.t.Fatalf("%s: %v", name, err)
	}
	m.asker.Close()
	m.target.Close()
	return m
}

// TestTraversalOverIPv6: what NATs prevent over IPv4 is possible over IPv6, with and without a
// reserved port.
func TestTraversalOverIPv6(t *testing.T) {
	w := newWorld(t, "nat-symmetric-ipv6")
	a, b := "a-nat-symmetric-ipv6", "b-nat-symmetric-ipv6"
	sa, _ := w.side(a)
	six, err := sa.OverIPv6()
	if err != nil {
		t.Fatal(err)
	}
	w.sides[a] = six
	sb, hb := w.side(b)
	for i, tc := range []struct {
		technique overlay.Technique
		offers    int
	}{{overlay.Traversing, 2}, {overlay.Traversing, 1}, {overlay.SimultaneousOpen, 1}, {overlay.SimultaneousOpen, 1}} {
		m := w.mustTraverse(fmt.Sprintf("traversal %d", i), tc.technique, a, b, 0)
		if m.offers != tc.offers {
			t.Errorf("traversal %d, %v: %d offers", i, tc.technique, m.offers)
		}
		if from := m.asker.LocalAddr().String(); !strings.HasPrefix(from, "[2001:db8:") {
			t.Errorf("traversal %d, %v: from %s", i, tc.technique, from)
		}
		if err := hb.Do(func() error { six.Keep(b, sb.ReservePort(t.Context(), tc.technique, a, m.last)); return nil }); err != nil {
			t.Fatal(err)
		}
		if len(six.PortPool.peerPorts) != 1 {
			t.Fatal("no port reserved over IPv6")
		}
	}
	w.sides[a] = sa
	if _, err := w.traverse(overlay.SimultaneousOpen, a, b, 0); err == nil {
		t.Error("symmetric NATs met over IPv4")
	}
	if len(six.PortPool.peerPorts) != 1 {
		t.Error("a port reserved over IPv6 was used up over IPv4")
	}
}

// TestPunchingOverIPv6: what symmetric NATs prevent over IPv4 is possible over IPv6, where a STUN
// server of IPv6 helps and is not needed; and sites with IPv6 alone punch to each other, and to one
// that has both, although their LANs have IPv4.
func TestPunchingOverIPv6(t *testing.T) {
	w := newWorld(t, "nat-symmetric-ipv6", "ipv6-only")
	stun := w.reflectors.STUN
	w.reflectors.TCP = append(w.reflectors.TCP, netip.MustParseAddrPort("[2001:db8:ffff::2]:443")) // for the IPv6-only ones
	six := []netip.AddrPort{netip.AddrPortFrom(w.Host("v/n1").Addr6(), stun[0].Port())}
	for _, tc := range []struct {
		name, a, b string
		stun6      []netip.AddrPort
		over6      bool // as the plan says
	}{
		{"both at once", "a-nat-symmetric-ipv6", "b-nat-symmetric-ipv6", six, false},
		{"IPv6 alone", "a-nat-symmetric-ipv6", "b-nat-symmetric-ipv6", six, true},
		{"no other version", "a-ipv6-only", "b-ipv6-only", six, true},
		{"no other version, no server", "a-ipv6-only", "b-ipv6-only", nil, true},
		{"no other version, and both", "a-ipv6-only", "b-nat-symmetric-ipv6", six, true},
		{"both, and no other version", "a-nat-symmetric-ipv6", "b-ipv6-only", six, true},
	} {
		w.reflectors.STUN6 = tc.stun6
		sa, _ := w.side(tc.a)
		if strings.Contains(tc.a+tc.b, "only") {
			for _, end := range []string{tc.a, tc.b} {
				if s, _ := w.side(end); strings.Contains(end, "only") {
					s.Profile.IPv6, s.Profile.IPv6Only = true, true // as measured
				}
			}
		}
		if tc.over6 {
			over, err := sa.OverIPv6()
			if err != nil {
				t.Fatalf("%s: %v", tc.name, err)
			}
			w.sides[tc.a] = over
		}
		m, err := w.traverse(overlay.HolePunching, tc.a, tc.b, 0)
		w.sides[tc.a] = sa
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		for _, c := range []net.Conn{m.asker, m.target} {
			if to := c.RemoteAddr().String(); !strings.HasPrefix(to, "[2001:db8:") {
				t.Errorf("%s: to %s", tc.name, to)
			}
			for _, end := range []string{tc.a, tc.b} { // the next traversal makes another
				s, _ := w.side(end)
				s.PortPool.dropTunnel(c.(*punch.Conn).Tunnel())
			}
			c.Close()
		}
	}
}

// TestReservedPorts: what the target prepared after one traversal serves the next, once, and one
// that is no longer kept costs only an offer.
func TestReservedPorts(t *testing.T) {
	w := newWorld(t, "stateful", "nat", "stateful-reject", "syn-drop")
	for _, tc := range []struct {
		technique overlay.Technique
		a, b      string
		cold      int // offers without a reserved port
	}{
		{overlay.SimultaneousOpen, "a-stateful", "b-nat", 1},
		{overlay.SimultaneousOpen, "a-stateful-reject", "b-stateful-reject", 1},
		{overlay.SimultaneousOpen, "a-syn-drop", "b-nat", 1},
		{overlay.Traversing, "a-syn-drop", "b-syn-drop", 2},
	} {
		name := fmt.Sprintf("%v/%s/%s", tc.technique, tc.a, tc.b)
		sa, _ := w.side(tc.a)
		sb, hb := w.side(tc.b)
		reserve := func(m met) {
			t.Helper()
			err := hb.Do(func() error {
				p := sb.ReservePort(t.Context(), tc.technique, tc.a, m.last)
				if p == nil {
					return errors.New("no port reserved")
				}
				if sb.ReservePort(t.Context(), tc.technique, tc.a, m.last) != nil {
					return errors.New("two ports reserved at once")
				}
				sa.Keep(tc.b, p)
				return nil
			})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		m := w.mustTraverse(name, tc.technique, tc.a, tc.b, 0)
		if m.offers < tc.cold {
			t.Fatalf("%s: %d offers for the first traversal, want %d", name, m.offers, tc.cold)
		}
		reserve(m)
		if m = w.mustTraverse(name+" by a reserved port", tc.technique, tc.a, tc.b, 0); m.offers != 1 && tc.a != "a-stateful-reject" {
			t.Errorf("%s: %d offers for a traversal by a reserved port", name, m.offers)
		}
		reserve(m)
		for id := range sb.PortPool.reserved { // nothing else is running
			sb.PortPool.mu.Lock()
			sb.PortPool.reserved[id].ready.port.Close()
			delete(sb.PortPool.reserved, id)
			sb.PortPool.mu.Unlock()
		}
		if m = w.mustTraverse(name+" after a reserved port is gone", tc.technique, tc.a, tc.b, 0); m.offers < 1+tc.cold {
			t.Errorf("%s: %d offers after a reserved port is gone", name, m.offers)
		}
	}
}

// TestManyBehindPort443: traversals with peers that reach only port 443 of this host all succeed,
// though they must take turns there; and a host whose turn does not come reports that, without
// blaming the path.
func TestManyBehindPort443(t *testing.T) {
	w := newWorld(t, "stateful", "egress-443")
	a, b := "a-stateful", "b-egress-443"
	sa, ha := w.side(a)
	sb, _ := w.side(b)
	meetMany := func(from, to string, port uint16) {
		t.Helper()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				var m met
				var err error
				for range 3 { // a busy machine may miss an instant
					if m, err = w.traverse(overlay.SimultaneousOpen, from, to, port); err == nil || errors.Is(err, overlay.ErrPortRangeFull) {
						break
					}
				}
				if err == nil {
					err = swap(m.asker, m.target)
				}
				if err != nil {
					t.Errorf("from %s to %s: %v", from, to, err)
					return
				}
				m.asker.Close()
				m.target.Close()
			})
		}
		all.Wait()
	}
	meetMany(a, b, webPort)
	meetMany(b, a, 0)
	if len(sa.PortPool.sole)+len(sb.PortPool.sole) != 0 {
		t.Error("port 443 is still taken after the last traversal")
	}

	release, err := sa.PortPool.lockPorts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.traverse(overlay.SimultaneousOpen, a, b, webPort)
	if !errors.Is(err, overlay.ErrOverloaded) || wire.CodeOf(err) != wire.CodeOverloaded {
		t.Errorf("while another link has the port: %v, class %v", err, wire.CodeOf(err))
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := sa.PortPool.lockPorts(ctx); !errors.Is(err, enough) {
		t.Errorf("a caller that gave up: %v", err)
	}
	release()

	// A port that could not be observed is released, too.
	deaf := *sa
	deaf.Reflectors = func(context.Context) (Reflectors, error) {
		none := []netip.AddrPort{netip.AddrPortFrom(sa.Address, 1)}
		return Reflectors{TCP: none, Clocks: none}, nil
	}
	if err := ha.Do(func() error { _, err := deaf.prepare(t.Context(), deaf.ports(webPort)); return err }); err == nil {
		t.Error("a port was observed by nobody")
	}
	if len(sa.PortPool.sole) != 0 {
		t.Error("port 443 is still taken after a failure")
	}
}

// TestWhatCannotBe: sites that no instant and no datagram can join get that error, within the
// bounds.
func TestWhatCannotBe(t *testing.T) {
	w := newWorld(t, "syn-drop", "nat-symmetric", "no-udp")
	for _, tc := range []struct {
		technique overlay.Technique
		a, b      string
		words     string
	}{
		{overlay.SimultaneousOpen, "a-nat-symmetric", "b-nat-symmetric", "foretold"},
		{overlay.HolePunching, "a-no-udp", "b-syn-drop", "STUN"},
	} {
		_, err := w.traverse(tc.technique, tc.a, tc.b, 0)
		if err == nil || !strings.Contains(err.Error(), tc.words) {
			t.Errorf("%v from %s to %s: %v, want %q", tc.technique, tc.a, tc.b, err, tc.words)
		}
	}
}

// TestLyingPeers: what a peer sends cannot make this end dial where it must not, wait long, or
// crash.
func TestLyingPeers(t *testing.T) {
	w := newWorld(t, "stateful")
	side, host := w.side("b-stateful")
	other, _ := w.side("a-stateful")
	side.Forbidden = []netip.Prefix{netip.MustParsePrefix("10.77.0.0/16")}
	good := func() *coordinatepb.OpenOffer {
		return &coordinatepb.OpenOffer{
			Profile: (&ready{end: simopen.End{Profile: other.Profile}}).profile(), Local: "10.1.0.11:5000", Outside: "10.1.0.11:5000",
			Independent: true, Server: w.reflectors.TCP[0].String(), RttNs: int64(10 * time.Millisecond),
		}
	}
	for name, tc := range map[string]struct {
		spoil func(*coordinatepb.OpenOffer)
		class error
	}{
		"loopback":           {func(m *coordinatepb.OpenOffer) { m.Local, m.Outside = "127.0.0.1:22", "127.0.0.1:22" }, overlay.ErrForbidden},
		"metadata service":   {func(m *coordinatepb.OpenOffer) { m.Local, m.Outside = "169.254.169.254:80", "169.254.169.254:80" }, overlay.ErrForbidden},
		"a denied network":   {func(m *coordinatepb.OpenOffer) { m.Local, m.Outside = "10.77.0.1:80", "10.77.0.1:80" }, overlay.ErrForbidden},
		"no address":         {func(m *coordinatepb.OpenOffer) { m.Outside = "here" }, wire.ErrMalformed},
		"another clock":      {func(m *coordinatepb.OpenOffer) { m.Server = "203.0.113.99:443" }, overlay.ErrRefused},
		"a round trip below": {func(m *coordinatepb.OpenOffer) { m.RttNs = -1 }, wire.ErrMalformed},
		"a day's round trip": {func(m *coordinatepb.OpenOffer) { m.RttNs = int64(24 * time.Hour) }, wire.ErrMalformed},
		"no profile":         {func(m *coordinatepb.OpenOffer) { m.Profile = []byte{0xff} }, wire.ErrMalformed},
	} {
		m := good()
		tc.spoil(m)
		err := host.Do(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err := side.Answer(ctx, overlay.SimultaneousOpen, "a", marshal(m), func([]byte) error { return nil })
			return err
		})
		if !errors.Is(err, tc.class) {
			t.Errorf("%s: %v, want %v", name, err, tc.class)
		}
	}
	if _, err := side.Answer(t.Context(), overlay.HolePunching, "a", make([]byte, MaxOffer+1), nil); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("a large offer: %v", err)
	}
	if _, err := side.Answer(t.Context(), overlay.Direct, "a", nil, nil); !errors.Is(err, wire.ErrVersion) {
		t.Errorf("another technique: %v", err)
	}
}
