package reflector

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
	"github.com/isthmus-grid/isthmus/internal/nat/stunserver"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// patience bounds every wait of the tests. It only determines how long a broken test takes.
const patience = time.Minute

// run runs serve until the test ends and waits for its return.
func run(t *testing.T, serve func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("it does not end")
		}
	})
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// ask sends an observe frame and returns the answer.
func ask(t *testing.T, c net.Conn) wire.Frame {
	t.Helper()
	if _, err := c.Write(wire.Append(nil, &wire.Observe{})); err != nil {
		t.Fatal(err)
	}
	f, err := wire.Read(c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func wantObserved(t *testing.T, c net.Conn) {
	t.Helper()
	o, ok := ask(t, c).(*wire.Observed)
	if !ok || o.From.String() != c.LocalAddr().String() || time.Since(o.Time).Abs() > time.Hour {
		t.Errorf("observed %+v, the connection comes from %v", o, c.LocalAddr())
	}
}

func TestObserver(t *testing.T) {
	seen := NewSeen(10, time.Minute)
	o := NewObserver("broker main", accept.NewHalfOpen(accept.Bounds{Total: 1}, nil), 0, func(a netip.AddrPort) { seen.Note(a.Addr(), time.Now()) })
	ln := testkit.Listen(t)
	run(t, func(ctx context.Context) {
		if err := o.Serve(ctx, ln); err != nil {
			t.Error(err)
		}
	})
	c := dial(t, ln.Addr().String())
	wantObserved(t, c)
	wantObserved(t, c) // a connection may ask again
	if !seen.Has(netip.MustParseAddr("127.0.0.1"), time.Now()) {
		t.Error("the address was not noted")
	}

	second := dial(t, ln.Addr().String()) // there is one place, and it is held
	if _, err := second.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("over the bound: %v", err)
	}
	c.Close()
	for end := time.Now().Add(patience); o.Stats().Held > 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("the place is not given back")
		}
	}

	third := dial(t, ln.Addr().String())
	third.Write(wire.Append(nil, &wire.Proof{}))
	f, err := wire.Read(third)
	if r, ok := f.(*wire.Refuse); err != nil || !ok || r.Code != wire.CodeMalformed || r.By != "broker main" ||
		r.Text != "unexpected frame: a proof in place of an observe frame" {
		t.Errorf("%+v, %v", f, err)
	}
	if s := o.Stats(); s.Answered != 2 || s.Refused != 1 || s.Overloaded != 1 {
		t.Errorf("stats %+v", s)
	}
}

// Frames and everything else share a port; no byte of the others is lost.
func TestFront(t *testing.T) {
	f := NewFront(testkit.Listen(t), NewObserver("broker main", nil, 0, nil), accept.NewHalfOpen(accept.Bounds{}, nil), slog.New(slog.DiscardHandler))
	run(t, f.Serve)
	wantObserved(t, dial(t, f.Addr().String()))
	dial(t, f.Addr().String()) // sends nothing, and blocks no other connection

	c := dial(t, f.Addr().String())
	io.WriteString(c, "\x16hello")
	got, err := f.Accept()
	if err != nil {
		t.Fatal(err)
	}
	text := make([]byte, 6)
	if _, err := io.ReadFull(got, text); err != nil || string(text) != "\x16hello" || got.RemoteAddr().String() != c.LocalAddr().String() {
		t.Errorf("accepted %q from %v, %v", text, got.RemoteAddr(), err)
	}
	got.Close()
	f.Close()
	if _, err := f.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestSockets(t *testing.T) {
	s, err := Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.Port())); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("twice: %v", err)
	}
	stun := new(stunserver.Server)
	run(t, func(ctx context.Context) {
		if err := s.Serve(ctx, stun, NewObserver("proxy p1", nil, 0, nil)); err != nil {
			t.Error(err)
		}
	})
	at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), s.Port()).String()
	wantObserved(t, dial(t, at))
	c, err := net.Dial("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	request := append([]byte{0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42}, "transaction!"...)
	c.Write(request)
	reply := make([]byte, 100)
	if n, err := c.Read(reply); err != nil || n < 20 || !bytes.Equal(reply[8:20], request[8:]) || stun.Stats().Answered != 1 {
		t.Errorf("STUN: %x, %v", reply[:n], err)
	}
}

func request(to string, udp bool) *controlpb.CallBackRequest {
	return &controlpb.CallBackRequest{To: to, Udp: udp, Nonce: []byte("0123456789abcdef")}
}

func call(t *testing.T, to string, udp bool) *controlpb.CallBackResponse {
	t.Helper()
	target, err := ParseTarget(request(to, udp), true)
	if err != nil {
		t.Fatal(err)
	}
	return CallBack(t.Context(), target, netip.Addr{})
}

