package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// patience bounds what should answer at once; silence takes this long.
const patience = 2 * time.Second

// serveBanner answers each TCP connection to host:port with word and the client's
// address, until the lab is closed.
func serveBanner(t *testing.T, h *Host, port int, word string) {
	t.Helper()
	ln, err := h.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "%s %v", word, c.RemoteAddr())
			c.Close()
		}
	}()
}

// serveEcho answers each datagram to host:port with the client's address.
func serveEcho(t *testing.T, h *Host, port int) {
	t.Helper()
	pc, err := h.ListenPacket("udp", fmt.Sprintf(":%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			pc.WriteTo([]byte("echo "+from.String()), from)
		}
	}()
}

// outcome puts the result of a dial into one word.
func outcome(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "unreach"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, syscall.EPERM):
		return "drop" // EPERM: an own output chain drops datagrams
	default:
		return err.Error()
	}
}

// probe dials and returns the banner's or echo's first word, or how it failed.
func probe(h *Host, network string, to netip.AddrPort) string {
	word, _, _ := strings.Cut(probeAll(h, network, to), " ")
	return word
}

func probeAll(h *Host, network string, to netip.AddrPort) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := h.Dial(ctx, network, to.String())
	if err != nil {
		return outcome(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if network == "udp" {
		if _, err := c.Write([]byte("hello")); err != nil {
			return outcome(err)
		}
		buf := make([]byte, 100)
		n, err := c.Read(buf)
		if err != nil {
			return outcome(err)
		}
		return string(buf[:n])
	}
	b, err := io.ReadAll(c)
	if err != nil {
		return outcome(err)
	}
	return string(b)
}

// banner checks that from reaches a port of host to.
func banner(t *testing.T, l *Lab, to string, port uint16, from string) {
	t.Helper()
	h := l.Host(to)
	if _, served := bannersServed.LoadOrStore(h, true); !served {
		serveBanner(t, h, int(port), "banner")
	}
	if got := probe(l.Host(from), "tcp", netip.AddrPortFrom(h.Addr(), port)); got != "banner" {
		t.Errorf("%s to %s:%d: %s", from, to, port, got)
	}
}

var bannersServed sync.Map // *Host

// truth says what one preset's rules do. out, to443 and udp are about a node that
// asks a public host's port 7000, 443 and UDP 7000; in and inRange about that host
// asking the node's ports 7000 and 20500; ext, extRange and extClosed about it asking
// the gateway's WAN address on 7000, 20500 and a port where nobody listens. Nodes
// answer "node", gateways "gw", public hosts "pub".
type truth struct {
	preset                   string
	out, to443, udp          string
	in, inRange              string
	ext, extRange, extClosed string
}

var truths = []truth{
	{"open", "pub", "pub", "echo", "node", "node", "gw", "gw", "reset"},
	{"port-range", "pub", "pub", "echo", "drop", "node", "drop", "gw", "drop"},
	{"syn-drop", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"syn-reset", "pub", "pub", "echo", "reset", "reset", "reset", "reset", "reset"},
	{"stateful", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"stateful-reject", "pub", "pub", "echo", "reset", "reset", "reset", "reset", "reset"},
	{"stateful-strict", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"stateful-strict-new", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"stateful-noloose", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"nat", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"nat-answers", "pub", "pub", "echo", "drop", "drop", "gw", "gw", "reset"},
	{"nat-random", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"nat-fullcone", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"nat-1to1", "pub", "pub", "echo", "drop", "drop", "node", "node", "reset"},
	{"nat-symmetric", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"no-udp", "pub", "pub", "drop", "drop", "drop", "drop", "drop", "drop"},
	{"egress-443", "drop", "pub", "drop", "drop", "drop", "drop", "drop", "drop"},
	{"http-proxy", "drop", "drop", "drop", "drop", "drop", "drop", "drop", "drop"},
}

// TestPresetTruth asks every rule of every preset with real packets: all presets
// are sites of one lab, and all probes run at once.
func TestPresetTruth(t *testing.T) {
	if len(truths) != len(presets) {
		t.Fatalf("%d presets, %d truths", len(presets), len(truths))
	}
	spec := Spec{Sites: []Site{{Name: "pub", Preset: Public, Nodes: []string{"x"}}}}
	for i, tr := range truths {
		spec.Sites = append(spec.Sites,
			Site{Name: fmt.Sprintf("p%d", i), Preset: tr.preset, Nodes: Nodes(2)},
			Site{Name: fmt.Sprintf("h%d", i), Preset: noRoute + tr.preset, Nodes: Nodes(2)})
	}
	l := up(t, spec)
	pub := l.Host("pub/x")
	serveBanner(t, pub, 7000, "pub")
	serveBanner(t, pub, 443, "pub")
	serveEcho(t, pub, 7000)
	p := probes{t: t, l: l}
	defer p.Wait()
	for i, tr := range truths {
		plain, hidden := fmt.Sprintf("p%d", i), fmt.Sprintf("h%d", i)
		serveSite(t, l, plain)
		serveSite(t, l, hidden)
		p.plain(plain, tr)
		p.hidden(hidden, tr)
		p.expect(tr.preset, l.Host(plain+"/n2"), "tcp", l.Host(plain+"/n1").Addr(), 7000, "node")
		p.expect(noRoute+tr.preset, l.Host(hidden+"/n2"), "tcp", l.Host(hidden+"/n1").Addr(), 7000, "node")
	}
}

func serveSite(t *testing.T, l *Lab, site string) {
	for _, port := range []int{7000, 20500} {
		serveBanner(t, l.Host(site+"/n1"), port, "node")
		serveBanner(t, l.Host(site+"/gw"), port, "gw")
	}
}

// probes are questions to the rules of a lab, all asked at the same time.
type probes struct {
	sync.WaitGroup
	t *testing.T
	l *Lab
}

func (p *probes) plain(site string, tr truth) {
	l := p.l
	pub, node, gw := l.Host("pub/x"), l.Host(site+"/n1"), l.Host(site+"/gw")
	p.out(tr.preset, node, pub, tr)
	p.out(tr.preset, gw, pub, tr)
	p.expect(tr.preset, pub, "tcp", node.Addr(), 7000, tr.in)
	p.expect(tr.preset, pub, "tcp", node.Addr(), 20500, tr.inRange)
	p.expect(tr.preset, pub, "tcp", gw.WANAddr(), 7000, tr.ext)
	p.expect(tr.preset, pub, "tcp", gw.WANAddr(), 20500, tr.extRange)
	p.expect(tr.preset, pub, "tcp", gw.WANAddr(), 7001, tr.extClosed)
	if l.Proxy(site) != nil {
		p.expect(tr.preset, node, "tcp", l.Host(site+"/proxy").Addr(), 3128, "HTTP/1.1")
		p.expect(tr.preset, node, "tcp", l.Host(site+"/proxy").Addr(), 443, "drop")
	}
}

// hidden is plain for a site whose nodes have no route: they reach their
// gateway and nothing else, and the gateway has what the nodes would have.
func (p *probes) hidden(site string, tr truth) {
	l := p.l
	pub, node, gw := l.Host("pub/x"), l.Host(site+"/n1"), l.Host(site+"/gw")
	preset := noRoute + tr.preset
	none := truth{out: "unreach", to443: "unreach", udp: "unreach"}
	p.out(preset, node, pub, none)
	p.out(preset, gw, pub, tr)
	p.expect(preset, node, "tcp", gw.Addr(), 7000, "gw")
	p.expect(preset, gw, "tcp", node.Addr(), 7000, "node")
	p.expect(preset, pub, "tcp", node.Addr(), 7000, "drop")
	asGateway := strings.NewReplacer("node", "gw")
	if tr.preset == "nat-answers" { // a gateway in the place of the nodes gets no more than they
		asGateway = strings.NewReplacer("gw", "reset")
	}
	p.expect(preset, pub, "tcp", gw.WANAddr(), 7000, asGateway.Replace(tr.ext))
	p.expect(preset, pub, "tcp", gw.WANAddr(), 20500, asGateway.Replace(tr.extRange))
	p.expect(preset, pub, "tcp", gw.WANAddr(), 7001, tr.extClosed)
	if l.Proxy(site) != nil {
		p.expect(preset, gw, "tcp", l.Host(site+"/proxy").Addr(), 3128, "HTTP/1.1")
		p.expect(preset, node, "tcp", l.Host(site+"/proxy").Addr(), 3128, "unreach")
	}
}

func (p *probes) out(preset string, from, pub *Host, tr truth) {
	p.expect(preset, from, "tcp", pub.Addr(), 7000, tr.out)
	p.expect(preset, from, "tcp", pub.Addr(), 443, tr.to443)
	p.expect(preset, from, "udp", pub.Addr(), 7000, tr.udp)
}

func (p *probes) expect(preset string, from *Host, network string, to netip.Addr, port uint16, want string) {
	p.Go(func() {
		got := ""
		if want == "HTTP/1.1" { // a proxy speaks when it is asked
			got, _, _ = strings.Cut(askProxy(from, to, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), " ")
		} else {
			got = probe(from, network, netip.AddrPortFrom(to, port))
		}
		if got != want {
			p.t.Errorf("%s: %s from %s to %v:%d: %s, want %s", preset, network, from.Name(), to, port, got, want)
		}
	})
}

// askProxy sends a request to a CONNECT proxy and returns what comes back until it
// closes or has nothing more to say.
func askProxy(from *Host, proxy netip.Addr, request string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := from.Dial(ctx, "tcp", netip.AddrPortFrom(proxy, proxyPort).String())
	if err != nil {
		return outcome(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, request); err != nil {
		return outcome(err)
	}
	b, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return outcome(err)
	}
	return string(b)
}

func TestConnectProxy(t *testing.T) {
	l := up(t, Spec{Sites: []Site{
		{Name: "site", Preset: "http-proxy", Nodes: Nodes(1)},
		{Name: "other", Preset: "open", Nodes: Nodes(1)},
		{Name: "pub", Preset: Public, Nodes: []string{"x"}},
	}})
	serveBanner(t, l.Host("pub/x"), 443, "pub")
	proxy := l.Host("site/proxy").Addr()
	for _, c := range []struct{ from, request, want string }{
		{"site/n1", "CONNECT " + l.Host("pub/x").Addr().String() + ":443 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 Connection established\r\n\r\npub " + proxy.String()},
		{"site/gw", "CONNECT x.pub:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 200 Connection established\r\n\r\npub " + proxy.String()},
		{"site/n1", "CONNECT x.pub:80 HTTP/1.1\r\n\r\n", "HTTP/1.1 403 "},
		{"site/n1", "CONNECT y.pub:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 502 "},
		{"site/n1", "CONNECT n1.other:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 502 "},
		{"site/n1", "CONNECT x.pub HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		{"site/n1", "GET http://x.pub/ HTTP/1.1\r\nHost: x.pub\r\n\r\n", "HTTP/1.1 405 "},
		{"site/n1", "nonsense\r\n\r\n", "HTTP/1.1 400 "},
		{"site/n1", strings.Repeat("x", 2*proxyHeader), "HTTP/1.1 400 "},
		{"other/n1", "CONNECT x.pub:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 403 "},
	} {
		if got := askProxy(l.Host(c.from), proxy, c.request); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s asks %.40q: %q, want %q", c.from, c.request, got, c.want)
		}
	}
	got := l.Proxy("site").Counts()
	got.Active = 0 // the last client may still be on its way out
	if want := (ProxyCounts{Opened: 2, Refused: 7, Failed: 1}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}
}

// external returns a socket on a port of the node, and the port under which each of
// some public hosts sees datagrams from it.
func external(t *testing.T, l *Lab, node *Host, port uint16, to ...string) (net.PacketConn, []uint16) {
	t.Helper()
	pc, err := node.ListenPacket("udp", fmt.Sprintf(":%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	var ports []uint16
	for _, name := range to {
		dst := net.UDPAddrFromAddrPort(netip.AddrPortFrom(l.Host(name).Addr(), 7000))
		if _, err := pc.WriteTo([]byte("hello"), dst); err != nil {
			t.Fatal(err)
		}
		pc.SetReadDeadline(time.Now().Add(patience))
		buf := make([]byte, 100)
		n, _, err := pc.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		seen, err := netip.ParseAddrPort(strings.TrimPrefix(string(buf[:n]), "echo "))
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, seen.Port())
	}
	return pc, ports
}

// TestNATBehaviour holds the translating presets to what their profiles say in the
// words of RFC 4787: the mapping, whether ports are kept, and the filtering.
func TestNATBehaviour(t *testing.T) {
	for _, name := range Presets() {
		if p, err := lookupPreset(name); err != nil || !p.translates() {
			continue
		}
		t.Run(name, func(t *testing.T) { checkNAT(t, name) })
	}
}

func checkNAT(t *testing.T, name string) {
	l := up(t, Spec{Sites: []Site{
		{Name: "s", Preset: name, Nodes: Nodes(1)},
		{Name: "pub", Preset: Public, Nodes: []string{"a", "b", "outsider"}},
	}})
	serveEcho(t, l.Host("pub/a"), 7000)
	serveEcho(t, l.Host("pub/b"), 7000)
	profile, err := Profile(name)
	if err != nil {
		t.Fatal(err)
	}
	inside := l.Host("s/n1")
	if profile.GatewayOnly {
		inside = l.Host("s/gw")
	}
	same, kept := 0, 0
	const tries = 4 // random ports may agree once, not always
	for port := uint16(30100); port < 30100+tries; port++ {
		pc, seen := external(t, l, inside, port, "pub/a", "pub/b", "pub/a")
		if seen[0] != seen[2] {
			t.Errorf("one destination sees ports %v", seen)
		}
		if seen[0] == seen[1] {
			same++
		}
		if seen[0] == port {
			kept++
		}
		checkFiltering(t, l, profile.NAT.Filtering, pc, seen[0])
	}
	if want := profile.NAT.Mapping == overlay.EndpointIndependent; (same == tries) != want {
		t.Errorf("the mapping was the same for both %d of %d times; the profile says %v", same, tries, profile.NAT.Mapping)
	}
	if (kept == tries) != profile.NAT.KeepsPort {
		t.Errorf("the port was kept %d of %d times; the profile says %v", kept, tries, profile.NAT.KeepsPort)
	}
}

// checkFiltering sends to the mapping of pc from a host that the node never talked
// to.
func checkFiltering(t *testing.T, l *Lab, filtering overlay.NATBehaviour, pc net.PacketConn, outside uint16) {
	t.Helper()
	out, err := l.Host("pub/outsider").ListenPacket("udp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	ext := netip.AddrPortFrom(l.Host("s/gw").WANAddr(), outside)
	if _, err := out.WriteTo([]byte("hello"), net.UDPAddrFromAddrPort(ext)); err != nil {
		t.Fatal(err)
	}
	want := filtering == overlay.EndpointIndependent
	wait := patience
	if !want {
		wait = 100 * time.Millisecond // for what should not come
	}
	pc.SetReadDeadline(time.Now().Add(wait))
	_, _, err = pc.ReadFrom(make([]byte, 100))
	if got := err == nil; got != want {
		t.Errorf("an outsider gets through: %v (%v); the profile says filtering %v", got, err, filtering)
	}
}
