//go:build system

package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// asks dials pub:7000 from a host, bound to a source address and an interface if they are given,
// and returns the address that the listener saw; not valid if there is no answer.
func asks(t *testing.T, from, pub *Host, source netip.Addr, device string) netip.Addr {
	t.Helper()
	ln, err := pub.Listen("tcp4", ":7000")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	d := net.Dialer{Timeout: 500 * time.Millisecond, Control: func(_, _ string, c syscall.RawConn) (err error) {
		if device == "" {
			return nil
		}
		return errors.Join(c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) }), err)
	}}
	if source.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	var c net.Conn
	err = from.Do(func() (err error) {
		c, err = d.Dial("tcp4", netip.AddrPortFrom(pub.Addr(), 7000).String())
		return err
	})
	var silent net.Error
	if errors.As(err, &silent) && silent.Timeout() {
		return netip.Addr{}
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ln.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	accepted.Close()
	c.SetReadDeadline(time.Now().Add(patience))
	if _, err := c.Read(make([]byte, 1)); err != io.EOF { // the way back, too
		t.Fatal(err)
	}
	return accepted.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
}

// The source address of a node decides the uplink of its packets; through a cut uplink nothing
// arrives, and both count as the site's.
func TestTwoUplinks(t *testing.T) {
	for _, c := range []struct {
		preset string
		first  string // addresses of the node, as others see them
		second string
	}{
		{"two-uplinks", "10.1.0.11", "10.1.1.11"},
		{"nat", "100.64.1.2", "100.65.1.2"},
	} {
		t.Run(c.preset, func(t *testing.T) {
			l := up(t, Spec{Sites: []Site{
				{Name: "s", Preset: c.preset, Nodes: Nodes(1), Second: true},
				{Name: "pub", Preset: Public, Nodes: []string{"x"}},
			}})
			node, gw, pub := l.Host("s/n1"), l.Host("s/gw"), l.Host("pub/x")
			second := netip.MustParseAddr("10.1.1.11")
			all := func(firstNode, secondNode, firstGateway, secondGateway string) {
				t.Helper()
				for i, got := range []netip.Addr{
					asks(t, node, pub, netip.Addr{}, ""), asks(t, node, pub, second, ""),
					asks(t, gw, pub, netip.Addr{}, ""), asks(t, gw, pub, netip.Addr{}, "wan1"),
				} {
					if want := []string{firstNode, secondNode, firstGateway, secondGateway}[i]; fmt.Sprint(got) != want {
						t.Errorf("the %d. comes from %v, want %s", i+1, got, want)
					}
				}
			}
			const nobody = "invalid IP"
			all(c.first, c.second, "100.64.1.2", "100.65.1.2")
			if err := l.CutUplink("s", 1); err != nil {
				t.Fatal(err)
			}
			all(nobody, c.second, nobody, "100.65.1.2")
			if err := errors.Join(l.RestoreUplink("s", 1), l.CutUplink("s", 2)); err != nil {
				t.Fatal(err)
			}
			all(c.first, nobody, "100.64.1.2", nobody)
			if err := errors.Join(l.RestoreUplink("s", 2), l.Cut("s", "pub")); err != nil {
				t.Fatal(err)
			}
			all(nobody, nobody, nobody, nobody)
			if n := len(l.Traffic()); n != 2 {
				t.Errorf("traffic is counted for %d paths between two places", n)
			}
		})
	}
}

// With an asymmetric return both uplinks are needed.
func TestAsymmetric(t *testing.T) {
	l := up(t, Spec{Sites: []Site{
		{Name: "s", Preset: "asymmetric", Nodes: Nodes(1)},
		{Name: "pub", Preset: Public, Nodes: []string{"x"}},
	}})
	for n, want := range map[int]string{0: "10.1.0.11", 1: "invalid IP", 2: "invalid IP"} {
		if n > 0 {
			if err := l.CutUplink("s", n); err != nil {
				t.Fatal(err)
			}
		}
		if got := asks(t, l.Host("s/n1"), l.Host("pub/x"), netip.Addr{}, ""); fmt.Sprint(got) != want {
			t.Errorf("with uplink %d cut it comes from %v, want %s", n, got, want)
		}
		if n > 0 {
			if err := l.RestoreUplink("s", n); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := asks(t, l.Host("s/gw"), l.Host("pub/x"), netip.Addr{}, ""); fmt.Sprint(got) != "100.64.1.2" {
		t.Errorf("the gateway comes from %v", got)
	}
}
