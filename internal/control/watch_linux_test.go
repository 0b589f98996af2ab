package control_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/overlay"
)

// TestAcknowledged: data that the far kernel accepted counts, even if no process reads it.
func TestAcknowledged(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent := control.SentOn(c)
	acked := func() uint64 { n, _ := sent(); return n }
	before, total := sent()
	if total != before {
		t.Errorf("%d bytes written, of which %d are acknowledged, before any was", total, before)
	}
	if _, err := c.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for acked() < before+100 {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes before, %d after 100 more were written", before, acked())
		}
		runtime.Gosched()
	}
	if _, total := sent(); total != before+100 {
		t.Errorf("%d bytes written, want %d", total, before+100)
	}
}

// TestAddressOfHost: a real host, whose address changes.
func TestAddressOfHost(t *testing.T) {
	l := newLab(t)
	h := l.Host("alpha/n1")
	old := h.Addr()
	next := old.Next().Next().Next()
	has := func(a netip.Addr) (has bool) {
		t.Helper()
		if err := h.Do(func() error { has = carrier.HasAddress(a); return nil }); err != nil {
			t.Fatal(err)
		}
		return has
	}
	if !has(old) || has(next) {
		t.Errorf("at first: %v %t, %v %t", old, has(old), next, has(next))
	}
	if err := h.Renumber(old, next); err != nil {
		t.Fatal(err)
	}
	if has(old) || !has(next) {
		t.Errorf("after the change: %v %t, %v %t", old, has(old), next, has(next))
	}
}

// newLab returns a host behind a firewall, and a public one.
func newLab(t *testing.T) *lab.Lab {
	t.Helper()
	l, err := lab.Up(t.Context(), lab.Spec{Sites: []lab.Site{
		{Name: "alpha", Preset: "stateful", Nodes: lab.Nodes(1)},
		{Name: "pub", Preset: lab.Public, Nodes: []string{"broker"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("lab: %v", err)
		}
	})
	return l
}

// TestDroppedPath: TestSilentPath on a real network, with the kernel involved. Both ends detect the
// failure, each by its own call.
func TestDroppedPath(t *testing.T) {
	l := newLab(t)
	near, far := l.Host("alpha/n1"), l.Host("pub/broker")
	ln, err := far.Listen("tcp", ":9000")
	if err != nil {
		t.Fatal(err)
	}
	g := newGrid(t)
	joined := make(chan *control.Session, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	var served sync.WaitGroup
	defer served.Wait()
	defer cancel()
	server := endpoint(t, g.creds(broker), admin{})
	served.Go(func() {
		server.Serve(ctx, ln, nil, func(_ context.Context, s *control.Session) { joined <- s })
	})
	s, err := endpoint(t, g.creds(frontal), admin{}).Dial(ctx, control.DialConfig{
		Addr: far.Addr().String() + ":9000", Role: control.RoleBroker,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) { return near.Dial(ctx, "tcp", addr) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ends := []*control.Session{s, receive(t, "the other end", joined)}
	for _, end := range ends {
		if _, err := controlpb.NewAdminClient(end.Conn()).Status(ctx, &controlpb.StatusRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Host("alpha/gw").Drop(lab.Everything(near.Addr(), far.Addr())); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	var calls sync.WaitGroup
	for _, end := range ends {
		calls.Go(func() {
			_, err := controlpb.NewAdminClient(end.Conn()).Status(ctx, &controlpb.StatusRequest{})
			if err = control.FromStatus(err); !errors.Is(err, overlay.ErrNoSession) {
				t.Errorf("a call to %v failed with %v", end.Peer(), err)
			}
			t.Logf("noticed after %v", time.Since(begun).Round(time.Millisecond))
		})
	}
	calls.Wait()
}
