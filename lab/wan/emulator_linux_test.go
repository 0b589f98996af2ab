//go:build system

package wan_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/lab/wan/star"
)

// wait bounds every wait of a test.
const wait = 30 * time.Second

func newStar(t *testing.T, n int) *star.Star {
	t.Helper()
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
		e, err = wan.New(paths, wan.Options{})
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

// TestNeverEarly keeps the queue busy, so that it checks its packets at all times and not only when
// the next one is due.
func TestNeverEarly(t *testing.T) {
	s := newStar(t, 2)
	const n, delay = 300, 10 * time.Millisecond
	serve(t, s, mesh(2, wan.Shape{Delay: delay}), wan.Options{})
	a, b := udp(t, s, 0), udp(t, s, 1)
	var sent [n]atomic.Int64
	epoch := time.Now()
	go func() { // ends after n datagrams, which the test waits for
		for i := range n {
			sent[i].Store(int64(time.Since(epoch)))
			a.WriteToUDPAddrPort([]byte{byte(i), byte(i >> 8)}, b.LocalAddr().(*net.UDPAddr).AddrPort())
			time.Sleep(100 * time.Microsecond) // any interval will do
		}
	}()
	buf := make([]byte, 10)
	for i := range n {
		receive(t, b, buf)
		if got := int(buf[0]) | int(buf[1])<<8; got != i {
			t.Fatalf("packet %d in place of %d", got, i)
		}
		if d := time.Since(epoch) - time.Duration(sent[i].Load()); d < delay {
			t.Fatalf("packet %d took %v, less than the delay %v", i, d, delay)
		}
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

// TestLossIsCountedExactly: packets sent are packets received plus those counted as lost, and a
// second run with the same seed loses the same.
func TestLossIsCountedExactly(t *testing.T) {
	const n = 2000
	s := newStar(t, 2)
	a, b := udp(t, s, 0), udp(t, s, 1)
	run := func() (arrived []string) {
		var e *wan.Emulator
		if err := s.Centre.Do(func() (err error) {
			e, err = wan.New(mesh(2, wan.Shape{Loss: 0.2}), wan.Options{Seed: 42})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- e.Serve(ctx) }()
		buf := make([]byte, 100)
		for i := range n {
			send(t, a, b, fmt.Appendf(nil, "%d", i))
			settled(t, e, "h0", "h1", uint64(i+1))
			if counter(t, e, "h0", "h1").Packets > uint64(len(arrived)) {
				k, _ := receive(t, b, buf)
				arrived = append(arrived, string(buf[:k]))
			}
		}
		c := counter(t, e, "h0", "h1")
		if c.Packets+c.Lost != n || c.Dropped != c.Lost || c.Messages != c.Packets {
			t.Errorf("%+v", c)
		}
		if c.Lost < n/5-100 || c.Lost > n/5+100 { // 5.6 standard deviations
			t.Errorf("lost %d of %d with probability 0.2", c.Lost, n)
		}
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(wait):
			t.Error("Serve does not return")
		}
		return arrived
	}
	if first, second := run(), run(); !slices.Equal(first, second) {
		t.Error("equal seeds lost different packets")
	}
}

// settled waits until the fate of n packets of a path is decided.
func settled(t *testing.T, e *wan.Emulator, from, to string, n uint64) {
	t.Helper()
	eventually(t, fmt.Sprintf("fate of %d packets %s -> %s", n, from, to), func() bool {
		c := counter(t, e, from, to)
		return c.Packets+c.Dropped >= n
	})
}

// eventually waits for cond, at most wait.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(wait); !cond(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", wait, what)
		}
	}
}

