// Package testkit has what the tests of several packages do to each other's goroutines and
// connections. Everything fails the test that asks for it; nothing keeps a state.
package testkit

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience bounds every wait. It only affects how long a broken test takes.
const Patience = time.Minute

// Receive returns the next value of a channel, or the zero value once it is closed.
func Receive[T any](t testing.TB, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(Patience):
		t.Fatalf("waited %v for %s", Patience, what)
	}
	return v
}

// Until waits for something that is under way to have happened.
func Until(t testing.TB, what string, happened func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(Patience); !happened(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited %v for this: %s", Patience, what)
		}
	}
}

// Listen returns a listener on this host, which is closed when the test ends.
func Listen(t testing.TB) *net.TCPListener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.(*net.TCPListener)
}

// Exchange sends 300 kB in each direction between two ends of TCP connections concurrently, ends each
// direction separately, and checks the received data.
func Exchange(t testing.TB, a, b net.Conn) {
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
