package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/overlay"
)

func TestLedger(t *testing.T) {
	now := time.Unix(1000, 0)
	l := newLedger(now)
	alice := overlay.Principal{User: "alice", Project: "climate"}
	record := func(job overlay.JobID, site overlay.SiteID) *account.LinkEnded {
		return &account.LinkEnded{Principal: alice, Job: job, Nodes: []overlay.NodeID{{Site: "sitea"}, {Site: site}}, Traffic: carrier.Stats{AToB: 1 << 63, BToA: 2}}
	}
	written := func(n int) (k int) {
		for range n {
			if l.take(record("j", "siteb"), now) {
				k++
			}
		}
		return k
	}
	if k := written(Room + 5); k != Room {
		t.Errorf("%d were written at once", k)
	}
	now = now.Add(time.Second)
	if k := written(100); k != PerSecond {
		t.Errorf("%d were written a second later", k)
	}
	now = now.Add(-time.Hour) // a clock that is set back gives nothing
	if k := written(1); k != 0 {
		t.Errorf("%d were written by a clock that was set back", k)
	}
	now = now.Add(time.Hour)
	if keys, _ := l.due(now, false); keys != nil {
		t.Errorf("sums are due after a second: %v", keys)
	}
	for i := range maxSums + 10 {
		l.room = 0
		l.take(record(overlay.JobID(fmt.Sprint("k", i)), "sitec"), now)
	}
	keys, sums := l.due(now.Add(sumFor), false)
	if len(keys) != maxSums+1 || len(sums) != len(keys) {
		t.Fatalf("%d sums", len(keys))
	}
	if s := sums[sumKey{}]; keys[0] != (sumKey{}) || s.links != 11 || s.sent != 1<<64-1 || s.received != 22 {
		t.Errorf("those that are too many: %+v", s)
	}
	if s := sums[sumKey{alice, "j", "siteb"}]; s.links != 5+100-PerSecond+1 {
		t.Errorf("of the first job: %+v", s)
	}
	if keys, _ := l.due(now, true); keys != nil || l.idle(now) || !l.idle(now.Add(time.Hour)) {
		t.Errorf("it has not begun anew: %v", keys)
	}
	l.room = 0
	l.take(record("j", "siteb"), now)
	if keys, _ := l.due(now, true); len(keys) != 1 {
		t.Errorf("at the end: %v", keys)
	}
}
