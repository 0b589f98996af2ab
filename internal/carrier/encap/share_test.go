package encap

import (
	"context"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// sharingServer is a proxy that echoes; it knows shared connections unless it is old.
type sharingServer struct {
	addr     string
	old      bool
	stuck    atomic.Int32 // so many of the first of these get no answer
	accepted atomic.Int32 // connections whose first frame was no observe
}

func serveShared(t *testing.T, old bool) *sharingServer {
	t.Helper()
	ln, err := carrier.ListenIn(t.Context(), netip.MustParseAddr("127.0.0.1"), overlay.Ports{})
	if err != nil {
		t.Fatal(err)
	}
	s := &sharingServer{addr: ln.Addr().String(), old: old}
	ctx, cancel := context.WithCancel(context.Background())
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := ln.AcceptTCP()
			if err != nil {
				return
			}
			conns.Go(func() { s.one(ctx, c) })
		}
	})
	t.Cleanup(func() { cancel(); ln.Close(); conns.Wait() })
	return s
}

func (s *sharingServer) one(ctx context.Context, c *net.TCPConn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	f, err := wire.Read(c)
	if err != nil {
		return
	}
	if f.Type() == wire.TypeObserve {
		c.Write(wire.Append(nil, &wire.Observed{From: netip.MustParseAddrPort("192.0.2.1:1"), Time: time.Now()}))
		return
	}
	number := s.accepted.Add(1)
	if f.Type() != wire.TypeShare {
		echo(c)
		return
	}
	if s.old {
		c.Write(wire.Append(nil, &wire.Refuse{Code: wire.CodeMalformed, By: "proxy", Text: "unknown frame"}))
		return
	}
	mux, err := AcceptShared(&stuckConn{c, func() bool { return number <= s.stuck.Load() }})
	if err != nil {
		return
	}
	defer mux.Close()
	var streams sync.WaitGroup
	defer streams.Wait()
	for {
		st, err := mux.AcceptStream()
		if err != nil {
			return
		}
		streams.Go(func() {
			in := SharedStream(st)
			if _, err := wire.Read(in); err == nil {
				echo(in)
			}
			in.Close()
		})
	}
}

// stuckConn is a connection on which nothing leaves while stuck.
type stuckConn struct {
	*net.TCPConn
	stuck func() bool
}

func (c *stuckConn) Write(b []byte) (int, error) {
	if c.stuck() {
		return len(b), nil
	}
	return c.TCPConn.Write(b)
}

func echo(c carrier.Stream) {
	io.Copy(c, c)
	c.CloseWrite()
}

// fullNAT dials, and gets no answer beyond a number of connections.
type fullNAT struct {
	held  chan struct{} // answers wait until it is closed, if it is not nil
	room  atomic.Int32
	dials atomic.Int32
}

func (n *fullNAT) dial(ctx context.Context, addr string) (*net.TCPConn, error) {
	n.dials.Add(1)
	if n.room.Add(-1) < 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if n.held != nil {
		<-n.held
	}
	return carrier.DialTCP(ctx, addr, carrier.HTTPProxy{})
}

// natDialer returns a Dialer that knows the proxy's form, and its route.
func natDialer(t *testing.T, s *sharingServer, room int32) (*Dialer, *fullNAT, Route) {
	d, nat := NewDialer(nil), new(fullNAT)
	d.unansweredAfter = time.Millisecond
	t.Cleanup(d.Close)
	nat.room.Store(room)
	return d, nat, Route{NAT: true, Dial: nat.dial}
}

