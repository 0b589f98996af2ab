package connhelper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Reserve assigns the relay, as a frontal and its broker do.
func (f *fakeFrontal) Reserve(ctx context.Context, r *controlpb.SignalRequest) (*controlpb.Reserved, error) {
	name, err := control.ProcessFromPB(r.Target)
	if err != nil {
		return nil, control.Status(err)
	}
	asker, err := control.ProcessFromPB(r.Asker)
	if err != nil {
		return nil, control.Status(err)
	}
	f.mu.Lock()
	f.reserves++
	node, life := f.points[name].Node, f.points[asker].Generation
	helper, relay := f.helpers[node.Name], f.relay
	err = f.fails[overlay.Relay]
	f.mu.Unlock()
	if err == nil && helper == nil { // it has withdrawn meanwhile
		err = overlay.ErrUnknownProcess
	}
	if err != nil {
		return nil, control.Status(err)
	}
	_, err = controlpb.NewTargetClient(helper.Conn()).Reserve(ctx, &controlpb.Signal{
		Link: r.Link, Technique: r.Technique, Asker: r.Asker, AskerSite: "sitea", AskerNode: r.AskerNode,
		Target: r.Target, TargetGeneration: r.TargetGeneration, AskerGeneration: uint64(life), Relay: relay, LifeMs: 600_000,
	})
	if err != nil {
		return nil, err
	}
	return &controlpb.Reserved{Relay: relay, LifeMs: 600_000, TargetSite: "sitea", TargetNode: node.Name}, nil
}

func (f *fakeFrontal) life(rank uint32) overlay.Generation {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, p := range f.points {
		if name.Rank == rank {
			return p.Generation
		}
	}
	f.t.Fatalf("rank %d is not registered", rank)
	return 0
}

// keeps waits until a helper has n relays in reserve.
func keeps(t *testing.T, h *Helper, n int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); h.reserves.kept.Held(time.Now()) != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%v keeps %d relays in reserve, want %d", h.node, h.reserves.kept.Held(time.Now()), n)
		}
	}
}

// TestReserveIsDialled: a relay that is kept for a link connects its ends while there is no
// frontal, once.
func TestReserveIsDialled(t *testing.T) {
	key := newKey(t)
	f := newFakeFrontal(t, open, overlay.Relay)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	stop := f.start(ln)
	f.startRelay(&wire.Ticket{Job: key.ID(), Proxy: "p1"})
	s1, _ := f.helper("a1")
	h1 := f.last
	s2, _ := f.helper("a2")
	h2 := f.last
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	if got := r0.failedBy(1, overlay.Reserved, time.Minute); got.Code != wire.CodeNoRelay {
		t.Errorf("before there was one: %+v", got)
	}
	r0.send(&wire.LocalReserve{Rank: 1, Generation: f.life(1)})
	keeps(t, h1, 1)
	keeps(t, h2, 1)
	r1.send(&wire.LocalReserve{Rank: 0, Generation: f.life(0)}) // has one already
	stop()
	done := make(chan struct{})
	var path overlay.Path
	var c net.Conn
	go func() {
		defer close(done)
		d, got := r0.dial(1, overlay.Reserved)
		path, c = d.Path, got
	}()
	in, d := r1.dial(0, overlay.Reserved)
	<-done
	if path.String() != "relay through p1" || path.Peer.String() != "sitea/a2" || in.Path.Peer.String() != "sitea/a1" {
		t.Errorf("paths %+v, %+v", path, in.Path)
	}
	joined(t, c, d)
	if got := r0.failedBy(1, overlay.Reserved, time.Minute); got.Code != wire.CodeNoRelay {
		t.Errorf("once more: %+v", got)
	}
	keeps(t, h1, 0)
	if f.mu.Lock(); f.reserves != 1 {
		t.Errorf("asked for %d relays", f.reserves)
	}
	f.mu.Unlock()
}

// TestUntilReached: a reserve is not spent on a proxy that is held up for a moment.
func TestUntilReached(t *testing.T) {
	for _, tc := range []struct {
		err   error
		times int // how often the dial fails
		want  error
		dials int
	}{
		{nil, 0, nil, 1},
		{overlay.ErrRefused, 1, nil, 2},
		{overlay.ErrUnreachable, 3, nil, 4},
		{overlay.ErrTimeout, 2, nil, 3},
		{overlay.ErrForbidden, 9, overlay.ErrForbidden, 1},
		{overlay.ErrRefused, 1000, overlay.ErrRefused, 14}, // until the context ends
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			dials := 0
			_, err := untilReached(ctx, func() (none struct{}, err error) {
				if dials++; dials <= tc.times {
					err = tc.err
				}
				return none, err
			})
			if !errors.Is(err, tc.want) || dials != tc.dials {
				t.Errorf("%v %d times: %v after %d dials, want %v after %d", tc.err, tc.times, err, dials, tc.want, tc.dials)
			}
		})
	}
}

// TestNoReserveFromWhoHasNone: a refused request is not repeated at once, and a process that leaves
// takes its relays with it.
func TestNoReserveFromWhoHasNone(t *testing.T) {
	key := newKey(t)
	f := newFakeFrontal(t, open, overlay.Relay)
	f.startRelay(&wire.Ticket{Job: key.ID(), Proxy: "p1"})
	s1, _ := f.helper("a1")
	h1 := f.last
	s2, _ := f.helper("a2")
	r0, _ := join(t, s1, key, 0), join(t, s2, key, 1)
	f.mu.Lock()
	f.fails = map[overlay.Technique]error{overlay.Relay: fmt.Errorf("%w: an older broker", wire.ErrVersion)}
	f.mu.Unlock()
	for range 3 {
		r0.send(&wire.LocalReserve{Rank: 1, Generation: f.life(1)})
		r0.failedBy(1, overlay.Reserved, time.Minute) // behind which it is seen
	}
	testkit.Until(t, "the request, which is made in the background", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.reserves > 0
	})
	if f.mu.Lock(); f.reserves > 1 {
		t.Errorf("asked %d times", f.reserves)
	}
	f.fails = nil
	f.mu.Unlock()
	r0.send(&wire.LocalReserve{Rank: 1, Generation: f.life(1) + 1}) // of another generation, which the target refuses
	r0.failedBy(1, overlay.Reserved, time.Minute)
	r0.conn.Close()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		n := h1.reserves.kept.Len()
		if n == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d are remembered of a process that has left", n)
		}
	}
}
