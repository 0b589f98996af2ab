package proxy

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

const job = overlay.JobID("demo-00112233445566778899aabbccddeeff")

// rig is a Server under test with one listener.
type rig struct {
	*Server
	t    testing.TB
	key  ticket.Key
	addr string
	stop context.CancelFunc
	done chan error
	log  *logBuffer
}

// start serves with the given settings, over suitable defaults, until the test ends or stop is
// called.
func start(t testing.TB, set Settings) *rig {
	t.Helper()
	if set.Name == "" {
		set.Name = "p1"
	}
	if set.Key == (ticket.Key{}) {
		set.Key = ticket.NewKey()
	}
	ln, err := carrier.ListenIn(context.Background(), netip.MustParseAddr("127.0.0.1"), overlay.Ports{})
	if err != nil {
		t.Fatal(err)
	}
	logged := new(logBuffer)
	r := &rig{
		Server: New(set, slog.New(slog.NewTextHandler(logged, nil))),
		t:      t, key: set.Key, addr: ln.Addr().String(), done: make(chan error, 1), log: logged,
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.done <- r.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-r.done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
			r.done <- nil // for a test that waits itself
		case <-time.After(30 * time.Second):
			t.Error("Serve did not return")
		}
	})
	return r
}

// logBuffer is a log that tests may read while it grows.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// tickets returns a broker's pair of tickets for a new link from rank 3 to rank 5.
func (r *rig) tickets(change ...func(*wire.Ticket)) [2]*wire.Ticket {
	claims := wire.Ticket{Job: job, Asker: 3, Target: 5, Proxy: "p1", Expires: uint64(time.Now().Add(time.Minute).UnixMilli())}
	rand.Read(claims.Link[:])
	for _, f := range change {
		f(&claims)
	}
	var pair [2]*wire.Ticket
	for end := range pair {
		claims.End = uint8(end)
		t := ticket.Issue(r.key, claims)
		pair[end] = &t
	}
	return pair
}

// dial connects to the proxy and sends raw bytes.
func (r *rig) dial(b []byte) *net.TCPConn {
	r.t.Helper()
	c, err := carrier.DialTCP(context.Background(), r.addr, carrier.HTTPProxy{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second)) // a bound, never reached
	if _, err := c.Write(b); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// show connects to the proxy with a ticket.
func (r *rig) show(t *wire.Ticket) *net.TCPConn {
	r.t.Helper()
	return r.dial(wire.Append(nil, t))
}

// link returns the two ends of a joined link.
func (r *rig) link(change ...func(*wire.Ticket)) (asker, target *net.TCPConn) {
	r.t.Helper()
	pair := r.tickets(change...)
	return r.show(pair[0]), r.show(pair[1])
}

// until waits for a condition on the server's status.
func (r *rig) until(what string, ok func(Status) bool) Status {
	r.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		st := r.Status()
		if ok(st) {
			return st
		}
		if time.Now().After(end) {
			r.t.Fatalf("waited 30s for %s; the status is %+v", what, st)
		}
	}
}

// echoes checks that a link carries bytes both ways.
func echoes(t testing.TB, a, b *net.TCPConn) {
	t.Helper()
	for i, pair := range [][2]*net.TCPConn{{a, b}, {b, a}} {
		text := fmt.Sprintf("message %d", i)
		got := make([]byte, len(text))
		if _, err := io.WriteString(pair[0], text); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(pair[1], got); err != nil || string(got) != text {
			t.Fatalf("%q, %v; want %q", got, err, text)
		}
	}
}
