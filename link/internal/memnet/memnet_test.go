package memnet

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// What is written arrives after the delay, in order, and then the end; a full buffer and an empty one
// hold up the writer and the reader, until a deadline.
func TestConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pair(Options{Delay: time.Millisecond, Buffer: 8})
		start := time.Now()
		if n, err := a.TryWriteVec([]byte("abcd"), []byte("efghij")); n != 8 || err != nil {
			t.Errorf("tried: %d, %v", n, err)
		}
		a.SetWriteDeadline(start.Add(time.Second))
		if n, err := a.Write([]byte("k")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("full: %d, %v after %v", n, err, time.Since(start))
		}
		a.SetWriteDeadline(time.Time{})
		go func() {
			a.Write([]byte(strings.Repeat("x", 100)))
			a.CloseWrite()
		}()
		one, two := make([]byte, 3), make([]byte, 3)
		if n, err := b.ReadVec(one, two); n != 6 || err != nil || string(one)+string(two) != "abcdef" {
			t.Errorf("%d, %v: %s%s", n, err, one, two)
		}
		if got, err := io.ReadAll(b); string(got) != "gh"+strings.Repeat("x", 100) || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if took := time.Since(start) - time.Second; took < 10*time.Millisecond || took > 20*time.Millisecond {
			t.Errorf("100 bytes, of which 8 fit into a buffer, took %v", took)
		}
		a.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := a.Read(one); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a deadline: %v", err)
		}
		a.Close()
		if _, err := a.Read(one); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		if _, err := b.Write(one); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("the peer has closed: %v", err)
		}
	})
}

// A reset ends the waits of the peer behind what was under way, and a reading end loses that.
func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pair(Options{Delay: time.Millisecond})
		a.Write([]byte("word"))
		go a.Reset()
		got := make([]byte, 4)
		if _, err := io.ReadFull(b, got); string(got) != "word" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := b.Read(got); !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
		if _, err := b.Write(make([]byte, 4)); !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
	})
}
