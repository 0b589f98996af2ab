package reflector

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
	"github.com/isthmus-grid/isthmus/internal/nat/stunserver"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// newPoint serves a whole reflector on loopback until the test ends.
func newPoint(t *testing.T, places int) (p Point, at netip.AddrPort) {
	t.Helper()
	s, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	var half *accept.HalfOpen
	if places > 0 {
		half = accept.NewHalfOpen(accept.Bounds{Total: places}, nil)
	}
	o := NewObserver("broker main", half, 0, nil)
	run(t, func(ctx context.Context) { s.Serve(ctx, new(stunserver.Server), o) })
	return Point{o, s}, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.Port())
}

func later(to net.Addr, udp bool, after time.Duration) Target {
	return Target{To: addrPort(to), UDP: udp, Nonce: [NonceLen]byte([]byte("0123456789abcdef")), After: after}
}

// A connection that asked gets its nonce when it is due and not before, and is closed after that.
func TestDelayedTCP(t *testing.T) {
	p, at := newPoint(t, 0)
	c := dial(t, at.String())
	wantObserved(t, c)
	const after = 200 * time.Millisecond
	begin := time.Now()
	if r := p.CallBack(t.Context(), later(c.LocalAddr(), false, after)); r.Outcome != controlpb.CallBackResponse_PROMISED {
		t.Fatalf("%v", r)
	}
	if r := p.CallBack(t.Context(), later(c.LocalAddr(), false, after)); r.Outcome != controlpb.CallBackResponse_UNKNOWN {
		t.Errorf("delayed twice: %v", r)
	}
	if b, err := io.ReadAll(c); string(b) != "0123456789abcdef" || err != nil || time.Since(begin) < after {
		t.Errorf("%q, %v after %v", b, err, time.Since(begin))
	}
	c.Close()
	wait(t, "the connection is let go", func() bool {
		p.Observer.mu.Lock()
		defer p.Observer.mu.Unlock()
		return len(p.Observer.held) == 0 && p.Observer.owed == 0
	})
	if r := p.CallBack(t.Context(), later(c.LocalAddr(), false, after)); r.Outcome != controlpb.CallBackResponse_UNKNOWN ||
		r.Text != "unreachable: no connection from "+c.LocalAddr().String()+" is held here" {
		t.Errorf("to nobody: %v", r)
	}
}

// memory is a listener whose connections are pipes, for tests of time.
type memory struct {
	conns chan net.Conn
	ctx   context.Context // its end
	end   context.CancelFunc
}

func newMemory() *memory {
	m := &memory{conns: make(chan net.Conn)}
	m.ctx, m.end = context.WithCancel(context.Background())
	return m
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error   { m.end(); return nil }
func (m *memory) Addr() net.Addr { return &net.TCPAddr{} }

// asker is the address that memory's connections come from.
var asker = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 77}

func (m *memory) dial() net.Conn {
	near, far := net.Pipe()
	m.conns <- fromAsker{far}
	return near
}

type fromAsker struct{ net.Conn }

func (fromAsker) RemoteAddr() net.Addr { return asker }

// A connection may be behind a Front, and its delay may be longer than it would otherwise be
// held.
func TestDelayedThroughFront(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hold, after = 30 * time.Second, 5 * time.Minute
		o := NewObserver("broker main", nil, hold, nil)
		ln := newMemory()
		f := NewFront(ln, o, accept.NewHalfOpen(accept.Bounds{}, nil), slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go f.Serve(ctx)
		begin := time.Now()
		c := ln.dial()
		ask(t, c)
		if r := (Point{Observer: o}).CallBack(t.Context(), later(asker, false, after)); r.Outcome != controlpb.CallBackResponse_PROMISED {
			t.Fatalf("%v", r)
		}
		b := make([]byte, NonceLen)
		if _, err := io.ReadFull(c, b); string(b) != "0123456789abcdef" || err != nil || time.Since(begin) != after {
			t.Errorf("%q, %v, after %v", b, err, time.Since(begin))
		}
		c.Close()

		c, begin = ln.dial(), time.Now() // without a delayed answer
		ask(t, c)
		if b, err := io.ReadAll(c); len(b) > 0 || err != nil || time.Since(begin) != hold {
			t.Errorf("held for %v, then %q, %v", time.Since(begin), b, err)
		}
	})
}

// A delayed answer ends with its reflector, and is not sent early.
func TestDelayEndsWithReflector(t *testing.T) {
	s, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	o := NewObserver("broker main", nil, 0, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, new(stunserver.Server), o) }()
	c := dial(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.Port()).String())
	wantObserved(t, c)
	for _, udp := range []bool{false, true} {
		if r := (Point{o, s}).CallBack(ctx, later(c.LocalAddr(), udp, time.Hour)); r.Outcome != controlpb.CallBackResponse_PROMISED {
			t.Errorf("%v", r)
		}
	}
	cancel()
	if b, _ := io.ReadAll(c); len(b) > 0 {
		t.Errorf("got %q", b)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it does not end")
	}
}

