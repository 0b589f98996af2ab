package spin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds every wait of a test.
const patience = 30 * time.Second

var networks = []string{"tcp4", "unix"}

// pair returns the two ends of a connection, not wrapped.
func pair(t testing.TB, network string) (a, b net.Conn) {
	t.Helper()
	at := "127.0.0.1:0"
	if network == "unix" {
		at = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.DialTimeout(network, ln.Addr().String(), patience); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	end := time.Now().Add(patience)
	if err := errors.Join(a.SetDeadline(end), b.SetDeadline(end)); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// wrapped returns two ends of which the first spins.
func wrapped(t testing.TB, network string, o Options) (*Conn, net.Conn) {
	t.Helper()
	a, b := pair(t, network)
	c, err := New(a, o)
	if err != nil {
		t.Fatal(err)
	}
	return c, b
}

func eachNetwork(t *testing.T, test func(t *testing.T, network string)) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) { test(t, network) })
	}
}

func TestNewRefuses(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, err := New(a, Options{}); err == nil {
		t.Error("a pipe was taken")
	}
	u, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "g"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if _, err := New(u, Options{}); err == nil {
		t.Error("a datagram socket was taken")
	}
}

func TestReadAndEOF(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		c, peer := wrapped(t, network, Options{})
		if _, err := peer.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 3)
		for _, want := range []string{"hel", "lo"} {
			n, err := c.Read(buf)
			if string(buf[:n]) != want || err != nil {
				t.Fatalf("read %q, %v; want %q", buf[:n], err, want)
			}
		}
		if n, err := c.Read(nil); n != 0 || err != nil {
			t.Errorf("an empty read: %d, %v", n, err)
		}
		peer.Close()
		for range 2 {
			if n, err := c.Read(buf); n != 0 || err != io.EOF {
				t.Errorf("after the end: %d, %v", n, err)
			}
		}
	})
}

// sameError compares the error of a spinning connection with that of a plain one in the same
// situation. It may call tcp4 tcp.
func sameError(t *testing.T, what string, got, plain error) {
	t.Helper()
	var g, p *net.OpError
	if !errors.As(got, &g) || !errors.As(plain, &p) {
		t.Fatalf("%s: %v (%T); plain: %v", what, got, got, plain)
	}
	if g.Op != p.Op || g.Net != strings.TrimRight(p.Net, "46") && g.Net != p.Net || g.Source == nil || (g.Addr == nil) != (p.Addr == nil) || g.Err.Error() != p.Err.Error() ||
		g.Timeout() != p.Timeout() || errors.Is(got, net.ErrClosed) != errors.Is(plain, net.ErrClosed) {
		t.Errorf("%s: %v; plain: %v", what, got, plain)
	}
}

// Each failure also happens to a plain connection, which must return the same error.
func TestErrorsAreNetConns(t *testing.T) {
	reset := func(c, peer net.Conn) { // the peer closes with bytes unread
		c.Write([]byte("unread"))
		peer.Close()
	}
	read := func(c net.Conn) error { _, err := c.Read(make([]byte, 1)); return err }
	write := func(c net.Conn) error {
		for { // the first may still fit, or the first many
			if _, err := c.Write(make([]byte, 64<<10)); err != nil {
				return err
			}
		}
	}
	for _, test := range []struct {
		name    string
		prepare func(c, peer net.Conn)
		do      func(net.Conn) error
	}{
		{"read closed", func(c, _ net.Conn) { c.Close() }, read},
		{"read expired", func(c, _ net.Conn) { c.SetReadDeadline(time.Now().Add(-time.Second)) }, read},
		{"read expires", func(c, _ net.Conn) { c.SetReadDeadline(time.Now().Add(time.Millisecond)) }, read},
		{"read reset", reset, read},
		{"write closed", func(c, _ net.Conn) { c.Close() }, write},
		{"write expired", func(c, _ net.Conn) { c.SetWriteDeadline(time.Now().Add(-time.Second)) }, write},
		{"write expires", func(c, _ net.Conn) { c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) }, write},
		{"write nothing, closed", func(c, _ net.Conn) { c.Close() }, func(c net.Conn) error { _, err := c.Write(nil); return err }},
		{"read nothing, closed", func(c, _ net.Conn) { c.Close() }, func(c net.Conn) error { _, err := c.Read(nil); return err }},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachNetwork(t, func(t *testing.T, network string) {
				plain, peer := pair(t, network)
				test.prepare(plain, peer)
				c, peer := wrapped(t, network, Options{})
				test.prepare(c, peer)
				sameError(t, test.name, test.do(c), test.do(plain))
			})
		})
	}
}

// A write to a peer that has closed is an error, not a signal.
func TestWriteAfterPeerClosed(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		c, peer := wrapped(t, network, Options{})
		peer.Close()
		for {
			if _, err := c.Write(make([]byte, 64<<10)); err != nil {
				var op *net.OpError
				if !errors.As(err, &op) || op.Op != "write" {
					t.Errorf("%v (%T)", err, err)
				}
				return
			}
		}
	})
}

