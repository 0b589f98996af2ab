package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

const job = overlay.JobID("demo-0123456789abcdef0123456789abcdef")

var epoch0 = time.Date(2026, 1, 2, 12, 3, 5, 0, time.Local)

func proc(rank uint32) overlay.ProcessName { return overlay.ProcessName{Job: job, Rank: rank} }

// patience bounds every wait of the tests. It only affects how long a broken test takes.
const patience = time.Minute

// exchange sends 300 kB in each direction concurrently, ends each direction separately, and checks
// the received data.
func exchange(t *testing.T, a, b net.Conn) {
	t.Helper()
	const size = 300_000
	send := func(c net.Conn, fill byte) error {
		_, err := c.Write([]byte(strings.Repeat(string(fill), size)))
		return errors.Join(err, c.(*net.TCPConn).CloseWrite())
	}
	receive := func(c net.Conn, fill byte) error {
		got, err := io.ReadAll(c)
		if err == nil && (len(got) != size || strings.Trim(string(got), string(fill)) != "") {
			err = fmt.Errorf("%d bytes arrived, or not those that were sent", len(got))
		}
		return err
	}
	var wg sync.WaitGroup
	for _, work := range []func() error{
		func() error { return send(a, 'a') }, func() error { return send(b, 'b') },
		func() error { return receive(a, 'b') }, func() error { return receive(b, 'a') },
	} {
		wg.Go(func() {
			if err := work(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// receive returns the next value of a channel, or the zero value once it is closed.
func receive[T any](t testing.TB, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("waited %v for %s", patience, what)
	}
	return v
}

func listenLoop(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// until waits for a pending event.
func until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !happened(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited %v for this: %s", patience, what)
		}
	}
}