func TestDuplicates(t *testing.T) {
	s := newStar(t, 2)
	paths := mesh(2, wan.Shape{})
	paths[0].Duplicate = 1
	e := serve(t, s, paths, wan.Options{})
	a, b := udp(t, s, 0), udp(t, s, 1)
	buf := make([]byte, 2000)
	for _, size := range []int{1, 100, 1472} {
		msg := bytes.Repeat([]byte{byte(size)}, size)
		send(t, a, b, msg)
		for range 2 {
			n, from := receive(t, b, buf)
			if !bytes.Equal(buf[:n], msg) || from != a.LocalAddr().(*net.UDPAddr).AddrPort() {
				t.Fatalf("%d bytes from %v, want %d", n, from, size)
			}
		}
	}
	eventually(t, "the count of 3 duplicates", func() bool { return counter(t, e, "h0", "h1").Duplicated == 3 })
	if c := counter(t, e, "h0", "h1"); c.Packets != 3 || c.Messages != 3 {
		t.Errorf("%+v", c)
	}
	// The setting follows the shape: without duplicates, one each.
	if err := e.Shape("h0", "h1", wan.Shape{}); err != nil {
		t.Fatal(err)
	}
	for i := range byte(5) {
		send(t, a, b, []byte{i})
		if n, _ := receive(t, b, buf); n != 1 || buf[0] != i {
			t.Fatalf("got %v, want %d", buf[:n], i)
		}
	}
}

// TestStreamSurvivesEverything sends a stream through loss, duplicates,
// reordering and a slow link, and compares it.
func TestStreamSurvivesEverything(t *testing.T) {
	s := newStar(t, 2)
	e := serve(t, s, mesh(2, wan.Shape{
		Delay: 2 * time.Millisecond, Jitter: time.Millisecond, Reorder: true,
		Loss: 0.01, Duplicate: 0.05, Rate: 200_000_000,
	}), wan.Options{Seed: 5})
	a, b := tcp(t, s, 0, 1)
	sum := copyThrough(t, a, b, 4<<20)
	c := counter(t, e, "h0", "h1")
	if c.Bytes < sum || c.Lost == 0 || c.Duplicated == 0 {
		t.Errorf("carried %d bytes of stream: %+v", sum, c)
	}
}

// copyThrough sends size random bytes from a to b, compares what arrives, and
// returns size.
func copyThrough(t *testing.T, a, b *net.TCPConn, size int) uint64 {
	t.Helper()
	data := make([]byte, size)
	r := rand.NewChaCha8([32]byte{})
	r.Read(data)
	sent := make(chan error, 1)
	go func() {
		_, err := a.Write(data)
		sent <- err
	}()
	got := make([]byte, size)
	if _, err := io.ReadFull(b, got); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, got) {
		t.Fatal("the stream was damaged")
	}
	return uint64(size)
}

func TestRateHoldsBack(t *testing.T) {
	s := newStar(t, 2)
	const rate, size, queue = 40_000_000, 1 << 20, 64 << 10
	e := serve(t, s, mesh(2, wan.Shape{Rate: rate, Queue: queue}), wan.Options{})
	a, b := tcp(t, s, 0, 1)
	start := time.Now()
	copyThrough(t, a, b, size)
	if least := time.Duration(float64(size) * 8 / rate * 1e9); time.Since(start) < least {
		t.Errorf("%d bytes took %v, the link needs %v", size, time.Since(start), least)
	}
	// A stream may keep to the rate. One that does not overflows the queue, though possibly not at
	// once on a machine that gives it little time.
	loud, quiet := udp(t, s, 0), udp(t, s, 1)
	c := counter(t, e, "h0", "h1")
	for end := time.Now().Add(wait); c.Overflowed == 0 && time.Now().Before(end); c = counter(t, e, "h0", "h1") {
		for range 4 * queue / 1024 {
			send(t, loud, quiet, make([]byte, 1024))
		}
	}
	if c.Overflowed == 0 || c.Dropped != c.Overflowed {
		t.Errorf("what was sent into a short queue, and faster than it empties, was not dropped: %+v", c)
	}
}

