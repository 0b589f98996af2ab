package reserve

import (
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// TestReserves: what is kept, for how long, and how much of it.
func TestReserves(t *testing.T) {
	now := time.Now()
	var r Table[uint32]
	const p, q, others = 1, 2, 3
	full := func() *Relay[uint32] {
		return (&Relay[uint32]{Relay: &controlpb.Assignment{Proxy: "p1"}, Life: 7}).Expiring(600_000, now)
	}
	if !r.Wants(p, 1, 7, now) || r.Wants(p, 1, 7, now.Add(retryAfter/2)) || !r.Wants(p, 1, 7, now.Add(retryAfter)) {
		t.Error("one that is being got is wanted when it takes too long, and not before")
	}
	if r.Take(p, 1, now) != nil || r.Held(now) != 0 {
		t.Error("one that is being got was taken")
	}
	r.Failed(p, 1, overlay.ErrForbidden, now)
	if r.Wants(p, 1, 7, now.Add(refusedRetryAfter-time.Second)) || !r.Wants(p, 1, 7, now.Add(refusedRetryAfter)) {
		t.Error("one that is refused is wanted after a while, and not before")
	}
	r.Keep(p, 1, full())
	r.Keep(q, 1, full())
	if r.Wants(p, 1, 7, now.Add(6*time.Minute)) || !r.Wants(p, 1, 7, now.Add(8*time.Minute)) || !r.Wants(p, 1, 8, now) {
		t.Error("one that is kept is wanted some minutes before its end, or for another life")
	}
	r.Keep(p, 1, full())
	if r.Take(p, 1, now) == nil || r.Take(p, 1, now) != nil {
		t.Error("one is taken once")
	}
	r.Keep(p, 1, full())
	if r.Take(p, 1, now.Add(10*time.Minute)) != nil {
		t.Error("one was taken after its end")
	}
	if r.Held(now) != 1 {
		t.Errorf("%d are held of another process", r.Held(now))
	}
	for i := range uint32(maxRelaysEach + 2) {
		r.Keep(p, i, full())
	}
	if r.Take(p, 1, now) != nil || r.Take(p, 2, now) == nil || r.Take(q, 1, now) == nil {
		t.Error("the oldest of the process goes, and nobody else's")
	}
	for i := range uint32(maxRelays) {
		r.Keep(others+i, i, full())
	}
	if n := r.Held(now); n != maxRelays {
		t.Errorf("%d are held", n)
	}
	r.Forget(p)
	if n := r.Held(now); n != maxRelays || r.Len() != maxRelays {
		t.Errorf("%d are held, %d counted, after those of a process had gone as the oldest", n, r.Len())
	}
}
