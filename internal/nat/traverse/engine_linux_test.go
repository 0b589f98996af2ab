//go:build system

package traverse

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/google/nftables"

	"github.com/isthmus-grid/isthmus/overlay"
)

// TestEngineErrors: the error texts when it does not work, and that nothing hangs.
func TestEngineErrors(t *testing.T) {
	g := newGrid(t, "open", "syn-reset")
	a, b := g.Node("a", "open"), g.Node("b", "open")
	if err := a.Do(Available); err != nil {
		t.Error(err)
	}
	check := func(what string, err, class error, text string) {
		t.Helper()
		if !errors.Is(err, class) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v; want %q", what, err, text)
		}
	}
	inject := func(in Injection) error {
		return b.Do(func() error { _, err := g.engines[b].Inject(t.Context(), in); return err })
	}
	syn := linuxSYN(t)
	good := Injection{Level: Trav, SYN: syn.Append(nil), Source: netip.AddrPortFrom(a.Addr(), 4000), Target: netip.AddrPortFrom(b.Addr(), 4001)}
	check("no process listens", inject(good), overlay.ErrRefused, "does a process listen there (ss -ltn)")
	elsewhere := good
	elsewhere.Target = netip.AddrPortFrom(a.Addr(), 4001)
	elsewhere.Source = netip.AddrPortFrom(b.Addr(), 4000)
	check("another host", inject(elsewhere), overlay.ErrForbidden, "no interface of this host has the address")
	garbage := good
	garbage.SYN = []byte("not a packet")
	check("garbage", inject(garbage), errPacket, "no IPv6 header")

	connect := func(to string, dial bool, boom error) error {
		client, err := g.place(a, false)
		if err != nil {
			t.Fatal(err)
		}
		defer client.port.Close()
		remote := netip.AddrPortFrom(g.Node("b", to).Addr(), 4000)
		return a.Do(func() error {
			_, err := g.engines[a].Connect(t.Context(), Request{
				Level: Trav, Local: client.port.Local(), Remote: remote,
				Dial: func(ctx context.Context) (*net.TCPConn, error) {
					if !dial {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return client.port.Dial(ctx, remote)
				},
				Carry: func(ctx context.Context, _ []byte) error { return boom },
			})
			return err
		})
	}
	boom := errors.New("broker is down")
	check("no SYN", connect("open", false, nil), overlay.ErrTimeout, "did the program connect")
	check("a reset", connect("syn-reset", true, nil), overlay.ErrRefused, "use simultaneous open or a relay")
	sysctl(t, a, "ipv4.tcp_syn_retries", "1")
	install(t, g.Node("b", "open"), []chain{{nftables.ChainHookInput, nftables.ChainPriorityFilter, []rule{drop}}})
	check("carrying fails", connect("open", true, boom), boom, "broker is down")
}

// SYNs on the loopback interface are ignored; otherwise an injected one would be taken for one of
// this host's own.
func TestLoopbackIsNotWatched(t *testing.T) {
	g := newGrid(t, "open")
	a, b := g.Node("a", "open"), g.Node("b", "open")
	dial := func(local, remote netip.AddrPort) *Watch {
		w, err := g.engines[a].Watch(local, remote)
		if err != nil {
			t.Fatal(err)
		}
		err = a.Do(func() error {
			d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(local)}
			_, err := d.DialContext(t.Context(), "tcp4", remote.String())
			return err
		})
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("nobody listens at %v: %v", remote, err)
		}
		return w
	}
	lo := netip.MustParseAddr("127.0.0.1")
	inside := dial(netip.AddrPortFrom(lo, 4000), netip.AddrPortFrom(lo, 4001))
	outside := dial(netip.AddrPortFrom(a.Addr(), 4000), netip.AddrPortFrom(b.Addr(), 4001))
	if _, err := outside.SYN(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(inside.syn) != 0 { // it left before the other
		t.Error("the SYN on lo was seen")
	}
}