func TestCutAndRestore(t *testing.T) {
	s := newStar(t, 2)
	e := serve(t, s, mesh(2, wan.Shape{Delay: time.Millisecond}), wan.Options{})
	a, b := udp(t, s, 0), udp(t, s, 1)
	buf := make([]byte, 10)
	for round := range byte(5) {
		if err := e.Shape("h0", "h1", wan.Shape{Loss: 1}); err != nil {
			t.Fatal(err)
		}
		send(t, a, b, []byte("lost"))
		settled(t, e, "h0", "h1", 2*uint64(round)+1)
		if err := e.Shape("h0", "h1", wan.Shape{}); err != nil {
			t.Fatal(err)
		}
		send(t, a, b, []byte{round})
		if n, _ := receive(t, b, buf); n != 1 || buf[0] != round {
			t.Fatalf("round %d: got %q", round, buf[:n])
		}
	}
	if c := counter(t, e, "h0", "h1"); c.Lost != 5 || c.Packets != 5 {
		t.Errorf("%+v", c)
	}
	for _, err := range []error{e.Shape("h0", "nowhere", wan.Shape{}), e.Shape("h0", "h1", wan.Shape{Loss: 2})} {
		if err == nil {
			t.Error("an impossible change is accepted")
		}
	}
}

// TestSharedQueue has three paths with different delays in one queue, so that packets leave it in
// another order than they arrived, and one pair that the emulator does not handle.
func TestSharedQueue(t *testing.T) {
	const ms = time.Millisecond
	s := newStar(t, 4)
	paths := mesh(4, wan.Shape{})[:2] // h0 -> h1, h0 -> h2; h0 -> h3 is not emulated
	paths[0].Delay, paths[1].Delay = 20*ms, ms
	e := serve(t, s, paths, wan.Options{MaxQueues: 1})
	from := udp(t, s, 0)
	to := []*net.UDPConn{udp(t, s, 1), udp(t, s, 2), udp(t, s, 3)}
	const n = 200
	start := time.Now()
	for i := range n {
		for _, c := range to {
			send(t, from, c, []byte{byte(i), byte(i >> 8)})
		}
	}
	buf := make([]byte, 10)
	for _, k := range []int{2, 1, 0} { // the fast ones first
		for i := range n {
			if receive(t, to[k], buf); buf[0] != byte(i) || buf[1] != byte(i>>8) {
				t.Fatalf("host %d: packet %d is %v", k+1, i, buf[:2])
			}
			if k == 0 && time.Since(start) < 20*ms {
				t.Fatalf("the slow path took only %v", time.Since(start))
			}
		}
	}
	for _, c := range e.Counters() {
		if c.Packets != n || c.Dropped != 0 {
			t.Errorf("%+v", c)
		}
	}
}

// TestManyPlaces runs twelve hosts, 132 ordered pairs: more than the queues.
func TestManyPlaces(t *testing.T) {
	const n = 12
	s := newStar(t, n)
	e := serve(t, s, mesh(n, wan.Shape{Delay: time.Millisecond}), wan.Options{})
	socks := make([]*net.UDPConn, n)
	for i := range n {
		socks[i] = udp(t, s, i)
	}
	buf := make([]byte, 10)
	for i := range n {
		for j := range n {
			if i != j {
				send(t, socks[i], socks[j], []byte{byte(i)})
				if receive(t, socks[j], buf); buf[0] != byte(i) {
					t.Fatalf("%d -> %d: got %v", i, j, buf[0])
				}
			}
		}
	}
	for _, c := range e.Counters() {
		if c.Packets != 1 || c.Messages != 1 {
			t.Errorf("%+v", c)
		}
	}
}

