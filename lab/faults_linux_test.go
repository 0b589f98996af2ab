//go:build system

package lab

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// call is a TCP connection from alpha/n1, behind a stateful firewall, to a public
// host.
type call struct {
	t         *testing.T
	lab       *Lab
	near, far net.Conn
}

const callPort = ":7000"

func newCall(t *testing.T) *call {
	t.Helper()
	c := &call{t: t, lab: up(t, twoSites())}
	ln, err := c.lab.Host("pub/broker").Listen("tcp", callPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	c.near, c.far = c.dial(ln)
	return c
}

// dial makes another connection.
func (c *call) dial(ln net.Listener) (near, far net.Conn) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	near, err := c.lab.Host("alpha/n1").Dial(ctx, "tcp", c.lab.Host("pub/broker").Addr().String()+callPort)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { near.Close() })
	far, err = ln.Accept()
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { far.Close() })
	return near, far
}

// passes sends a byte in each direction and expects it to arrive.
func (c *call) passes() {
	c.t.Helper()
	for _, way := range [][2]net.Conn{{c.near, c.far}, {c.far, c.near}} {
		if _, err := way[0].Write([]byte{1}); err != nil {
			c.t.Fatal(err)
		}
		way[1].SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.ReadFull(way[1], make([]byte, 1)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// flow returns the flow of the connection.
func (c *call) flow() Flow {
	return Flow{c.near.LocalAddr().(*net.TCPAddr).AddrPort(), c.near.RemoteAddr().(*net.TCPAddr).AddrPort()}
}

// met waits until the fault has matched a packet.
func met(t *testing.T, f *Fault) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) { // nothing announces it
		n, err := f.Met()
		switch {
		case err != nil:
			t.Fatal(err)
		case n > 0:
			return
		case time.Now().After(end):
			t.Fatal("the fault meets no packet")
		}
	}
}

// A dropped flow is silent in both directions, and continues when the fault is lifted; others
// continue throughout.
func TestDrop(t *testing.T) {
	c := newCall(t)
	c.passes()
	fault, err := c.lab.Host("alpha/gw").Drop(c.flow())
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range [][2]net.Conn{{c.near, c.far}, {c.far, c.near}} {
		if _, err := way[0].Write([]byte{2}); err != nil {
			t.Fatal(err)
		}
	}
	met(t, fault)
	for _, end := range []net.Conn{c.near, c.far} {
		end.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := end.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read %d bytes (%v) of a flow that is dropped", n, err)
		}
	}
	ln, err := c.lab.Host("pub/broker").Listen("tcp", ":7001")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	other := &call{t: t, lab: c.lab}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if other.near, err = c.lab.Host("alpha/n1").Dial(ctx, "tcp", c.lab.Host("pub/broker").Addr().String()+":7001"); err != nil {
		t.Fatal(err)
	}
	defer other.near.Close()
	if other.far, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	defer other.far.Close()
	other.passes()
	if err := fault.Lift(); err != nil {
		t.Fatal(err)
	}
	c.passes() // what was dropped is sent again
}

// All packets between two addresses are dropped, datagrams too.
func TestDropEverything(t *testing.T) {
	c := newCall(t)
	fault, err := c.lab.Host("alpha/gw").Drop(Everything(netip.Addr{}, c.lab.Host("pub/broker").Addr()))
	if err != nil {
		t.Fatal(err)
	}
	u, err := c.lab.Host("alpha/n1").Dial(context.Background(), "udp", c.lab.Host("pub/broker").Addr().String()+":9")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	u.Write([]byte{1})
	met(t, fault)
	if err := fault.Lift(); err != nil {
		t.Fatal(err)
	}
	c.passes()
}

// Both kernels accept the reset.
func TestReset(t *testing.T) {
	c := newCall(t)
	c.passes()
	fault, err := c.lab.Host("alpha/gw").Reset(c.flow())
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []net.Conn{c.near, c.far} {
		if _, err := end.Write([]byte{1}); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		end.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := end.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%v: %v in place of a reset", end.LocalAddr(), err)
		}
	}
	if err := fault.Lift(); err != nil {
		t.Fatal(err)
	}
}

// tracked counts the connections to callPort that the host tracks.
func tracked(t *testing.T, h *Host) (n int) {
	t.Helper()
	err := h.Do(func() error {
		nl, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer nl.Close()
		flows, err := nl.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		for _, f := range flows {
			if f.Forward.DstPort == 7000 {
				n++
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestForgetFlows(t *testing.T) {
	c := newCall(t)
	c.passes()
	gw := c.lab.Host("alpha/gw")
	if n := tracked(t, gw); n != 1 {
		t.Fatalf("%d connections are tracked, want 1", n)
	}
	if err := gw.ForgetFlows(); err != nil {
		t.Fatal(err)
	}
	if n := tracked(t, gw); n != 0 {
		t.Errorf("%d connections are still tracked", n)
	}
}

// A host with a new address reaches others as before; its old connections are silent.
func TestRenumber(t *testing.T) {
	c := newCall(t)
	c.passes()
	n1, gw := c.lab.Host("alpha/n1"), c.lab.Host("alpha/gw")
	for _, change := range []struct {
		host *Host
		addr netip.Addr
	}{{n1, n1.Addr()}, {gw, gw.WANAddr()}} {
		to := change.addr.As4()
		to[3] += 100
		if err := change.host.Renumber(change.addr, netip.AddrFrom4(to)); err != nil {
			t.Fatal(err)
		}
		if err := change.host.Renumber(change.addr, netip.AddrFrom4(to)); err == nil {
			t.Error("an address that is not there was replaced")
		}
	}
	ln, err := c.lab.Host("pub/broker").Listen("tcp", ":7001")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	again, err := n1.Dial(ctx, "tcp", c.lab.Host("pub/broker").Addr().String()+":7001")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	want := n1.Addr().As4()
	want[3] += 100
	if got := again.LocalAddr().(*net.TCPAddr).AddrPort().Addr(); got != netip.AddrFrom4(want) {
		t.Errorf("the new connection is from %v, want %v", got, netip.AddrFrom4(want))
	}
	c.far.Write([]byte{1})
	c.near.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := c.near.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("the connection of the old address goes on")
	}
}

// TestPolice: some packets of a policed connection arrive and some are dropped, and all data
// arrives after the fault is lifted.
func TestPolice(t *testing.T) {
	c := newCall(t)
	fault, err := c.lab.Host("alpha/gw").Police(Everything(c.lab.Host("alpha/n1").Addr(), netip.Addr{}), 20_000)
	if err != nil {
		t.Fatal(err)
	}
	const n = 1 << 20
	written := make(chan error, 1)
	go func() {
		_, err := c.near.Write(make([]byte, n))
		written <- err
	}()
	c.far.SetReadDeadline(time.Now().Add(time.Minute)) // a bound, never reached
	if _, err := io.ReadFull(c.far, make([]byte, 2000)); err != nil {
		t.Fatalf("nothing passes: %v", err)
	}
	for end := time.Now().Add(time.Minute); ; {
		met, err := fault.Met()
		if err != nil {
			t.Fatal(err)
		}
		if met > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nothing was dropped")
		}
	}
	if err := fault.Lift(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c.far, make([]byte, n-2000)); err != nil {
		t.Error(err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}
