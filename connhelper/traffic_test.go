package connhelper

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

func traffic(link byte, sent uint64, over bool) *wire.LocalTraffic {
	return &wire.LocalTraffic{Traffic: overlay.Traffic{
		Link: [16]byte{link}, Rank: uint32(link), Peer: overlay.NodeID{Site: "siteb", Name: "b1"}, Technique: overlay.HolePunching,
		Sent: sent, Received: 3, Lasted: time.Second, Over: over,
	}}
}

// Processes' reports of what their links have moved are in the helper's audit log and sent to the
// frontal while it still knows the process; for one that was killed, at least its last report
// counts.
func TestTrafficIsAudited(t *testing.T) {
	f := newFakeFrontal(t, open)
	folder := t.TempDir()
	trail, err := audit.Open(audit.Config{Folder: folder, Size: 1 << 20, OnFailure: "go-on"}, "helper sitea/a1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer trail.Start()()
	f.audit = trail
	socket, stop := f.helper("a1")
	key := newKey(t)
	leaves, killed := join(t, socket, key, 0), join(t, socket, key, 9)
	leaves.send(traffic(1, 0, false))
	leaves.send(traffic(1, 2e12, true))
	leaves.send(traffic(2, 7, true))
	leaves.send(&wire.LocalLeave{})
	leaves.conn.Close()
	killed.send(traffic(3, 50, false))
	killed.send(traffic(3, 60, false))
	until(t, "the helper knows of one link", func() bool { return f.last.ownLinks.Load() == 1 })
	killed.conn.Close()
	until(t, "both were withdrawn", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.points) == 0
	})
	stop()
	if n := f.last.ownLinks.Load(); n != 0 {
		t.Errorf("%d links are still counted", n)
	}

	told := map[uint32]*controlpb.LinkAccount{}
	for _, r := range f.accounts {
		for _, l := range r.Links {
			told[l.Rank] = l
		}
	}
	if len(told) != 3 || told[1].Sent != 2e12 || told[1].UnsaidMs != 0 || told[2].Sent != 7 || told[3].Sent != 60 || told[3].UnsaidMs == 0 || told[1].Node != "siteb/b1" {
		t.Errorf("the frontal was told %v", told)
	}
	ends := map[string]audit.Record{}
	until(t, "the audit log has the ends", func() bool {
		chains, err := audit.Chains([]string{folder})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := audit.Read(chains[0].Files, func(r *audit.Record) error {
			if r.Event == audit.LinkEnd {
				ends[r.Link[:2]] = *r
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return len(ends) == 3
	})
	if r := ends["01"]; r.Sent != 2e12 || r.Received != 3 || r.Seconds != 1 || r.Technique != "hole-punching" || r.Rule != audit.OwnWord ||
		!slices.Equal(r.Sites, []string{"sitea", "siteb"}) || !slices.Equal(r.Nodes, []string{"a1", "b1"}) || !slices.Equal(r.Ranks, []uint32{0, 1}) ||
		r.Job != string(key.ID()) || r.User == "" || !strings.Contains(r.Reason, "are what the process says") {
		t.Errorf("%+v", r)
	}
	if r := ends["03"]; r.Sent != 60 || r.Seconds < 1 || !strings.Contains(r.Reason, "at least") {
		t.Errorf("of the killed: %+v", r)
	}
}

// A process on another socket is the same one, and its links live on.
func TestTrafficOfAProcessThatComesAgain(t *testing.T) {
	f := newFakeFrontal(t, open)
	socket, _ := f.helper("a1")
	key := newKey(t)
	first := join(t, socket, key, 0)
	first.send(traffic(1, 10, false))
	again := join(t, socket, key, 0)
	again.send(traffic(1, 10, false))
	again.send(traffic(1, 30, true))
	again.conn.Close()
	until(t, "it was withdrawn", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.points) == 0
	})
	if len(f.accounts) != 1 || len(f.accounts[0].Links) != 1 || f.accounts[0].Links[0].Sent != 30 {
		t.Errorf("the frontal was told %v", f.accounts)
	}
}

// A process that sends ever more reports does not fill the log or the memory: the excess is summed
// up.
func TestAccountsAreBounded(t *testing.T) {
	var a accounts
	now := time.Unix(1e9, 0)
	id := func(i int) [16]byte { return [16]byte{byte(i), byte(i >> 8), byte(i >> 16)} }
	for i := range maxOpenLinks + 5 {
		a.take(overlay.Traffic{Link: id(i)}, now)
	}
	if len(a.open) != maxOpenLinks {
		t.Errorf("%d open links", len(a.open))
	}
	written := 0
	ends := func(n int) {
		for i := range n {
			if _, write := a.take(overlay.Traffic{Link: id(1<<20 + i), Sent: 2, Over: true}, now); write {
				written++
			}
			a.passable(now, false)
		}
	}
	ends(maxEnded + 100)
	if written != maxEnded || a.surplus != (surplus{100, 200, 0}) || len(a.ended) >= maxPassed {
		t.Errorf("%d written, %d kept, %+v", written, len(a.ended), a.surplus)
	}
	now = now.Add(time.Second)
	ends(endsPerSec)
	if written != maxEnded+endsPerSec {
		t.Errorf("a second later %d were written", written)
	}
	now = now.Add(-time.Hour) // a clock may be set
	ends(1)
	if a.room < 0 || a.surplus.links != 101 {
		t.Errorf("%v, %+v", a.room, a.surplus)
	}
}

// A few ends wait for others, but not for long.
func TestEndsWaitForOthers(t *testing.T) {
	var a accounts
	now := time.Unix(1e9, 0)
	a.take(overlay.Traffic{Over: true}, now)
	if got := a.passable(now, false); got != nil {
		t.Errorf("at once: %v", got)
	}
	if got := a.passable(now.Add(passAfter), false); len(got) != 1 {
		t.Errorf("later: %v", got)
	}
	a.take(overlay.Traffic{Over: true}, now)
	if got := a.passable(now, true); len(got) != 1 || len(a.passable(now, true)) != 0 {
		t.Errorf("when it leaves: %v", got)
	}
}

// until waits for a condition.
func until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for tick := time.NewTicker(time.Millisecond); !happened(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited for: %s", what)
		}
	}
}
