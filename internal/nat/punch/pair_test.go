package punch

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/nat/stunserver"
)

// patience bounds what should not take long.
const patience = time.Minute

// stunOn runs a STUN server at the address of pc until the test ends.
func stunOn(t testing.TB, pc net.PacketConn) netip.AddrPort {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() {
		if err := new(stunserver.Server).Serve(ctx, pc); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		served.Wait()
		pc.Close()
	})
	return addrPort(pc.LocalAddr())
}

// loopbackSTUN runs a STUN server on the given loopback address.
func loopbackSTUN(t testing.TB, network, addr string) netip.AddrPort {
	t.Helper()
	pc, err := net.ListenPacket(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	return stunOn(t, pc)
}

// newAttempt is New on loopback; the attempt is closed with the test.
func newAttempt(t testing.TB, cfg Config) *Attempt {
	t.Helper()
	cfg.AllowLoopback = true
	if cfg.Timeout == 0 {
		cfg.Timeout = patience
	}
	if cfg.GatherTimeout == 0 {
		cfg.GatherTimeout = patience
	}
	if cfg.Socket == nil && !cfg.Local.IsValid() {
		cfg.Local = netip.MustParseAddrPort("127.0.0.1:0")
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func describe(t testing.TB, a *Attempt) []byte {
	t.Helper()
	d, err := a.Describe(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// connectBoth runs Connect at both ends with the descriptions they are given.
func connectBoth(ctx context.Context, a, b *Attempt, forA, forB []byte) (ca, cb *Conn, errA, errB error) {
	var both sync.WaitGroup
	both.Go(func() { ca, errA = a.Connect(ctx, forA) })
	both.Go(func() { cb, errB = b.Connect(ctx, forB) })
	both.Wait()
	return ca, cb, errA, errB
}

// connected returns the two ends of a stream over loopback, the controlling one
// first.
func connected(t testing.TB) (a, b *Conn) {
	t.Helper()
	return connectedTo(t, []netip.AddrPort{loopbackSTUN(t, "udp4", "127.0.0.1:0")})
}

// connectedTo is connected with given STUN servers.
func connectedTo(t testing.TB, stun []netip.AddrPort) (a, b *Conn) {
	t.Helper()
	return join(t, newAttempt(t, Config{STUN: stun, Controlling: true}), newAttempt(t, Config{STUN: stun}))
}

// join describes and connects the two.
func join(t testing.TB, a, b *Attempt) (*Conn, *Conn) {
	t.Helper()
	da, db := describe(t, a), describe(t, b)
	ca, cb, errA, errB := connectBoth(context.Background(), a, b, db, da)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ca.Abort)
	t.Cleanup(cb.Abort)
	return ca, cb
}

// exchange sends size bytes both ways at once, with half-closes, and compares.
func exchange(a, b net.Conn, size int) error {
	ends := [2]net.Conn{a, b}
	var sent, got [2][]byte
	errs := make([]error, 4)
	var all sync.WaitGroup
	for i, c := range ends {
		sent[i] = make([]byte, size)
		rand.Read(sent[i])
		all.Go(func() {
			c.SetDeadline(time.Now().Add(patience))
			_, err := c.Write(sent[i])
			errs[i] = errors.Join(err, c.(closeWriter).CloseWrite())
		})
		all.Go(func() { got[1-i], errs[2+i] = io.ReadAll(c) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range ends {
		if !bytes.Equal(sent[i], got[i]) {
			return errors.New("other bytes came out than went in")
		}
	}
	return nil
}

// closeBoth closes both ends at once, as two processes would.
func closeBoth(t testing.TB, a, b net.Conn) {
	t.Helper()
	var both sync.WaitGroup
	for _, c := range []net.Conn{a, b} {
		both.Go(func() {
			if err := c.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	both.Wait()
}

func TestConnect(t *testing.T) {
	a, b := connected(t)
	if !a.GSO() || !b.GSO() {
		t.Errorf("GSO is %v at one end and %v at the other", a.GSO(), b.GSO())
	}
	if a.RemoteAddr().String() != b.LocalAddr().String() || b.RemoteAddr().String() != a.LocalAddr().String() {
		t.Errorf("%v thinks of %v, %v of %v", a.LocalAddr(), a.RemoteAddr(), b.LocalAddr(), b.RemoteAddr())
	}
	for _, c := range []*Conn{a, b} {
		if s := c.Setup(); s.Checks <= 0 || s.Handshake <= 0 || s.Total < s.Checks+s.Handshake {
			t.Errorf("set-up took %+v", s)
		}
	}
	if err := exchange(a, b, 4<<20); err != nil {
		t.Fatal(err)
	}
	closeBoth(t, a, b)
}

// One wildcard socket serves both IP versions; it also works with IPv6 alone.
func TestConnectIPv6(t *testing.T) {
	pc, err := net.ListenPacket("udp6", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6 on its loopback interface: %v", err)
	}
	six, four := stunOn(t, pc), loopbackSTUN(t, "udp4", "127.0.0.1:0")
	wildcard := netip.MustParseAddrPort("[::]:0")
	for _, c := range []struct {
		name string
		stun []netip.AddrPort
		want int // candidates
	}{
		{"both", []netip.AddrPort{six, four}, 4},
		{"IPv6 alone", []netip.AddrPort{six}, 2},
		{"IPv4 on a wildcard socket", []netip.AddrPort{four}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAttempt(t, Config{Local: wildcard, STUN: c.stun, Controlling: true, LowTTL: lowTTLSupported})
			b := newAttempt(t, Config{Local: wildcard, STUN: c.stun, LowTTL: lowTTLSupported})
			ca, cb := join(t, a, b)
			if got := len(a.own.Candidates); got != c.want {
				t.Errorf("%d candidates, want %d: %v", got, c.want, a.own.Candidates)
			}
			if err := exchange(ca, cb, 100_000); err != nil {
				t.Fatal(err)
			}
			closeBoth(t, ca, cb)
		})
	}
}

// What was written before Close arrives, even if the writer is gone by then.
func TestCloseDeliversAll(t *testing.T) {
	a, b := connected(t)
	want := make([]byte, 4<<20)
	rand.Read(want)
	closed := make(chan error, 1)
	go func() {
		_, err := a.Write(want)
		closed <- errors.Join(err, a.Close())
	}()
	b.SetReadDeadline(time.Now().Add(patience))
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes of %d, %v", len(got), len(want), err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := b.Write([]byte("x")); !isGone(err) {
		// The peer's refusal may take a moment to arrive, but no more.
		b.SetWriteDeadline(time.Now().Add(patience))
		for err == nil {
			_, err = b.Write(make([]byte, 64<<10))
		}
		if !isGone(err) {
			t.Errorf("writing to a closed peer: %v", err)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
}

func TestDeadlineAndClosedErrors(t *testing.T) {
	a, b := connected(t)
	a.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := a.Read(make([]byte, 1))
	var netErr net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &netErr) || !netErr.Timeout() {
		t.Errorf("Read after its deadline: %v", err)
	}
	a.SetDeadline(time.Now().Add(patience)) // a bound, never reached

	// A blocked Read and a Write that fills the window end with Close.
	ended := make(chan error, 2)
	reading, writing := make(chan struct{}), make(chan struct{})
	go func() {
		close(reading)
		_, err := a.Read(make([]byte, 1))
		ended <- err
	}()
	go func() {
		_, err := a.Write(make([]byte, maxWindow))
		close(writing)
		if err == nil {
			_, err = a.Write(make([]byte, 4*maxWindow))
		}
		ended <- err
	}()
	<-reading
	go io.CopyN(io.Discard, b, maxWindow)
	<-writing
	go b.Abort() // so that Close has nothing to wait for
	a.Close()
	for range 2 {
		if err := <-ended; !errors.Is(err, net.ErrClosed) && !isGone(err) {
			t.Errorf("after Close: %v", err)
		}
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Write after Close: %v", err)
	}
}

// An aborted stream is not a complete one.
func TestAbort(t *testing.T) {
	a, b := connected(t)
	if _, err := a.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(b, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	a.Abort()
	b.SetReadDeadline(time.Now().Add(patience))
	if n, err := b.Read(make([]byte, 1)); n != 0 || !isGone(err) {
		t.Errorf("Read after the peer's Abort: %d, %v", n, err)
	}
}

// isGone reports whether the error is one that a socket returns when its peer is gone.
func isGone(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// settle waits until count() is at most want.
func settle(t *testing.T, what string, want int, count func() int) {
	t.Helper()
	for end := time.Now().Add(patience); count() > want; {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d %s, want at most %d\n%s", count(), what, want, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(time.Millisecond)
	}
}
