//go:build system

package control_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/overlay"
)

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
	ends := []*control.Session{s, testkit.Receive(t, "the other end", joined)}
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

// patient answers Status when the test permits it.
type patient struct {
	controlpb.UnimplementedAdminServer
	came chan<- struct{}
	may  <-chan struct{}
}

func (p patient) Status(ctx context.Context, _ *controlpb.StatusRequest) (*controlpb.StatusResponse, error) {
	close(p.came)
	select {
	case <-p.may:
	case <-ctx.Done():
	}
	return &controlpb.StatusResponse{}, nil
}

// TestSlowPeer: a peer that is alive but slow to answer is waited for.
func TestSlowPeer(t *testing.T) {
	g := newGrid(t)
	came, may := make(chan struct{}), make(chan struct{})
	s, h := dialHole(t, g, serve(t, endpoint(t, g.creds(broker), patient{came: came, may: may}), nil, nil))
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		_, err := controlpb.NewAdminClient(s.Conn()).Status(ctx, &controlpb.StatusRequest{})
		done <- err
	}()
	testkit.Receive(t, "the call at the other end", came)
	// The start of the call, and then two signs of life.
	before := h.reads.Load()
	for h.reads.Load() < before+4 {
		select {
		case err := <-done:
			t.Fatalf("the call ended: %v", control.FromStatus(err))
		case <-time.After(10 * time.Millisecond):
		}
	}
	close(may)
	if err := testkit.Receive(t, "the answer", done); err != nil {
		t.Error(control.FromStatus(err))
	}
}
