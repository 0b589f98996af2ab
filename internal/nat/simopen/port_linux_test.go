package simopen

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/nat/simopen/gridtest"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// patient makes an Open last until it works, however slow the machine.
var patient = Options{Bound: time.Hour, Retries: 1e6}

func prepared(t *testing.T, ports overlay.Ports) *Port {
	t.Helper()
	p, err := Prepare(t.Context(), loopback, ports)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// Sharing a port among its own sockets must not make a Port share it with another, which would take
// its connections.
func TestPortsAreNotShared(t *testing.T) {
	var two overlay.Ports
	var a, b *Port
	for two.First = 20100; ; two.First += 2 { // to the first two ports that are free here
		two.Last = two.First + 1
		a, _ = Prepare(t.Context(), loopback, two)
		b, _ = Prepare(t.Context(), loopback, two)
		for _, p := range []*Port{a, b} {
			if p != nil {
				t.Cleanup(func() { p.Close() })
			}
		}
		if a != nil && b != nil {
			break
		}
	}
	if a.Local() == b.Local() {
		t.Fatalf("both have %v", a.Local())
	}
	if c, err := Prepare(t.Context(), loopback, two); !errors.Is(err, overlay.ErrPortRangeFull) {
		t.Fatalf("%v, %v", c, err)
	}
	a.Close()
	if c := prepared(t, two); c.Local() != a.Local() {
		t.Errorf("%v was not given again", a.Local())
	}
}

func TestPrepareNeedsAnAddress(t *testing.T) {
	for _, addr := range []netip.Addr{{}, netip.IPv4Unspecified(), netip.MustParseAddr("192.0.2.1")} {
		if p, err := Prepare(t.Context(), addr, overlay.Ports{}); err == nil {
			p.Close()
			t.Errorf("%v was accepted", addr)
		}
	}
}

// With nothing in between, over both IP versions: whichever socket wins, there is one connection.
func TestOpenOnOneHost(t *testing.T) {
	addrs := []netip.Addr{loopback}
	if ln, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		ln.Close()
		addrs = append(addrs, netip.IPv6Loopback())
	} else {
		t.Logf("not over IPv6: %v", err)
	}
	for _, addr := range addrs {
		for range 20 {
			a, err := Prepare(t.Context(), addr, overlay.Ports{})
			if err != nil {
				t.Fatal(err)
			}
			b, err := Prepare(t.Context(), addr, overlay.Ports{})
			if err != nil {
				t.Fatal(err)
			}
			at := time.Now().Add(2 * ms)
			var conns [2]*net.TCPConn
			var errs [2]error
			var both sync.WaitGroup
			both.Go(func() { conns[0], errs[0] = a.Open(t.Context(), b.Local(), at, patient) })
			both.Go(func() { conns[1], errs[1] = b.Open(t.Context(), a.Local(), at, patient) })
			both.Wait()
			err = errors.Join(errs[:]...)
			if err == nil {
				err = gridtest.Exchange(conns[0], conns[1])
			}
			if err != nil {
				t.Error(err)
			}
			for _, c := range conns {
				if c != nil {
					c.Close()
				}
			}
			a.Close()
			b.Close()
		}
	}
}

// Connections of other hosts to the port are reset, and the expected one is found among them.
func TestStrangersAreReset(t *testing.T) {
	p, friend := prepared(t, overlay.Ports{}), prepared(t, overlay.Ports{})
	stranger, err := net.Dial("tcp", p.Local().String())
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	go func() {
		if c, err := friend.Dial(t.Context(), p.Local()); err == nil {
			defer c.Close()
		}
	}()
	c, err := p.Open(t.Context(), friend.Local(), time.Now().Add(time.Second), patient)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.RemoteAddr().String(); got != friend.Local().String() {
		t.Errorf("connected with %s", got)
	}
	stranger.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := stranger.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the stranger read: %v", err)
	}
}

