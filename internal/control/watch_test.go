package control_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// hole is a connection that can be made to drop everything, like a path through a firewall that
// lost its state. No kernel acknowledges the data.
type hole struct {
	net.Conn
	shut  chan struct{} // closed when nothing passes any more
	reads atomic.Int64
}

func (h *hole) Read(b []byte) (int, error) {
	for {
		n, err := h.Conn.Read(b)
		select {
		case <-h.shut:
			if err == nil {
				continue // it never arrived
			}
		default:
			h.reads.Add(1)
		}
		return n, err
	}
}

func (h *hole) Write(b []byte) (int, error) {
	select {
	case <-h.shut:
		return len(b), nil
	default:
		return h.Conn.Write(b)
	}
}

// dialHole opens a session through a hole.
func dialHole(t *testing.T, g *grid, addr string) (*control.Session, *hole) {
	t.Helper()
	h := &hole{shut: make(chan struct{})}
	s, err := endpoint(t, g.creds(frontal), admin{}).Dial(t.Context(), control.DialConfig{
		Addr: addr, Role: control.RoleBroker,
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			h.Conn = c
			return h, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, h
}

// TestSilentPath: a call on a session whose path has died fails long before keepalive detects that,
// with an error that says so and may be retried.
func TestSilentPath(t *testing.T) {
	g := newGrid(t)
	s, h := dialHole(t, g, serve(t, endpoint(t, g.creds(broker), admin{}), nil, nil))
	client := controlpb.NewAdminClient(s.Conn())
	if _, err := client.Status(t.Context(), &controlpb.StatusRequest{}); err != nil {
		t.Fatal(err)
	}
	close(h.shut)
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := client.Status(ctx, &controlpb.StatusRequest{})
	err = control.FromStatus(err)
	told := regexp.MustCompile(`the session with broker main ended: nothing received for (\S+), not even an answer to a ping`).FindStringSubmatch(fmt.Sprint(err))
	if !errors.Is(err, overlay.ErrNoSession) || !errors.Is(err, overlay.ErrUnreachable) || told == nil {
		t.Fatalf("the call failed with %v", err)
	}
	const silence = time.Second
	if d, err := time.ParseDuration(told[1]); err != nil || d < silence {
		t.Errorf("nothing received for %s, want %v or longer", told[1], silence)
	}
	t.Logf("noticed after %v", time.Since(begun).Round(time.Millisecond))
	testkit.Receive(t, "the session's end", s.Done())
}

// TestMovedAway: when the host loses the address of a session, Keep opens another at once.
func TestMovedAway(t *testing.T) {
	g := newGrid(t)
	addr := serve(t, endpoint(t, g.creds(broker), admin{}), nil, nil)
	client := endpoint(t, g.creds(frontal), admin{})
	var gone atomic.Bool
	asked := make(chan struct{}, 1)
	client.SetHasAddress(func(a netip.Addr) bool {
		if a.String() != "127.0.0.1" {
			t.Errorf("asked for %v", a)
		}
		has := !gone.Load() // read before the test learns of the call, and removes the address
		select {
		case asked <- struct{}{}:
		default:
		}
		return has
	})
	var why atomic.Value
	ups := make(chan *control.Session)
	ctx, cancel := context.WithCancel(t.Context())
	var kept sync.WaitGroup
	kept.Go(func() {
		client.Keep(ctx, control.DialConfig{Addr: addr, Role: control.RoleBroker, Down: func(err error) { why.Store(err.Error()); gone.Store(false) }},
			func(ctx context.Context, s *control.Session) error {
				select {
				case ups <- s:
				case <-ctx.Done():
				}
				return nil
			})
	})
	first := testkit.Receive(t, "a session", ups)
	testkit.Receive(t, "a look at its address", asked) // an address that was never the host's is not watched
	gone.Store(true)
	begun := time.Now()
	if second := testkit.Receive(t, "another session", ups); second == first {
		t.Error("the same session came up twice")
	}
	t.Logf("a new session after %v", time.Since(begun).Round(time.Millisecond))
	testkit.Receive(t, "the first one's end", first.Done())
	if got := why.Load(); got != "the session with broker main ended: its own end, 127.0.0.1, is no longer an address of this host" {
		t.Errorf("the first one ended because %q", got)
	}
	cancel()
	kept.Wait()
}

func BenchmarkHasAddress(b *testing.B) {
	a := netip.MustParseAddr("127.0.0.1")
	b.ReportAllocs()
	for b.Loop() {
		if !carrier.HasAddress(a) {
			b.Fatal("no loopback")
		}
	}
}
