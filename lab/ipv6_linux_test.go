//go:build system

package lab

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// TestIPv6Where: hosts have IPv6 exactly where the preset or the spec says so.
func TestIPv6Where(t *testing.T) {
	spec := sixSites()
	for _, c := range []struct {
		all  bool
		want string
	}{
		{false, "a/gw a/n1 b/gw b/n1 pub/x"},
		{true, "a/gw a/n1 b/gw b/n1 c/gw c/n1 pub/x"},
	} {
		spec.IPv6 = c.all
		var got []string
		seen := make(map[netip.Addr]string)
		for _, h := range makePlan(spec).hosts {
			if h.six.addr.IsValid() {
				got = append(got, h.name)
			}
			for _, a := range h.families() {
				if other := seen[a.addr]; other != "" {
					t.Errorf("%s and %s are both %v", other, h.name, a.addr)
				}
				seen[a.addr] = h.name
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("IPv6 for all is %v: %q have it, want %s", c.all, got, c.want)
		}
	}
	for _, h := range makePlan(Spec{Sites: spec.Sites[2:]}).hosts {
		if h.six.addr.IsValid() {
			t.Errorf("%s has IPv6 and no site does", h.name)
		}
	}
	if linkLocal(six.providers.host(0, 1)) == linkLocal(six.publics.host(0, 1)) {
		t.Error("a provider and the internet before it have the same link-local address")
	}
	for _, preset := range []string{"nat", "nat-double", "nat-symmetric"} {
		if spec.ipv6At(Site{Preset: preset}) {
			t.Errorf("%s translates and gets IPv6", preset)
		}
	}
}

// A site is IPv6-only because of its preset, or because its spec says so, whatever its preset
// filters.
func TestOnlyIPv6(t *testing.T) {
	p := makePlan(Spec{Sites: []Site{
		{Name: "a", Preset: "ipv6-only", Nodes: Nodes(1)},
		{Name: "b", Preset: "no-route/syn-drop", Nodes: Nodes(1), OnlyIPv6: true},
		{Name: "c", Preset: "syn-drop", Nodes: Nodes(1)},
		{Name: "pub", Preset: Public, Nodes: []string{"x"}},
	}})
	for _, h := range p.hosts {
		only := siteOf(h.name) == "a" || siteOf(h.name) == "b"
		if h.only6 != only || only && (!h.six.addr.IsValid() || h.defaultRoute(h.addrs).IsValid()) {
			t.Errorf("%s: IPv6 alone is %v, IPv6 at %v, its IPv4 route by %v", h.name, h.only6, h.six.addr, h.defaultRoute(h.addrs))
		}
		if hidden := h.name == "b/n1"; h.six.addr.IsValid() && hidden == h.defaultRoute(h.six).IsValid() {
			t.Errorf("%s: its IPv6 route is by %v", h.name, h.defaultRoute(h.six))
		}
	}
}

// TestIPv6Meeting: two sites reach each other over IPv6 once both have sent, by UDP and by
// simultaneous open of TCP, and the WAN counts it.
func TestIPv6Meeting(t *testing.T) {
	l := up(t, sixSites())
	a, b := l.Host("a/n1"), l.Host("b/n1")
	pcs := make(map[*Host]net.PacketConn)
	for _, h := range []*Host{a, b} {
		pc, err := h.ListenPacket("udp6", ":7000")
		if err != nil {
			t.Fatal(err)
		}
		defer pc.Close()
		pcs[h] = pc
	}
	send := func(from, to *Host) {
		t.Helper()
		if _, err := pcs[from].WriteTo([]byte("hello"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(to.Addr6(), 7000))); err != nil {
			t.Fatal(err)
		}
	}
	arrives := func(at *Host, wait time.Duration) bool {
		t.Helper()
		pcs[at].SetReadDeadline(time.Now().Add(wait))
		_, _, err := pcs[at].ReadFrom(make([]byte, 10))
		if err != nil && !os.IsTimeout(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	send(a, b)
	if arrives(b, quiet) {
		t.Error("a datagram that nobody asked for arrives")
	}
	send(b, a)
	if !arrives(a, patience) {
		t.Error("the answer does not arrive")
	}
	send(a, b)
	if !arrives(b, patience) {
		t.Error("after an answer the next one does not arrive")
	}
	for _, c := range l.Traffic() {
		const size = 40 + 8 + 5 // IPv6, UDP and "hello"
		if want := uint64(2); c.From == "a" && c.To == "b" && (c.Packets != want || c.Messages != want || c.Bytes != want*size) {
			t.Errorf("two datagrams are counted as %+v", c)
		}
	}

	ctx, cancel := context.WithTimeout(context.Background(), 5*patience) // a SYN may have to be sent again
	defer cancel()
	dial := func(from, to *Host, result chan<- error) {
		var c net.Conn
		err := from.Do(func() (err error) {
			d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from.Addr6(), 7001))}
			c, err = d.DialContext(ctx, "tcp6", netip.AddrPortFrom(to.Addr6(), 7001).String())
			return err
		})
		if err == nil {
			defer c.Close()
		}
		result <- err
	}
	results := make(chan error, 2)
	go dial(a, b, results)
	go dial(b, a, results)
	for range 2 {
		if err := <-results; err != nil {
			t.Errorf("simultaneous open: %v", err)
		}
	}
	for _, c := range l.Traffic() {
		between := c.From == "a" && c.To == "b" || c.From == "b" && c.To == "a"
		if between != (c.Packets > 0) {
			t.Errorf("%s to %s: %d packets", c.From, c.To, c.Packets)
		}
	}
}

// TestIPv6Unreachable: a site without IPv6 has no route to one that has it.
func TestIPv6Unreachable(t *testing.T) {
	t.Parallel()
	l := up(t, sixSites())
	if got := probe(l.Host("c/n1"), "tcp", netip.AddrPortFrom(l.Host("pub/x").Addr6(), 443)); got != "unreach" {
		t.Errorf("from a site without IPv6: %s", got)
	}
	if got := probe(l.Host("pub/x"), "tcp", netip.AddrPortFrom(netip.MustParseAddr("2001:db8:3::b"), 443)); got != "drop" {
		t.Errorf("to a network that nobody announces: %s", got)
	}
}