// Where a NAT has room for few sessions all relays connect, over one connection, and after some
// unanswered dials there are no more.
func TestRelaysShareWhereNATIsFull(t *testing.T) {
	s := serveShared(t, false)
	d, nat, route := natDialer(t, s, 20)
	told, calls := 0, 0
	d.NATFull = func(connections int) { told, calls = connections, calls+1 }
	d.unansweredAfter = time.Hour // there is room
	var open sync.WaitGroup
	connect := func() Form {
		c, form, err := d.Dial(t.Context(), s.addr, route)
		if err != nil {
			t.Fatal(err)
		}
		open.Go(func() { talkFor(t, c, 10_000) })
		return form
	}
	forms := map[Form]int{}
	for range 20 {
		forms[connect()]++
	}
	if forms[Shared] != 1 || nat.dials.Load() != 20 {
		t.Errorf("%v of 20 with %d dials: want one shared connection, made in time", forms, nat.dials.Load())
	}
	d.unansweredAfter = time.Millisecond
	for i := range 100 {
		if form := connect(); form != Shared {
			t.Errorf("relay %d beyond the NAT's room is %v", i, form)
		}
	}
	if n := nat.dials.Load(); n != 20+fullAfter {
		t.Errorf("%d dials, want no more after %d without an answer", n, fullAfter)
	}
	if told != 19 || calls != 100-fullAfter+1 {
		t.Errorf("told %d times that the NAT is full, with %d connections", calls, told)
	}
	open.Wait()
	if n := s.accepted.Load(); n != 20 {
		t.Errorf("the proxy has accepted %d connections", n)
	}
}

// Relays that begin at the same time are all connected, and those beyond the NAT's room by one of the
// first connections.
func TestManyBeginAtOnce(t *testing.T) {
	s := serveShared(t, false)
	d, nat, route := natDialer(t, s, 20)
	nat.held = make(chan struct{})
	var all sync.WaitGroup
	var shared atomic.Int32
	for i := range 100 {
		all.Go(func() {
			c, form, err := d.Dial(t.Context(), s.addr, route)
			if err != nil {
				t.Errorf("relay %d: %v", i, err)
				return
			}
			if form == Shared {
				shared.Add(1)
			}
			talkFor(t, c, 10_000)
		})
		for nat.dials.Load() <= int32(i) {
			runtime.Gosched()
		}
	}
	close(nat.held)
	all.Wait()
	if n := shared.Load(); n != 81 {
		t.Errorf("%d of 100 share, want those without room and one more", n)
	}
}

// A proxy that does not know shared connections is asked once, and dialled as ever.
func TestOlderProxyIsDialled(t *testing.T) {
	s := serveShared(t, true)
	d, _, route := natDialer(t, s, 100)
	d.unansweredAfter = time.Hour
	for i := range 10 {
		c, form, err := d.Dial(t.Context(), s.addr, route)
		if err != nil || form != Plain {
			t.Fatalf("relay %d: %v, %v", i, form, err)
		}
		talkFor(t, c, 10_000)
	}
	if n := s.accepted.Load(); n != 11 {
		t.Errorf("the proxy has accepted %d connections, want one for the question", n)
	}
}

// A proxy that answers nobody is not a full NAT.
func TestDeadProxyIsNotFullNAT(t *testing.T) {
	s := serveShared(t, false)
	d, nat, route := natDialer(t, s, 100)
	d.unansweredAfter = time.Hour
	for range ownFirst + 1 {
		c, _, err := d.Dial(t.Context(), s.addr, route)
		if err != nil {
			t.Fatal(err)
		}
		talkFor(t, c, 10_000)
	}
	d.unansweredAfter = time.Millisecond
	sh := d.shares[place{addr: s.addr}]
	sh.mux.Close()
	nat.room.Store(0)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if c, form, err := d.Dial(ctx, s.addr, route); err == nil {
		t.Errorf("connected: %v %v", c, form)
	}
	if sh.flows.unanswered > 0 {
		t.Error("no answer to a dial counts, though the shared connection had none")
	}
}

// A shared connection that the NAT has forgotten is replaced before a relay relies on it.
func TestForgottenSharedConnectionIsReplaced(t *testing.T) {
	s := serveShared(t, false)
	d, _, route := natDialer(t, s, 100)
	d.unansweredAfter = time.Hour
	for range ownFirst + 1 {
		c, _, err := d.Dial(t.Context(), s.addr, route)
		if err != nil {
			t.Fatal(err)
		}
		talkFor(t, c, 10_000)
	}
	sh := d.shares[place{addr: s.addr}]
	before := sh.mux
	s.stuck.Store(s.accepted.Load())
	d.mu.Lock()
	sh.answered = time.Now().Add(-shareFresh)
	sh.flows.until = time.Now().Add(time.Hour)
	d.mu.Unlock()
	c, form, err := d.Dial(t.Context(), s.addr, route)
	if err != nil || form != Shared || sh.mux == before {
		t.Fatalf("%v, %v, the same connection %v", form, err, sh.mux == before)
	}
	talkFor(t, c, 10_000)
}
