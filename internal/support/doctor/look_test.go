package doctor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/wire"
)

var testFrontal = control.Identity{Role: control.RoleFrontal, Site: "sitea"}

// host is the files of a helper whose frontal the test simulates.
type host struct {
	t  *testing.T
	ca *ca.CA
	Subject
}

func newHost(t *testing.T) *host {
	dir := t.TempDir()
	a, err := ca.Create(filepath.Join(dir, "ca"), "test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	files, err := a.Write(dir, control.Identity{Role: control.RoleHelper, Site: "sitea", Name: "a1"}, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return &host{t, a, Subject{Role: control.RoleHelper, Cert: files.Cert, Key: files.Key, CA: files.CA}}
}

// serve simulates the server at the frontal's address: it passes every connection to handle. It
// ends with the test.
func (h *host) serve(handle func(net.Conn)) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(30 * time.Second))
				handle(c)
			})
		}
	})
	h.t.Cleanup(func() { ln.Close(); serving.Wait() })
	h.Address = ln.Addr().String()
}

// pair returns a certificate of the grid for the frontal.
func (h *host) pair() tls.Certificate {
	certPEM, keyPEM, err := h.ca.Issue(testFrontal, time.Now().Add(time.Hour))
	if err != nil {
		h.t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		h.t.Fatal(err)
	}
	return pair
}

// early returns a certificate that becomes valid tomorrow, as seen by a host whose clock is slow.
func (h *host) early() tls.Certificate {
	authority, err := tls.LoadX509KeyPair(filepath.Join(filepath.Dir(h.CA), "ca", ca.CertFile), filepath.Join(filepath.Dir(h.CA), "ca", ca.KeyFile))
	if err != nil {
		h.t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		h.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "frontal sitea"}, URIs: []*url.URL{testFrontal.URI()},
		NotBefore: time.Now().Add(24 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, authority.Leaf, key.Public(), authority.PrivateKey)
	if err != nil {
		h.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// speak makes a TLS handshake with the certificate and then sends the frame.
func speak(cert tls.Certificate, first wire.Frame) func(net.Conn) {
	return func(c net.Conn) {
		conn := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert, NextProtos: []string{"isthmus-control"}})
		if first != nil {
			conn.Write(wire.Append(nil, first))
		}
		io.Copy(io.Discard, conn)
	}
}

// TestLook meets every kind of server at a frontal's address, over real sockets.
func TestLook(t *testing.T) {
	h := newHost(t)
	for _, tc := range []struct {
		name   string
		handle func(net.Conn)
		class  Class
		says   string
	}{
		{"a service that greets in text", func(c net.Conn) { io.WriteString(c, "220 mail ready\r\n"); io.Copy(io.Discard, c) }, TLSBroken, "does not speak TLS"},
		{"a service that hangs up", func(c net.Conn) {}, TLSBroken, ""},
		{"a newer frontal", speak(h.pair(), &wire.ControlHello{Oldest: 200, Newest: 201, Software: "isthmus/9"}), Version, "isthmus/9 there speaks control versions 200 to 201"},
		{"a frontal that refuses", speak(h.pair(), &wire.Refuse{Code: wire.CodeForbidden, By: "frontal sitea", Text: "not you"}), Refused, "frontal sitea: not you"},
		{"a frontal that sends another frame", speak(h.pair(), &wire.Observe{}), Refused, "a observe in place of a control hello"},
		{"a frontal of another grid", speak(newHost(t).pair(), &wire.ControlHello{Oldest: 1, Newest: 1}), Certificate, "a grid with another CA"},
		{"a clock that is behind", speak(h.early(), &wire.ControlHello{Oldest: 1, Newest: 1}), Clock, "the clocks of this host and its issuer differ by at least "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := *h
			h.t = t
			h.serve(tc.handle)
			r := Conclude(Look(t.Context(), h.Subject))
			found := slices.ContainsFunc(r.Findings, func(f Finding) bool {
				return f.Status == Failed && f.Class == tc.class && strings.Contains(f.Evidence+f.Meaning, tc.says)
			})
			if r.Class != tc.class || !found || r.Self != "helper sitea/a1" {
				t.Errorf("%s named %s, want %s with %q: %+v", r.Self, r.Class, tc.class, tc.says, r.Findings)
			}
		})
	}
}

// TestLookThroughAnHTTPProxy: the proxy's answer is reported in its own words.
func TestLookThroughAnHTTPProxy(t *testing.T) {
	h := newHost(t)
	h.serve(func(c net.Conn) {
		c.Read(make([]byte, 1024))
		io.WriteString(c, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
	})
	files, err := h.ca.Write(t.TempDir(), testFrontal, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	s := Subject{Role: control.RoleFrontal, Address: "broker.example:443", HTTPProxy: carrier.HTTPProxy{Addr: h.Address}, Cert: files.Cert, Key: files.Key, CA: files.CA}
	r := Conclude(Look(t.Context(), s))
	if r.Class != HTTPProxy || !strings.Contains(r.Findings[len(r.Findings)-2].Evidence+r.Findings[len(r.Findings)-1].Evidence, "407") {
		t.Errorf("named %s: %+v", r.Class, r.Findings)
	}
}

// TestLookLeavesNothing: no goroutine and no descriptor outlives a run.
func TestLookLeavesNothing(t *testing.T) {
	h := newHost(t)
	h.serve(speak(h.pair(), &wire.Refuse{Code: wire.CodeForbidden, By: "frontal sitea", Text: "not you"}))
	h.Proxies = addresses([]string{h.Address, "127.0.0.1:1", "0.0.0.0:1", "x"})
	Look(t.Context(), h.Subject)
	files, routines := descriptors(t), runtime.NumGoroutine()
	for range 10 {
		Look(t.Context(), h.Subject)
	}
	deadline := time.Now().Add(30 * time.Second)
	for descriptors(t) > files+2 || runtime.NumGoroutine() > routines+2 {
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors and %d goroutines before, %d and %d after 10 runs", files, routines, descriptors(t), runtime.NumGoroutine())
		}
		runtime.Gosched()
	}
}

func descriptors(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0 // they cannot be counted here
	}
	return len(entries)
}

