package stream

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/link/internal/leak"
	"github.com/isthmus-grid/isthmus/link/internal/memnet"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// watchdog bounds all waits of a test, in a bubble in virtual time.
const watchdog = 10 * time.Minute

// hangs makes a test that takes longer than the watchdog report where it is.
func hangs(t testing.TB) {
	w := time.AfterFunc(watchdog, func() {
		panic(fmt.Sprintf("%s hangs:\n%s", t.Name(), leak.Goroutines()))
	})
	t.Cleanup(func() { w.Stop() })
}

// A world is two streams, the carriers between them, and the watch over both. It belongs into a
// testing/synctest bubble, where a machine that is busy with other things changes nothing, unless its
// carriers are sockets: these it does not take for silent, so that a test with them knows no times.
type world struct {
	t       testing.TB
	ends    [2]*end
	sockets bool

	mu    sync.Mutex
	roads []*road
	stop  chan struct{}
	busy  sync.WaitGroup
}

// end is one of a world's streams.
type end struct {
	*Stream
	over  chan struct{}
	want  chan struct{} // another carrier is requested
	final bool          // the stream ends with its last carrier

	lostMu sync.Mutex // guards final and lost; not named mu, which is the stream's
	lost   []error
}

var errLast = errors.New("that was the last carrier")

// A road is one connection: a carrier at each end.
type road struct {
	ends     [2]net.Conn
	carriers [2]*Carrier
	cut      func() // ends it as a broken network does
	mute     func() // drops everything from now on; nil: not supported
}

// newWorld returns two streams without carriers. At the end of the test, it fails those that the
// test has not ended.
func newWorld(t testing.TB) *world {
	w := newSocketWorld(t)
	w.sockets = false
	for _, e := range w.ends {
		e.o.Silent = func(bool) { e.wants() }
	}
	return w
}

// newSocketWorld returns two streams whose carriers will be sockets.
func newSocketWorld(t testing.TB) *world {
	leak.Check(t)
	hangs(t)
	w := &world{t: t, sockets: true, stop: make(chan struct{})}
	for i := range w.ends {
		e := &end{over: make(chan struct{}), want: make(chan struct{}, 1)}
		e.Stream = New(Options{
			Peer: fmt.Sprintf("end %d", 1-i), Lost: e.wasLost, Ended: func() { close(e.over) }, Windows: true,
		})
		w.ends[i] = e
	}
	t.Cleanup(w.end)
	return w
}

func (e *end) wants() {
	select {
	case e.want <- struct{}{}:
	default:
	}
}

func (e *end) wasLost(_ *Carrier, err error, left int) error {
	e.lostMu.Lock()
	defer e.lostMu.Unlock()
	e.lost = append(e.lost, err)
	if left > 0 {
		return nil
	}
	if e.final {
		return fmt.Errorf("%w: %w", errLast, err)
	}
	e.wants()
	return nil
}

// lasts says that a stream which has lost all its carriers must end.
func (w *world) lasts() {
	for _, e := range w.ends {
		e.lostMu.Lock()
		e.final = true
		e.lostMu.Unlock()
	}
}

// watch watches both streams until the world ends.
func (w *world) watch() {
	w.busy.Go(func() {
		for tick := time.NewTicker(Tick); ; {
			select {
			case <-tick.C:
				w.tick()
			case <-w.stop:
				tick.Stop()
				return
			}
		}
	})
}

func (w *world) tick() {
	for _, e := range w.ends {
		e.Watch()
	}
}

func (w *world) end() {
	close(w.stop)
	for _, e := range w.ends {
		e.Fail(errors.New("the test is over"))
	}
	w.mu.Lock()
	for _, r := range w.roads {
		r.cut()
	}
	w.mu.Unlock()
	w.busy.Wait()
	for _, e := range w.ends {
		e.Wait()
	}
}

// attach gives both ends a carrier as a handshake does, unless one is over.
func (w *world) attach(r *road) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.roads = append(w.roads, r)
	var received [2]uint64
	for i, e := range w.ends {
		n, err := e.Received()
		if err != nil {
			r.close()
			return false
		}
		received[i] = n
	}
	for i, e := range w.ends {
		c, err := e.Attach(r.ends[i], nil, received[1-i], time.Millisecond)
		if err != nil {
			select {
			case <-e.over:
			default:
				w.t.Errorf("end %d does not take a carrier: %v", i, err)
			}
			r.close()
			return false
		}
		r.carriers[i] = c
	}
	return true
}

// close ends a road that the streams did not accept.
func (r *road) close() {
	r.cut()
	for _, c := range r.ends {
		c.Close()
	}
}

// with attaches a carrier of a kind.
func (w *world) with(kind string) *road {
	w.t.Helper()
	r := w.road(kind)
	if !w.attach(r) {
		w.t.Fatal("the streams take no carrier")
	}
	return r
}