func TestOpenEndsWithItsContextAndItsPort(t *testing.T) {
	p, nobody := prepared(t, overlay.Ports{}), netip.MustParseAddrPort("127.0.0.1:1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Open(ctx, nobody, time.Now().Add(time.Hour), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	time.AfterFunc(10*ms, func() { p.Close() })
	if _, err := p.Open(t.Context(), nobody, time.Now().Add(time.Hour), Options{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := p.Open(t.Context(), nobody, time.Now(), Options{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed before: %v", err)
	}
}

// fakeReflector answers one connection with answer.
func fakeReflector(t *testing.T, answer func(net.Conn)) netip.AddrPort {
	t.Helper()
	ln := testkit.Listen(t)
	go func() {
		if c, err := ln.Accept(); err == nil {
			defer c.Close()
			answer(c)
		}
	}()
	return netip.MustParseAddrPort(ln.Addr().String())
}

func TestObserve(t *testing.T) {
	p := prepared(t, overlay.Ports{})
	before := time.Now()
	good := fakeReflector(t, func(c net.Conn) {
		if err := Answer(t.Context(), c); err != nil {
			t.Error(err)
		}
		c.Read(make([]byte, 1))
	})
	refusing := fakeReflector(t, func(c net.Conn) {
		wire.Read(c)
		c.Write(wire.Append(nil, &wire.Refuse{Code: wire.CodeForbidden, By: "proxy p1", Text: "who are you?"}))
	})
	m, err := p.Observe(t.Context(), []netip.AddrPort{refusing, good})
	if err != nil || m.Outside != p.Local() || !m.Independent || m.Seen[0].IsValid() || m.Seen[1] != p.Local() {
		t.Errorf("%+v, %v", m, err)
	}
	if m.Failed == nil || !strings.Contains(m.Failed.Error(), "proxy p1: who are you?") {
		t.Errorf("failed: %v", m.Failed)
	}
	if s := m.Samples[1]; s.Sent.Before(before) || s.Received.Before(s.Sent) || s.Server.Before(before.Add(-ms)) {
		t.Errorf("sample %+v", s)
	}
}

func TestObserveFails(t *testing.T) {
	p := prepared(t, overlay.Ports{})
	none := netip.MustParseAddrPort("127.0.0.1:1")
	closing := fakeReflector(t, func(net.Conn) {})
	babbling := fakeReflector(t, func(c net.Conn) { c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); c.Read(make([]byte, 64)) })
	wrong := fakeReflector(t, func(c net.Conn) { c.Write(wire.Append(nil, &wire.Observe{})); c.Read(make([]byte, 64)) })
	for v, class := range map[netip.AddrPort]error{none: overlay.ErrRefused, babbling: wire.ErrMagic, wrong: wire.ErrType} {
		if _, err := p.Observe(t.Context(), []netip.AddrPort{v}); !errors.Is(err, class) {
			t.Errorf("%v: %v, want %v", v, err, class)
		}
	}
	if _, err := p.Observe(t.Context(), []netip.AddrPort{closing}); err == nil {
		t.Error("a reflector that closes was taken")
	}
	if _, err := p.Observe(t.Context(), nil); err == nil {
		t.Error("no reflector was enough")
	}
	silent := fakeReflector(t, func(c net.Conn) { c.Read(make([]byte, 64)); <-t.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
	defer cancel()
	if _, err := p.Observe(ctx, []netip.AddrPort{silent}); !errors.Is(err, overlay.ErrTimeout) {
		t.Errorf("silence: %v", err)
	}
	good := func() netip.AddrPort {
		return fakeReflector(t, func(c net.Conn) { Answer(t.Context(), c); c.Read(make([]byte, 1)) })
	}
	m, err := p.Observe(t.Context(), []netip.AddrPort{silent, good()})
	if err != nil || m.Outside != p.Local() || !errors.Is(m.Failed, overlay.ErrTimeout) || !strings.Contains(m.Failed.Error(), "another has answered") {
		t.Errorf("silence beside an answer: %+v, %v", m, err)
	}
	p.Close()
	if _, err := p.Observe(t.Context(), []netip.AddrPort{good()}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestAnswerRefusesOtherFrames(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	go a.Write(wire.Append(nil, &wire.Refuse{By: "x"}))
	if err := Answer(t.Context(), b); !errors.Is(err, wire.ErrType) {
		t.Error(err)
	}
	b.Close()
	if err := Answer(t.Context(), b); err == nil {
		t.Error("a closed connection was answered")
	}
}

// Two connected ports cannot be connected once more; the error must not make users suspect
// firewalls.
func TestPortsThatAreConnected(t *testing.T) {
	a, b := prepared(t, overlay.Ports{}), prepared(t, overlay.Ports{})
	c, err := a.Dial(t.Context(), b.Local())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = a.Open(t.Context(), b.Local(), time.Now(), Options{Retries: 1, Bound: time.Hour})
	if !errors.Is(err, overlay.ErrOverloaded) || !strings.Contains(err.Error(), "between these two ports") {
		t.Error(err)
	}
}

// However an Open ends, its sockets and goroutines end with it, except the connection and the Port.
func TestNothingIsLeft(t *testing.T) {
	descriptors := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	a, b := prepared(t, overlay.Ports{}), prepared(t, overlay.Ports{})
	once := func() {
		refused := netip.MustParseAddrPort("127.0.0.1:1")
		if _, err := a.Open(t.Context(), refused, time.Now(), Options{Retries: 1, Step: ms, Jitter: ms, Bound: time.Hour}); !errors.Is(err, overlay.ErrRefused) {
			t.Fatal(err)
		}
		if _, err := a.Open(t.Context(), netip.AddrPortFrom(loopback, 0), time.Now(), Options{Bound: ms}); !errors.Is(err, overlay.ErrTimeout) {
			t.Fatal(err)
		}
		c, err := a.Dial(t.Context(), b.Local())
		if err != nil {
			t.Fatal(err)
		}
		peer, err := b.Accept(t.Context(), a.Local())
		if err != nil {
			t.Fatal(err)
		}
		peer.SetLinger(0)
		peer.Close()
		c.Close()
	}
	once() // what is initialised once
	files, routines := descriptors(), runtime.NumGoroutine()
	for range 30 {
		once()
	}
	if n := descriptors(); n > files {
		t.Errorf("%d descriptors became %d", files, n)
	}
	for deadline := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > routines; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines became %d", routines, runtime.NumGoroutine())
		}
	}
}