// TestMessagesAreWrites: a conversation of small writes, each answered before
// the next, counts one message each.
func TestMessagesAreWrites(t *testing.T) {
	s := newStar(t, 2)
	e := serve(t, s, mesh(2, wan.Shape{}), wan.Options{})
	a, b := tcp(t, s, 0, 1)
	const n = 200
	buf := make([]byte, 1000)
	for range n {
		for _, c := range [][2]*net.TCPConn{{a, b}, {b, a}} {
			if _, err := c[0].Write(buf); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c[1], buf); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range e.Counters() {
		if c.Messages != n {
			t.Errorf("%d messages, sent %d: %+v", c.Messages, n, c)
		}
		if c.Bytes < n*(1000+40) {
			t.Errorf("%d bytes for %d writes of 1000", c.Bytes, n)
		}
	}
}

// TestEndLeavesNothing: after Serve or Close packets pass as before New, and no descriptor is left.
func TestEndLeavesNothing(t *testing.T) {
	s := newStar(t, 2)
	a, b := udp(t, s, 0), udp(t, s, 1)
	buf := make([]byte, 10)
	before := testkit.Descriptors(t)
	for i := range 20 {
		err := s.Centre.Do(func() error {
			e, err := wan.New(mesh(2, wan.Shape{Loss: 1}), wan.Options{})
			if err != nil {
				return err
			}
			if _, err := wan.New(mesh(2, wan.Shape{}), wan.Options{}); !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EBUSY) {
				t.Errorf("a second emulator on the same queues: %v", err)
			}
			if i%2 == 0 {
				return e.Close()
			}
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := e.Serve(ctx); err != nil {
				return err
			}
			if e.Serve(ctx) == nil {
				t.Error("Serve runs twice")
			}
			return e.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
		send(t, a, b, []byte{byte(i)})
		if receive(t, b, buf); buf[0] != byte(i) {
			t.Fatalf("round %d: got %d", i, buf[0])
		}
	}
	if after := testkit.Descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestNewRefuses(t *testing.T) {
	s := newStar(t, 2)
	good := mesh(2, wan.Shape{})
	for _, c := range []struct {
		name, want string
		change     func(p []wan.Path)
	}{
		{"unknown in", `h0 -> h1: no interface "eth9"`, func(p []wan.Path) { p[0].In = "eth9" }},
		{"unknown out", `h0 -> h1: no interface "eth9"`, func(p []wan.Path) { p[0].Out = "eth9" }},
		{"equal names", "h0 -> h1: given twice", func(p []wan.Path) { p[1].From, p[1].To = "h0", "h1" }},
		{"equal interfaces", "h1 -> h0: another path goes from h0 to h1", func(p []wan.Path) { p[1].In, p[1].Out = "h0", "h1" }},
		{"shape", "h1 -> h0: loss 3 is not between 0 and 1", func(p []wan.Path) { p[1].Loss = 3 }},
	} {
		paths := slices.Clone(good)
		c.change(paths)
		s.Centre.Do(func() error {
			_, err := wan.New(paths, wan.Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want %q", c.name, err, c.want)
			}
			return nil
		})
	}
}

// insideEnv marks a test process in a user namespace of its own.
const insideEnv = "WAN_TEST_INSIDE"

// TestMain gives an ordinary user a user namespace, where the tests may make
// network namespaces too.
func TestMain(m *testing.M) {
	if os.Getuid() == 0 {
		os.Exit(m.Run())
	}
	if os.Getenv(insideEnv) != "" {
		fmt.Fprintln(os.Stderr, "the user namespace does not map this user to root")
		os.Exit(1)
	}
	cmd := inside(os.Getuid(), os.Getgid(), os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "tests in a user namespace:", err)
		os.Exit(1)
	}
}

// inside returns this test program as root of a user namespace in which that
// is the outer uid and gid.
func inside(uid, gid int, args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}},
		Credential:  &syscall.Credential{NoSetGroups: true},
	}
	return cmd
}

// TestAsOrdinaryUser repeats tests without privileges outside the namespace.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Getenv(insideEnv) != "" {
		return // all tests already run that way
	}
	const nobody = 65534
	cmd := inside(nobody, nobody, "-test.timeout=2m", "-test.run=^(TestDelayBothWays|TestDuplicates|TestSharedQueue|TestEndLeavesNothing)$", "-test.v")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Count(string(out), "--- PASS") != 4 {
		t.Errorf("%v\n%s", err, out)
	}
}
