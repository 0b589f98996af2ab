package punch

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// socketPair returns two connected Unix stream sockets.
func socketPair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]*net.UnixConn, 2)
	for i, fd := range fds {
		syscall.SetNonblock(fd, true)
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns[i] = c.(*net.UnixConn)
	}
	return conns[0], conns[1]
}

// bridged is a stream whose two ends are Unix sockets: process - Bridge - Conn - Conn - Bridge -
// process.
type bridged struct {
	left, right *net.UnixConn // the processes' ends
	ended       [2]chan error // results of the Bridges
	stop        context.CancelCauseFunc
}

func bridge(t *testing.T) *bridged {
	t.Helper()
	ctx, stop := context.WithCancelCause(context.Background())
	t.Cleanup(func() { stop(nil) })
	b := &bridged{stop: stop}
	conns := [2]*Conn{}
	conns[0], conns[1] = connected(t)
	for i, c := range conns {
		inner, outer := socketPair(t)
		b.ended[i] = make(chan error, 1)
		go func() { b.ended[i] <- Bridge(ctx, c, inner) }()
		if i == 0 {
			b.left = outer
		} else {
			b.right = outer
		}
	}
	return b
}

// result waits for one Bridge to return.
func (b *bridged) result(t *testing.T, i int) error {
	t.Helper()
	select {
	case err := <-b.ended[i]:
		return err
	case <-time.After(patience):
		t.Fatalf("bridge %d has not returned within %v", i, patience)
		return nil
	}
}

func TestBridge(t *testing.T) {
	b := bridge(t)
	if err := exchange(b.left, b.right, 1<<20); err != nil {
		t.Fatal(err)
	}
	for i := range b.ended {
		if err := b.result(t, i); err != nil {
			t.Errorf("bridge %d: %v", i, err)
		}
	}
}

// One direction ends early; the other continues.
func TestBridgeHalfClose(t *testing.T) {
	b := bridge(t)
	if err := b.left.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b.right.SetDeadline(time.Now().Add(patience))
	b.left.SetDeadline(time.Now().Add(patience))
	if n, err := b.right.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Fatalf("the end of stream came as %d, %v", n, err)
	}
	want := make([]byte, 1<<20)
	rand.Read(want)
	go func() {
		b.right.Write(want)
		b.right.Close()
	}()
	if got, err := io.ReadAll(b.left); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the open direction carried %d bytes of %d, %v", len(got), len(want), err)
	}
	for i := range b.ended {
		if err := b.result(t, i); err != nil {
			t.Errorf("bridge %d: %v", i, err)
		}
	}
}

func TestBridgeCancelled(t *testing.T) {
	b := bridge(t)
	why := errors.New("the job is over")
	b.stop(why)
	for i := range b.ended {
		if err := b.result(t, i); !errors.Is(err, why) {
			t.Errorf("bridge %d: %v", i, err)
		}
	}
	for _, c := range []net.Conn{b.left, b.right} {
		c.SetDeadline(time.Now().Add(patience))
		if n, err := c.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the process's socket is still open: %d, %v", n, err)
		}
	}
}

// A process that dies with unread data ends the stream as a failure at both ends.
func TestBridgeProcessDies(t *testing.T) {
	b := bridge(t)
	b.right.Close()
	b.left.SetDeadline(time.Now().Add(patience))
	var err error
	for err == nil {
		_, err = b.left.Write(make([]byte, 64<<10))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("writing to a dead process blocks: %v", err)
	}
	failed := 0
	for i := range b.ended {
		if err := b.result(t, i); err != nil {
			failed++
			if !strings.Contains(err.Error(), "from the ") {
				t.Errorf("bridge %d does not name the direction: %v", i, err)
			}
		}
	}
	if failed != 2 {
		t.Errorf("%d bridges report a failure, want 2", failed)
	}
}

func TestBridgeWithoutHalfClose(t *testing.T) {
	a, b := net.Pipe()
	c, d := net.Pipe()
	defer d.Close()
	defer b.Close()
	if err := Bridge(context.Background(), a, c); err == nil || !strings.Contains(err.Error(), "cannot be closed for writing only") {
		t.Errorf("Bridge: %v", err)
	}
	if _, err := a.Write([]byte("x")); err == nil {
		t.Error("Bridge left a connection open")
	}
}