// The datagram comes from the port that was asked.
func TestDelayedUDP(t *testing.T) {
	p, at := newPoint(t, 0)
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(at)) // receives only datagrams of that port
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	const after = 150 * time.Millisecond
	begin := time.Now()
	if r := p.CallBack(t.Context(), later(c.LocalAddr(), true, after)); r.Outcome != controlpb.CallBackResponse_PROMISED {
		t.Fatalf("%v", r)
	}
	b := make([]byte, 100)
	for range udpCopies {
		n, err := c.Read(b)
		if string(b[:n]) != "0123456789abcdef" || err != nil || time.Since(begin) < after {
			t.Errorf("%q, %v after %v", b[:n], err, time.Since(begin))
		}
	}
	c.SetReadDeadline(time.Now().Add(udpSilence))
	if n, err := c.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a copy too many: %q, %v", b[:n], err)
	}
	if r := (Point{Observer: p.Observer}).CallBack(t.Context(), later(c.LocalAddr(), true, after)); r.Outcome != controlpb.CallBackResponse_UNKNOWN {
		t.Errorf("without a STUN port: %v", r)
	}
}

func TestSchedule(t *testing.T) {
	s := newSchedule()
	zero := time.Unix(0, 0)
	to := func(port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)
	}
	for port, after := range []time.Duration{3 * time.Second, time.Second, 2 * time.Second} {
		if err := s.add(due{to: to(uint16(port)), at: zero.Add(after), copies: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if send, next := s.take(zero); len(send) != 0 || !next.Equal(zero.Add(time.Second)) {
		t.Errorf("early: %v, then %v", send, next)
	}
	if send, next := s.take(zero.Add(2 * time.Second)); len(send) != 2 || send[0].to != to(1) || send[1].to != to(2) || !next.Equal(zero.Add(3*time.Second)) {
		t.Errorf("in time: %v, then %v", send, next)
	}
	if send, next := s.take(zero.Add(time.Hour)); len(send) != 1 || !next.IsZero() || len(s.all) != 0 {
		t.Errorf("late: %v, then %v, left %v", send, next, s.all)
	}
	s.add(due{to: to(9), at: zero, copies: 3})
	now, sent := zero, 0
	for range 3 {
		send, next := s.take(now)
		sent, now = sent+len(send), next
	}
	if sent != 3 || !now.IsZero() {
		t.Errorf("%d copies, then %v", sent, now)
	}
	for range maxDue {
		s.add(due{to: to(1), at: zero, copies: 1})
	}
	if err := s.add(due{to: to(1), at: zero, copies: 1}); err == nil {
		t.Error("there is no bound")
	}
}

func TestParseLateTarget(t *testing.T) {
	req := request("192.0.2.1:5", true)
	req.AfterS = 290
	if target, err := ParseTarget(req, false); err != nil || target.After != 290*time.Second {
		t.Errorf("%+v, %v", target, err)
	}
	req.AfterS = 1 << 31
	if _, err := ParseTarget(req, false); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("for ever: %v", err)
	}
}

// wait polls until cond holds.
func wait(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for: %s", patience, what)
		}
	}
}

// silentConn records whether its keep-alive was turned off.
type silentConn struct {
	net.Conn
	off bool
}

func (c *silentConn) SetKeepAlive(on bool) error  { c.off = !on; return nil }
func (c *silentConn) SetDeadline(time.Time) error { return nil }

// A host that waits for a delayed answer receives nothing before: a keep-alive would also keep the
// NAT's state alive. The number of waiting connections is bounded.
func TestDelayKeepsQuiet(t *testing.T) {
	o := NewObserver("broker main", nil, 0, nil)
	at := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(1000+i))
	}
	for i := range maxOwed {
		c := new(silentConn)
		o.enter(at(i), carrier.Unread(c, nil))
		if err := o.delay(Target{To: at(i), After: time.Hour}); err != nil || !c.off {
			t.Fatalf("%v, %+v", err, c)
		}
	}
	q := o.enter(at(maxOwed), new(silentConn))
	if err := o.delay(Target{To: at(maxOwed), After: time.Hour}); !errors.Is(err, overlay.ErrOverloaded) {
		t.Errorf("over the limit: %v", err)
	}
	o.leave(at(0), o.held[at(0)])
	if err := o.delay(Target{To: at(maxOwed), After: time.Hour}); err != nil || q.at.IsZero() {
		t.Errorf("with room again: %v", err)
	}
}