// Addresses in a peer's list that no grid should name are omitted.
func TestAddresses(t *testing.T) {
	got := addresses([]string{"203.0.113.2:443", "[::ffff:203.0.113.3]:443", "0.0.0.0:443", "203.0.113.2:0", "224.0.0.1:443", "broker:443", ""})
	want := []netip.AddrPort{addr("203.0.113.2:443"), addr("203.0.113.3:443")}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// What the first address of a name does matters only if no other one leads to the daemon.
func TestBestAddress(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")}
	silent := func(ctx context.Context, s *Service) { <-ctx.Done(); s.Connect.Outcome = Silent }
	refused := func(_ context.Context, s *Service) { s.Connect.Outcome = Reset }
	accepts := func(ctx context.Context, s *Service) {
		s.Connect.Outcome = Connected
		<-ctx.Done()
		s.TLS.Silent = true
	}
	foreign := func(_ context.Context, s *Service) {
		s.Connect.Outcome, s.TLS.Chain = Connected, []Cert{{Subject: "CN=x"}}
	}
	works := func(_ context.Context, s *Service) {
		s.Connect.Outcome, s.TLS.Done, s.Hello.Got = Connected, true, true
	}
	noTunnel := func(_ context.Context, s *Service) { s.Connect.Outcome, s.Tunnel.Asked = Connected, true }
	for name, c := range map[string]struct {
		of   []func(context.Context, *Service)
		best int
	}{
		"all work":                       {[]func(context.Context, *Service){works, works, works}, -1},
		"the first is dead":              {[]func(context.Context, *Service){silent, works, silent}, 1},
		"the first accepts, and is mute": {[]func(context.Context, *Service){accepts, silent, works}, 2},
		"the first is another's":         {[]func(context.Context, *Service){foreign, works, refused}, 1},
		"none works":                     {[]func(context.Context, *Service){refused, foreign, refused}, 1},
		"none is reached":                {[]func(context.Context, *Service){refused, refused, refused}, 0},
		"a proxy that refuses":           {[]func(context.Context, *Service){refused, noTunnel, refused}, 1},
	} {
		got := bestOf(t.Context(), Service{Address: "gw:1"}, addrs, func(ctx context.Context, s *Service, a netip.Addr) {
			s.Connect.To = netip.AddrPortFrom(a, 1)
			c.of[slices.Index(addrs, a)](ctx, s)
		})
		if at := slices.Index(addrs, got.Connect.To.Addr()); c.best >= 0 && at != c.best || c.best < 0 && !got.Hello.Got || got.Address != "gw:1" {
			t.Errorf("%s: address %d, %+v", name, at, got)
		}
	}
}

// Which of the grid's addresses are looked at over which version of IP, whichever the session uses, and
// which matter to a host that has one alone.
func TestBothVersions(t *testing.T) {
	const b4, b6, p4, p6 = "203.0.113.2:443", "[2001:db8::2]:443", "203.0.113.3:443", "[2001:db8::3]:443"
	route := func(has ...string) func(netip.Addr) (netip.Addr, error) {
		return func(to netip.Addr) (netip.Addr, error) {
			if slices.Contains(has, map[bool]string{true: "IPv4", false: "IPv6"}[to.Is4()]) {
				return to, nil
			}
			return to, syscall.ENETUNREACH
		}
	}
	for _, tc := range []struct {
		what           string
		named          []string
		usual, six     string
		alone4, alone6 string // from a host that has one version of IP
	}{
		{"a session over IPv4", []string{b4, p4, b6, p6}, "[" + b4 + " " + p4 + "]", "[" + b6 + " " + p6 + "]", "[" + b4 + " " + p4 + "]", "[" + b6 + " " + p6 + "]"},
		{"a session over IPv6", []string{b6, b4, p4, p6}, "[" + b4 + " " + p4 + "]", "[" + b6 + " " + p6 + "]", "[" + b4 + " " + p4 + "]", "[" + b6 + " " + p6 + "]"},
		{"a grid of IPv4", []string{b4, p4}, "[" + b4 + " " + p4 + "]", "[]", "[" + b4 + " " + p4 + "]", "[" + b4 + " " + p4 + "]"},
		{"a grid of IPv6", []string{b6, p6}, "[" + b6 + " " + p6 + "]", "[]", "[" + b6 + " " + p6 + "]", "[" + b6 + " " + p6 + "]"},
	} {
		usual, six := byVersion(addresses(tc.named))
		if fmt.Sprint(usual) != tc.usual || fmt.Sprint(six) != tc.six {
			t.Errorf("%s: %v and %v", tc.what, usual, six)
		}
		for has, want := range map[string]string{"IPv4": tc.alone4, "IPv6": tc.alone6, "": tc.usual} {
			if got := reachable(usual, six, route(has)); fmt.Sprint(got) != want {
				t.Errorf("%s, a host with %q: %v, want %s", tc.what, has, got, want)
			}
		}
		if got := reachable(usual, six, route("IPv4", "IPv6")); fmt.Sprint(got) != tc.usual {
			t.Errorf("%s, a host with both: %v, want %s", tc.what, got, tc.usual)
		}
	}
}
