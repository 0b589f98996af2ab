//go:build system

package connhelper

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/limit/dialwindow"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// occupy takes all turns of a helper's window until the test calls the returned function.
func occupy(t *testing.T, h *Helper) (release func()) {
	t.Helper()
	var slots []*dialwindow.Slot
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		slot, err := h.outbound.window.Wait(ctx)
		cancel()
		if errors.Is(err, dialwindow.ErrNoSlot) {
			return func() {
				for _, slot := range slots {
					slot.End()
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, slot)
	}
}

// The target of a relay does not accept before its turn to dial has come, so that the asker does
// not wait at the proxy for it; what the asker had dialled meanwhile, and a proxy may have closed,
// is dialled again.
func TestTargetWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	f := newFakeFrontal(t, open, overlay.Relay)
	f.startRelay(&wire.Ticket{Job: key.ID(), Proxy: "p1"})
	s1, _ := f.helper("a1")
	s2, _ := f.helper("a2")
	release := occupy(t, f.last)
	r0, r1 := join(t, s1, key, 0), join(t, s2, key, 1)
	time.AfterFunc(ticketTime+ticketTime/4, func() {
		f.mu.Lock()
		if f.asked != 1 || f.accepted != 0 {
			t.Errorf("%d signalling requests, %d accepted before the target's turn", f.asked, f.accepted)
		}
		f.mu.Unlock()
		release()
	})
	path, c := r0.dialled(1)
	_, d := r1.incoming()
	if path.Technique != overlay.Relay {
		t.Errorf("path %v", path)
	}
	joined(t, c, d)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unused != 1 {
		t.Errorf("%d connections without a ticket, want 1", f.unused)
	}
}

// An asker makes no signalling request before its turn has come, and reports what it waited for.
func TestAskerWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	f := newFakeFrontal(t, open, overlay.Relay)
	f.startRelay(&wire.Ticket{Job: key.ID(), Proxy: "p1"})
	s1, _ := f.helper("a1")
	release := occupy(t, f.last)
	s2, _ := f.helper("a2")
	r0 := join(t, s1, key, 0)
	join(t, s2, key, 1)
	r0.failedAs(1, 500*time.Millisecond, wire.CodeOverloaded, "its turn to open a connection did not come")
	f.mu.Lock()
	if f.asked != 0 {
		t.Errorf("%d signalling requests", f.asked)
	}
	f.mu.Unlock()
	release()
	r0.dialled(1)
}

// Where the site lets few connections through, techniques that need several are skipped.
func TestLimitedSite(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	f := newFakeFrontal(t, open, overlay.SimultaneousOpen, overlay.Relay)
	f.startRelay(&wire.Ticket{Job: key.ID(), Proxy: "p1"})
	s1, _ := f.helper("a1")
	h := f.last
	s2, _ := f.helper("a2")
	for h.outbound.window.Limited() == nil { // two rounds of answers that took a second
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				dialwindow.Dial(t.Context(), h.outbound.window, func(context.Context) (int, error) {
					time.Sleep(time.Second)
					return 0, nil
				})
			})
		}
		all.Wait()
	}
	r0 := join(t, s1, key, 0)
	join(t, s2, key, 1)
	r0.send(&wire.LocalDial{Request: 1, Rank: 1, Budget: 10 * time.Second, Ways: overlay.DirectOnly})
	if f, _ := r0.next(); f == nil {
		t.Error("nothing was said")
	} else if got, ok := f.(*wire.LocalFailed); !ok || got.Code != wire.CodeOverloaded {
		t.Errorf("got %+v", f)
	}
	if path, _ := r0.dialled(1); path.Technique != overlay.Relay {
		t.Errorf("path %v", path)
	}
}
