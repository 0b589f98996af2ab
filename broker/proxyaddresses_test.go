package broker

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/carrier/encap"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// answering listens as a proxy of that name does, and counts its callers.
func (g *grid) answering(name string) (at netip.AddrPort, callers func() int) {
	g.t.Helper()
	creds := g.credentials(control.Identity{Role: control.RoleProxy, Name: name})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		g.t.Fatal(err)
	}
	var mu sync.Mutex
	n := 0
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			n++
			mu.Unlock()
			if a, err := encap.Accept(c.(*net.TCPConn), creds.DataServer()); err == nil {
				if f, err := wire.Read(a.First); err == nil && f.Type() == wire.TypeObserve {
					a.Stream.Write(wire.Append(nil, &wire.Observed{From: c.RemoteAddr().(*net.TCPAddr).AddrPort(), Time: time.Now()}))
				}
			}
			c.Close()
		}
	})
	g.t.Cleanup(func() { ln.Close(); serving.Wait() })
	return ln.Addr().(*net.TCPAddr).AddrPort(), func() int { mu.Lock(); defer mu.Unlock(); return n }
}

// Of the addresses that a proxy names, sites are told those of its session, those where it proves that it is
// there, and those that the admin lists.
func TestProxyAddressesAreItsOwn(t *testing.T) {
	g := newGrid(t)
	g.cfg.AllowLoopback, g.cfg.ProxyNetworks = false, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	g.start()
	mine, callers := g.answering("p1")
	others, _ := g.answering("p2")
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobodys := gone.Addr().(*net.TCPAddr).AddrPort()
	gone.Close()
	from := netip.MustParseAddr("192.0.2.7")
	session, listed := netip.AddrPortFrom(from, 443), netip.MustParseAddrPort("198.51.100.9:443")
	offer := func(stun netip.AddrPort, addresses ...netip.AddrPort) (registry.Offer, []error, error) {
		o := registry.Offer{Name: "p1", Addresses: addresses, STUN: stun}
		removed, err := g.b.ownOnly(g.ctx(), from, &o)
		return o, removed, err
	}
	for i := range 3 {
		o, removed, err := offer(mine, others, session, nobodys, mine, listed)
		if err != nil || !slices.Equal(o.Addresses, []netip.AddrPort{session, mine, listed}) || o.STUN != mine {
			t.Errorf("%v, STUN %v, %v", o.Addresses, o.STUN, err)
		}
		want := 2
		if i > 0 { // it was told
			want = 0
		}
		if len(removed) != want {
			t.Errorf("removed: %v", removed)
		}
		for _, err := range removed {
			if !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), "is not shown to be that of proxy p1") {
				t.Error(err)
			}
		}
	}
	if n := callers(); n != 1 {
		t.Errorf("dialled %d times", n)
	}
	if o, _, err := offer(netip.AddrPortFrom(netip.MustParseAddr("203.0.113.1"), 3478), session); err != nil || o.STUN.IsValid() {
		t.Errorf("STUN at another host is named: %v, %v", o.STUN, err)
	}
	if _, _, err := offer(netip.AddrPort{}, others); !errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), "proxy_networks") {
		t.Errorf("only another's: %v", err)
	}
}

// Remembered proofs are bounded, and count for their time.
func TestProofsAreBounded(t *testing.T) {
	var p proofs
	now := time.Unix(1_000_000, 0)
	key := proofKey{"p1", netip.MustParseAddrPort("192.0.2.1:443")}
	for _, cause := range []error{nil, overlay.ErrRefused} {
		life := provenLife
		if cause != nil {
			life = unprovenLife
		}
		p.keep(key, cause, now)
		if one, ok := p.of(key, now.Add(life-1)); !ok || one.err != cause {
			t.Errorf("%v: %v, %t", cause, one.err, ok)
		}
		if _, ok := p.of(key, now.Add(life)); ok {
			t.Errorf("%v is remembered too long", cause)
		}
	}
	for i := range 2 * maxProofs {
		p.keep(proofKey{fmt.Sprint(i), key.addr}, nil, now)
	}
	if len(p.results) > maxProofs {
		t.Errorf("%d are remembered", len(p.results))
	}
}

// A proxy that names others' addresses only is refused.
func TestOfferOfOthersAddresses(t *testing.T) {
	g := newGrid(t)
	g.cfg.AllowLoopback = false
	g.start()
	g.b.proxies.proofs.keep(proofKey{"p1", netip.MustParseAddrPort("192.0.2.7:443")}, overlay.ErrRefused, time.Now())
	p := g.peer(control.Identity{Role: control.RoleProxy, Name: "p1"}, nil)
	if _, err := p.relays.Offer(g.ctx(), offerOf("p1", "192.0.2.7:443")); !errors.Is(control.FromStatus(err), overlay.ErrForbidden) {
		t.Errorf("offered: %v", err)
	}
	if list := g.b.proxies.List(); len(list) != 0 {
		t.Errorf("proxies %v", list)
	}
}