func TestWriteVecAndReadVec(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		a, b := pair(t, network)
		from, err := New(a, Options{})
		if err != nil {
			t.Fatal(err)
		}
		to, err := New(b, Options{})
		if err != nil {
			t.Fatal(err)
		}
		// More buffers than go into one call, including empty ones, and far more bytes than the
		// sockets hold: writes are partial and wait.
		var bufs net.Buffers
		var all []byte
		for i := range 300 {
			b := make([]byte, i*i%50_000)
			for j := range b {
				b[j] = byte(i + j + j>>8)
			}
			bufs = append(bufs, b)
			all = append(all, b...)
		}
		sent := make(chan error, 1)
		go func() { // ends when all is written, or by its deadline
			n, err := from.WriteVec(bufs...)
			if err == nil && n != len(all) {
				err = fmt.Errorf("wrote %d of %d bytes", n, len(all))
			}
			sent <- errors.Join(err, from.Close())
		}()
		var got []byte
		head, body, tail := make([]byte, 16), make([]byte, 100_000), make([]byte, 7)
		for {
			n, err := to.ReadVec(head, nil, body, tail)
			for _, b := range [][]byte{head, body, tail} {
				k := min(n, len(b))
				got = append(got, b[:k]...)
				n -= k
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
		if !bytes.Equal(got, all) {
			t.Errorf("%d bytes came of %d, or others", len(got), len(all))
		}
		if len(bufs) != 300 || len(bufs[2]) != 4 {
			t.Error("the caller's buffers were changed")
		}
	})
}

func TestVectorsOfNothing(t *testing.T) {
	c, _ := wrapped(t, "tcp4", Options{})
	if n, err := c.WriteVec(nil, nil); n != 0 || err != nil {
		t.Errorf("WriteVec of nothing: %d, %v", n, err)
	}
	if n, err := c.ReadVec(nil, nil); n != 0 || err != nil {
		t.Errorf("ReadVec of nothing: %d, %v", n, err)
	}
	c.Close()
	if _, err := c.WriteVec(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("WriteVec of nothing, closed: %v", err)
	}
	if _, err := c.ReadVec(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("ReadVec of nothing, closed: %v", err)
	}
}

func TestTryWriteDoesNotWait(t *testing.T) {
	c, peer := wrapped(t, "tcp4", Options{})
	block := bytes.Repeat([]byte("x"), 1<<20)
	total := 0
	for {
		n, err := c.TryWrite(block)
		if err != nil {
			t.Fatal(err)
		}
		total += n
		if n == 0 {
			break
		}
	}
	c.Close()
	got, err := io.Copy(io.Discard, peer)
	if err != nil || got != int64(total) {
		t.Errorf("%d bytes were taken, %d came, %v", total, got, err)
	}
	if _, err := c.TryWrite(block); !errors.Is(err, net.ErrClosed) {
		t.Errorf("on a closed connection: %v", err)
	}
}

// TryWriteVec takes any number of buffers for which there is room.
func TestTryWriteManyBuffers(t *testing.T) {
	for _, n := range []int{0, 1, 64, 65, 200} {
		c, peer := wrapped(t, "tcp4", Options{})
		var bufs [][]byte
		var want []byte
		for i := range n {
			bufs = append(bufs, []byte{byte(i)})
			want = append(want, byte(i))
		}
		if took, err := c.TryWriteVec(bufs...); took != n || err != nil {
			t.Errorf("%d of %d buffers were taken, %v", took, n, err)
		}
		c.Close()
		if got, err := io.ReadAll(peer); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d buffers came as %v, %v", n, got, err)
		}
	}
}

