package traffic

import (
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// A process that says ever more does not fill the log or the memory: what is too
// much is summed up.
func TestAccountsAreBounded(t *testing.T) {
	var a Account
	now := time.Unix(1e9, 0)
	id := func(i int) [16]byte { return [16]byte{byte(i), byte(i >> 8), byte(i >> 16)} }
	for i := range maxOpenLinks + 5 {
		a.Take(overlay.Traffic{Link: id(i)}, now)
	}
	if len(a.open) != maxOpenLinks {
		t.Errorf("%d open links", len(a.open))
	}
	written := 0
	ends := func(n int) {
		for i := range n {
			if _, write := a.Take(overlay.Traffic{Link: id(1<<20 + i), Sent: 2, Over: true}, now); write {
				written++
			}
			a.Passable(now, false)
		}
	}
	ends(maxEnded + 100)
	if written != maxEnded || a.surplus != (Surplus{100, 200, 0}) || len(a.ended) >= MaxPassed {
		t.Errorf("%d written, %d kept, %+v", written, len(a.ended), a.surplus)
	}
	now = now.Add(time.Second)
	ends(endsPerSec)
	if written != maxEnded+endsPerSec {
		t.Errorf("a second later %d were written", written)
	}
	now = now.Add(-time.Hour) // a clock may be set
	ends(1)
	if a.room < 0 || a.surplus.Links != 101 {
		t.Errorf("%v, %+v", a.room, a.surplus)
	}
}

// Few ends wait for others, but not for long.
func TestEndsWaitForOthers(t *testing.T) {
	var a Account
	now := time.Unix(1e9, 0)
	a.Take(overlay.Traffic{Over: true}, now)
	if got := a.Passable(now, false); got != nil {
		t.Errorf("at once: %v", got)
	}
	if got := a.Passable(now.Add(passAfter), false); len(got) != 1 {
		t.Errorf("later: %v", got)
	}
	a.Take(overlay.Traffic{Over: true}, now)
	if got := a.Passable(now, true); len(got) != 1 || len(a.Passable(now, true)) != 0 {
		t.Errorf("when it leaves: %v", got)
	}
}
