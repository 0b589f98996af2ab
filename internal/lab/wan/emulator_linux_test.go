package wan_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/lab/wan"
	"github.com/isthmus-grid/isthmus/internal/lab/wan/star"
)

// wait bounds everything a test waits for.
const wait = 20 * time.Second

func newStar(t *testing.T, n int) *star.Star {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root, or a user namespace in which one is root")
	}
	s, err := star.New(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// mesh returns a path for every ordered pair of n hosts, named by their ports.
func mesh(n int, s wan.Shape) []wan.Path {
	var paths []wan.Path
	for i := range n {
		for j := range n {
			if i != j {
				paths = append(paths, wan.Path{
					From: star.Port(i), To: star.Port(j), In: star.Port(i), Out: star.Port(j), Shape: s,
				})
			}
		}
	}
	return paths
}

// serve runs an emulator in the star's centre until the test ends.
func serve(t *testing.T, s *star.Star, paths []wan.Path, opt wan.Options) *wan.Emulator {
	t.Helper()
	var e *wan.Emulator
	err := s.Centre.Do(func() (err error) {
		e, err = wan.New(paths, opt)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(wait):
			t.Error("Serve has not returned")
		}
	})
	return e
}

// counter returns the counter of a path.
func counter(t *testing.T, e *wan.Emulator, from, to string) wan.Counter {
	t.Helper()
	for _, c := range e.Counters() {
		if c.From == from && c.To == to {
			return c
		}
	}
	t.Fatalf("no counter for %s -> %s", from, to)
	return wan.Counter{}
}

// udp returns a socket of host i.
func udp(t *testing.T, s *star.Star, i int) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	err := s.Hosts[i].Do(func() (err error) {
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(star.Addr(i), 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetReadBuffer(8 << 20)
	return c
}

// tcp returns the two ends of a connection from host i to host j.
func tcp(t *testing.T, s *star.Star, i, j int) (a, b *net.TCPConn) {
	t.Helper()
	var l *net.TCPListener
	err := s.Hosts[j].Do(func() (err error) {
		l, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(star.Addr(j), 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = s.Hosts[i].Do(func() error {
		d := net.Dialer{Timeout: wait}
		c, err := d.Dial("tcp4", l.Addr().String())
		if err == nil {
			a = c.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	l.SetDeadline(time.Now().Add(wait))
	if b, err = l.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	a.SetDeadline(time.Now().Add(wait))
	b.SetDeadline(time.Now().Add(wait))
	return a, b
}

func TestDelayBothWays(t *testing.T) {
	s := newStar(t, 2)
	const delay = 15 * time.Millisecond
	e := serve(t, s, mesh(2, wan.Shape{Delay: delay}), wan.Options{})
	a, b := udp(t, s, 0), udp(t, s, 1)
	buf := make([]byte, 100)
	for range 10 {
		start := time.Now()
		send(t, a, b, []byte("ping"))
		_, from := receive(t, b, buf)
		if d := time.Since(start); d < delay {
			t.Fatalf("one way took %v, less than the delay %v", d, delay)
		}
		if _, err := b.WriteToUDPAddrPort([]byte("pong"), from); err != nil {
			t.Fatal(err)
		}
		receive(t, a, buf)
		if d := time.Since(start); d < 2*delay {
			t.Fatalf("round trip took %v, less than %v", d, 2*delay)
		}
	}
	for _, p := range [][2]string{{"h0", "h1"}, {"h1", "h0"}} {
		c := counter(t, e, p[0], p[1])
		if c.Packets != 10 || c.Messages != 10 || c.Bytes != 10*(20+8+4) || c.Dropped != 0 {
			t.Errorf("%+v", c)
		}
		if c.LateMax <= 0 || c.LateAvg <= 0 || c.LateAvg > c.LateMax {
			t.Errorf("lateness: %+v", c)
		}
	}
	if n := e.Overruns(); n != 0 {
		t.Errorf("%d overruns", n)
	}
}

func send(t *testing.T, from, to *net.UDPConn, b []byte) {
	t.Helper()
	if _, err := from.WriteToUDPAddrPort(b, to.LocalAddr().(*net.UDPAddr).AddrPort()); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, c *net.UDPConn, buf []byte) (int, netip.AddrPort) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(wait))
	n, from, err := c.ReadFromUDPAddrPort(buf)
	if err != nil {
		t.Fatal(err)
	}
	return n, from
}

var _ = fmt.Sprint
var _ io.Reader
var _ syscall.Errno