func TestCallBack(t *testing.T) {
	ln := testkit.Listen(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer ln.Close()
	wg.Go(func() {
		c, err := ln.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		if b, err := io.ReadAll(c); string(b) != "0123456789abcdef" || err != nil {
			t.Errorf("read %q, %v", b, err)
		}
	})
	if r := call(t, ln.Addr().String(), false); r.Outcome != controlpb.CallBackResponse_CONNECTED {
		t.Errorf("to a listener: %v", r)
	}
	closed := testkit.Listen(t)
	closed.Close()
	for _, udp := range []bool{false, true} {
		if r := call(t, closed.Addr().String(), udp); r.Outcome != controlpb.CallBackResponse_RESET || !strings.HasSuffix(r.Text, "was refused: "+map[bool]string{false: "connect", true: "read"}[udp]+": connection refused") {
			t.Errorf("to nobody: %v", r)
		}
	}
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	if r := call(t, pc.LocalAddr().String(), true); r.Outcome != controlpb.CallBackResponse_SILENT {
		t.Errorf("to a socket: %v", r)
	}
	b := make([]byte, 100)
	pc.SetDeadline(time.Now().Add(patience))
	if n, _, err := pc.ReadFrom(b); err != nil || string(b[:n]) != "0123456789abcdef" {
		t.Errorf("the datagram was %q, %v", b[:n], err)
	}
}

func TestCallBackEndsWithItsContext(t *testing.T) {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	target, err := ParseTarget(request(pc.LocalAddr().String(), true), true)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := CallBack(ctx, target, netip.Addr{}); r.Outcome == controlpb.CallBackResponse_CONNECTED {
		t.Errorf("%v", r)
	}
}

func TestParseTarget(t *testing.T) {
	short := request("192.0.2.1:5", false)
	short.Nonce = short.Nonce[:3]
	for _, tc := range []struct {
		req   *controlpb.CallBackRequest
		class error
		text  string
	}{
		{request("192.0.2.1:5", true), nil, ""},
		{request("name:5", false), wire.ErrMalformed, `malformed frame: call back "name:5"`},
		{&controlpb.CallBackRequest{To: "192.0.2.1:5", Nonce: make([]byte, NonceLen), Quiet: true}, nil, ""},
		{&controlpb.CallBackRequest{To: "192.0.2.1:5", Nonce: make([]byte, NonceLen), Quiet: true, Udp: true}, wire.ErrMalformed, "malformed frame: a quiet port is one of TCP"},
		{&controlpb.CallBackRequest{To: "192.0.2.1:5", Nonce: make([]byte, NonceLen), FromPort: 70000}, wire.ErrMalformed, "malformed frame: a quiet port is one of TCP"},
		{short, wire.ErrMalformed, "malformed frame: a nonce of 3 bytes, want 16"},
		{request("192.0.2.1:0", false), overlay.ErrForbidden, "not permitted: call back 192.0.2.1:0: it has no port"},
		{request("127.0.0.1:22", false), overlay.ErrForbidden, "not permitted: call back 127.0.0.1:22: it is a loopback address of the host that calls back"},
		{request("[::ffff:127.0.0.1]:22", false), overlay.ErrForbidden, "not permitted: call back 127.0.0.1:22: it is a loopback address"},
		{request("169.254.169.254:80", false), overlay.ErrForbidden, "not permitted: call back 169.254.169.254:80: it is link-local"},
		{request("[fe80::1%eth0]:80", false), overlay.ErrForbidden, "not permitted: call back [fe80::1]:80: it is link-local"},
		{request("224.0.0.1:80", true), overlay.ErrForbidden, "not permitted: call back 224.0.0.1:80: it is not one host's address"},
		{request("0.0.0.0:80", true), overlay.ErrForbidden, "not permitted: call back 0.0.0.0:80: it is not one host's address"},
	} {
		_, err := ParseTarget(tc.req, false)
		if tc.class == nil && err != nil || tc.class != nil && (!errors.Is(err, tc.class) || !strings.HasPrefix(err.Error(), tc.text)) {
			t.Errorf("%v: %v, want %q", tc.req, err, tc.text)
		}
	}
}

func TestSeen(t *testing.T) {
	s := NewSeen(2, time.Minute)
	a, b, c := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")
	zero := time.Unix(0, 0)
	if !s.Note(a, zero) || !s.Note(b, zero.Add(30*time.Second)) || s.Note(c, zero.Add(59*time.Second)) {
		t.Error("the bound does not hold")
	}
	if !s.Has(a, zero.Add(59*time.Second)) || s.Has(a, zero.Add(time.Minute)) || s.Has(c, zero) {
		t.Error("remembered too long or too little")
	}
	if !s.Note(b, zero.Add(time.Minute)) || !s.Note(c, zero.Add(time.Minute)) || s.Has(a, zero) {
		t.Error("what is over was not dropped")
	}
}

func TestRates(t *testing.T) {
	r := NewRates[string](3, time.Second)
	now := time.Unix(0, 0)
	for i := range 3 {
		if wait := r.Take("a", now); wait != 0 {
			t.Errorf("take %d: wait %v", i, wait)
		}
	}
	if wait := r.Take("a", now); wait != time.Second {
		t.Errorf("over the burst: wait %v", wait)
	}
	if wait := r.Take("b", now); wait != 0 {
		t.Errorf("another key: wait %v", wait)
	}
	if wait := r.Take("a", now.Add(900*time.Millisecond)); wait != 100*time.Millisecond {
		t.Errorf("soon: wait %v", wait)
	}
	if wait := r.Take("a", now.Add(time.Second)); wait != 0 {
		t.Errorf("then: wait %v", wait)
	}
	if wait := r.Take("a", now.Add(time.Second)); wait == 0 {
		t.Error("one a second became two")
	}
	for i := range 3 { // after a long pause the burst is available again, and no more
		if wait := r.Take("a", now.Add(time.Hour)); wait != 0 {
			t.Errorf("rested, take %d: wait %v", i, wait)
		}
	}
	if r.Take("a", now.Add(time.Hour)) == 0 {
		t.Error("rest was saved up beyond the burst")
	}
}