var kinds = []string{"tcp", "unix", "plain", "middle", "grudging"}

// delay is how long a byte takes on a connection in memory.
const delay = time.Millisecond

// road makes a connection: TCP, a Unix socket, a connection without a visible socket, two TCP
// connections with a process in the middle, or TCP that takes little without blocking. In memory the
// first two are the same.
func (w *world) road(kind string) *road {
	w.t.Helper()
	network := "tcp"
	if kind == "unix" || kind == "plain" {
		network = "unix"
	}
	a, b := w.pair(network)
	r := &road{ends: [2]net.Conn{a, b}}
	r.cut = func() { reset(a); reset(b) }
	switch kind {
	case "plain":
		r.ends = [2]net.Conn{hidden{a}, hidden{b}}
	case "grudging":
		r.ends = [2]net.Conn{&grudging{Conn: ConnOf(a)}, &grudging{Conn: ConnOf(b)}}
	case "middle":
		c, d := w.pair(network)
		r.ends = [2]net.Conn{a, d}
		r.cut = func() { reset(b); reset(c) }
		w.middle(r, b, c)
	}
	return r
}

// hidden is a connection that exposes only net.Conn.
type hidden struct{ net.Conn }

// grudging is a connection that takes in turn none, one, two and more bytes without blocking, as a
// nearly full socket may.
type grudging struct {
	Conn
	turn atomic.Int64
}

func (g *grudging) TryWriteVec(bufs ...[]byte) (int, error) {
	p := slices.Concat(bufs...)
	n := min(int(g.turn.Add(1))%(len(p)+2), len(p))
	if n == 0 {
		return 0, nil
	}
	return g.Conn.(tryWriter).TryWriteVec(p[:n])
}

// reset closes a connection with a reset where possible.
func reset(c net.Conn) {
	switch c := c.(type) {
	case *memnet.Conn:
		c.Reset()
		return
	case *net.TCPConn:
		c.SetLinger(0)
	}
	c.Close()
}

func (w *world) pair(network string) (a, b net.Conn) {
	w.t.Helper()
	if !w.sockets {
		return memnet.Pair(memnet.Options{Delay: delay})
	}
	if network == "unix" {
		return w.socketpair()
	}
	ln, err := net.Listen(network, "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.DialTimeout(network, ln.Addr().String(), watchdog); err != nil {
		w.t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		w.t.Fatal(err)
	}
	return a, b
}

func (w *world) socketpair() (a, b net.Conn) {
	w.t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		ends[i], err = net.FileConn(f)
		f.Close()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	return ends[0], ends[1]
}

// middle carries bytes between b and c until one of them ends.
func (w *world) middle(r *road, b, c net.Conn) {
	var mu sync.Mutex
	muted := false
	r.mute = func() {
		mu.Lock()
		defer mu.Unlock()
		muted = true
	}
	for _, d := range [][2]net.Conn{{b, c}, {c, b}} {
		w.busy.Go(func() {
			defer r.cut()
			buf := make([]byte, 32<<10)
			for {
				n, err := d[0].Read(buf)
				if err != nil {
					return
				}
				mu.Lock()
				silent := muted
				mu.Unlock()
				if silent {
					continue
				}
				if _, err := d[1].Write(buf[:n]); err != nil {
					return
				}
			}
		})
	}
}

// period is after how many bytes a direction repeats: a prime, which divides no size in use, so that
// displaced bytes show.
const period = 65521

// patterns are the bytes of both directions. All are below 128: larger values were written by an owner
// after the bytes were returned to it.
var patterns = func() (all [2][]byte) {
	source := rand.NewChaCha8([32]byte{1})
	for i := range all {
		all[i] = make([]byte, period)
		source.Read(all[i])
		for k := range all[i] {
			all[i][k] &= 0x7f
		}
	}
	return all
}()

// want fills b with the bytes of a direction starting at off.
func want(b []byte, direction int, off uint64) {
	for n := 0; len(b) > 0; b, off = b[n:], off+uint64(n) {
		n = copy(b, patterns[direction][off%period:])
	}
}

// wrong says where b differs from a direction's bytes starting at off, or returns "".
func wrong(b []byte, direction int, off uint64) string {
	for n, left := 0, b; len(left) > 0; left, off = left[n:], off+uint64(n) {
		p := patterns[direction][off%period:]
		n = min(len(p), len(left))
		if bytes.Equal(left[:n], p[:n]) {
			continue
		}
		for i, got := range left[:n] {
			if got != p[i] {
				return fmt.Sprintf("direction %d: byte %d (the %d-th of %d) is %#02x and not %#02x", direction, off+uint64(i), len(b)-len(left)+i, len(b), got, p[i])
			}
		}
	}
	return ""
}

// spoil marks bytes that were returned to their owner.
func spoil(b []byte) {
	for i := range b {
		b[i] = 0xee
	}
}
