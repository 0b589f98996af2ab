package connhelper

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

func said(link byte, sent uint64, over bool) *wire.LocalTraffic {
	return &wire.LocalTraffic{Traffic: overlay.Traffic{
		Link: [16]byte{link}, Rank: uint32(link), Peer: overlay.NodeID{Site: "siteb", Name: "b1"}, Technique: overlay.HolePunching,
		Sent: sent, Received: 3, Lasted: time.Second, Over: over,
	}}
}

// What processes say that their links have moved is in the helper's audit log and
// told to the frontal while it still knows the process; what one did not say
// because it was killed is at least what it had said.
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
	leaves.send(said(1, 0, false))
	leaves.send(said(1, 2e12, true))
	leaves.send(said(2, 7, true))
	leaves.send(&wire.LocalLeave{})
	leaves.conn.Close()
	killed.send(said(3, 50, false))
	killed.send(said(3, 60, false))
	testkit.Until(t, "the helper knows of one link", func() bool { return f.last.processes.traffic.ownLinks.Load() == 1 })
	killed.conn.Close()
	testkit.Until(t, "both were withdrawn", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.points) == 0
	})
	stop()
	if n := f.last.processes.traffic.ownLinks.Load(); n != 0 {
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
	testkit.Until(t, "the audit log has the ends", func() bool {
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
	first.send(said(1, 10, false))
	again := join(t, socket, key, 0)
	again.send(said(1, 10, false))
	again.send(said(1, 30, true))
	again.conn.Close()
	testkit.Until(t, "it was withdrawn", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.points) == 0
	})
	if len(f.accounts) != 1 || len(f.accounts[0].Links) != 1 || f.accounts[0].Links[0].Sent != 30 {
		t.Errorf("the frontal was told %v", f.accounts)
	}
}