// While another write waits for room, TryWrite writes nothing.
func TestTryWriteBesideAWrite(t *testing.T) {
	c, peer := wrapped(t, "tcp4", Options{})
	written := make(chan error, 1)
	go func() { // ends when the peer has read all, or by its deadline
		_, err := c.Write(make([]byte, 64<<20))
		written <- err
	}()
	if _, err := io.ReadFull(peer, make([]byte, 1)); err != nil { // the write has begun
		t.Fatal(err)
	}
	if n, err := c.TryWrite([]byte{1}); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := io.ReadFull(peer, make([]byte, 64<<20-1)); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// All data passes through a connection both of whose ends are in one process with one processor,
// with other goroutines at work.
func TestOneProcessorIsFair(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const pairs, rounds = 8, 300
	var echo, all sync.WaitGroup
	for range pairs {
		a, b := pair(t, "tcp4")
		from, err := New(a, Options{Budget: maxBudget})
		if err != nil {
			t.Fatal(err)
		}
		to, err := New(b, Options{Budget: maxBudget})
		if err != nil {
			t.Fatal(err)
		}
		echo.Go(func() { // ends when its peer closes
			buf := make([]byte, 8)
			for {
				if _, err := io.ReadFull(to, buf); err != nil {
					return
				}
				to.Write(buf)
			}
		})
		all.Go(func() { // ends after its rounds, or by the deadline
			defer from.Close()
			buf := make([]byte, 8)
			for i := range rounds {
				buf[0] = byte(i)
				if _, err := from.Write(buf); err != nil {
					t.Error(err)
					return
				}
				if _, err := io.ReadFull(from, buf); err != nil || buf[0] != byte(i) {
					t.Errorf("round %d: %d, %v", i, buf[0], err)
					return
				}
			}
		})
	}
	all.Wait()
	echo.Wait()
}

// Many connections wait concurrently in a process with two processors: each gets its turn, and
// goroutines that do not wait make progress.
func TestManyWaitersLeaveRoom(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	const waiters = 50
	var all sync.WaitGroup
	peers := make([]net.Conn, waiters)
	for i := range waiters {
		c, peer := wrapped(t, "unix", Options{Budget: maxBudget})
		peers[i] = peer
		all.Go(func() { // ends when its peer closes
			buf := make([]byte, 1)
			for {
				if _, err := c.Read(buf); err != nil {
					if err != io.EOF {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	for range 20 {
		for _, peer := range peers {
			if _, err := peer.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, peer := range peers {
		peer.Close()
	}
	all.Wait()
}

// A connection's bytes order the actions of two goroutines; the race detector must agree.
func TestBytesOrderMemory(t *testing.T) {
	a, b := pair(t, "unix")
	from, err := New(a, Options{})
	if err != nil {
		t.Fatal(err)
	}
	to, err := New(b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	shared := 0
	done := make(chan error, 1)
	go func() { // ends with the write
		shared = 42
		_, err := from.Write([]byte{1})
		done <- err
	}()
	if _, err := to.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if shared != 42 {
		t.Error("the write before the byte is not seen after it")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestCallsDoNotAllocate(t *testing.T) {
	a, b := pair(t, "tcp4")
	idled := 0
	from, err := New(a, Options{Idle: func() { idled++ }})
	if err != nil {
		t.Fatal(err)
	}
	to, err := New(b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var echo sync.WaitGroup
	echo.Go(func() { // ends when its peer closes
		head, body := make([]byte, 4), make([]byte, 1000)
		for {
			n, err := to.ReadVec(head, body)
			if err != nil {
				return
			}
			to.WriteVec(head[:min(n, 4)], body[:max(n-4, 0)])
		}
	})
	head, body := make([]byte, 4), make([]byte, 500)
	buf := make([]byte, 2000)
	var failed error
	n := testing.AllocsPerRun(500, func() {
		n, err := from.WriteVec(head, body)
		k, err2 := from.TryWrite(head)
		m, err3 := from.Write(body)
		if failed = errors.Join(failed, err, err2, err3); failed != nil {
			return
		}
		for n += k + m; n > 0; {
			k, err := from.Read(buf)
			if err != nil {
				failed = err
				return
			}
			n -= k
		}
	})
	if failed != nil {
		t.Fatal(failed)
	}
	if n != 0 {
		t.Errorf("%v allocations per round", n)
	}
	if runtime.GOOS == "linux" && idled == 0 {
		t.Error("no read ever waited")
	}
	from.Close()
	echo.Wait()
}

func TestDeadlineIsExceeded(t *testing.T) {
	c, _ := wrapped(t, "tcp4", Options{})
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := c.ReadVec(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
	// After the deadline was extended, reads work again.
	c.SetReadDeadline(time.Now().Add(patience))
	if c.NetConn() == nil {
		t.Error("no connection below")
	}
}

// Buffers larger than one read are filled by several, in order.
func TestReadsIntoLargeBuffers(t *testing.T) {
	eachNetwork(t, func(t *testing.T, network string) {
		c, peer := wrapped(t, network, Options{})
		all := make([]byte, 3<<20)
		for i := range all {
			all[i] = byte(i + i>>8 + i>>16)
		}
		for _, vec := range []bool{false, true} {
			sent := make(chan error, 1)
			go func() { // ends when all is read, or by its deadline
				_, err := peer.Write(all)
				sent <- err
			}()
			got := make([]byte, len(all))
			for n := 0; n < len(got); {
				k, err := 0, error(nil)
				if head := min(len(got), n+100); vec {
					k, err = c.ReadVec(got[n:head], got[head:])
				} else {
					k, err = c.Read(got[n:])
				}
				if err != nil {
					t.Fatal(err)
				}
				n += k
			}
			if err := <-sent; err != nil {
				t.Error(err)
			}
			if !bytes.Equal(got, all) {
				t.Errorf("vec %v: other bytes came", vec)
			}
		}
	})
}
