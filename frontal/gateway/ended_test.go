package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/encap"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/overlay"
)

type meterAt carrier.Stats

func (m meterAt) Stats() carrier.Stats { return carrier.Stats(m) }

// At a carried link's end it is counted before the logs have it, and each sink has it once.
func TestWhenEnded(t *testing.T) {
	trail, err := audit.Open(audit.Config{Folder: t.TempDir(), Size: 1 << 20, OnFailure: "go-on"}, "frontal a", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := ratelimit.New(quota.Rules{Job: quota.Limits{Rate: 2e6}}, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	g := &Gateway{
		site: "a", log: slog.New(slog.NewTextHandler(&logged, nil)), Audit: trail, proxies: encap.NewDialer(nil), links: newLinks(1, 1, limiter),
	}
	l := &liveLink{
		forwardedLink: forwardedLink{
			kind: "traversal", technique: overlay.HolePunching, job: job, principal: overlay.Principal{User: "alice", Project: "climate"}, ranks: []uint32{2, 3},
			node: "a1", peer: "b/b1", id: "00ff", from: "192.0.2.1:1", to: "192.0.2.2:2", proxy: "192.0.2.3:443",
		},
		meter: meterAt{AToB: 5, Copied: 5},
	}
	if err := g.links.places.Take(l.node, 1); err != nil {
		t.Fatal(err)
	}
	if l.throttle, err = limiter.Admit(l.owner(), func() uint64 { return 5 }); err != nil {
		t.Fatal(err)
	}
	g.links.live[l] = struct{}{}

	e := l.ended("a", 1500*time.Millisecond, errors.New("cut"))
	l.throttle.Close()
	r := audit.EndOf(e)
	if got, want := fmt.Sprint(r.Sites, r.Nodes, r.Ranks, r.Technique, " ", r.Sent, r.Received, r.Seconds, r.Link, r.Peer, ", ", r.Reason),
		"[a b] [a1 b1] [2 3]"+overlay.HolePunching.String()+" 5 0 1.500ff192.0.2.1:1 192.0.2.2:2, traversal: cut"; got != want {
		t.Errorf("its record has %s, want %s", got, want)
	}
	state := func() string {
		g.mu.Lock()
		defer g.mu.Unlock()
		return fmt.Sprintf("%d live, %d places, %d bytes, %d of the pair, %d of the project, %d records, %d lines",
			len(g.links.live), g.links.places.Held("a1"), g.links.counters().Bytes, g.links.sums.Counts()[traffic.Pair{From: "a", To: "b"}].Bytes,
			g.links.sums.Projects()["climate"], trail.Status().Waiting, strings.Count(logged.String(), "msg=carried"))
	}
	want := []string{
		"0 live, 0 places, 5 bytes, 5 of the pair, 5 of the project, 0 records, 0 lines",
		"0 live, 0 places, 5 bytes, 5 of the pair, 5 of the project, 0 records, 0 lines",
		"0 live, 0 places, 5 bytes, 5 of the pair, 5 of the project, 1 records, 0 lines",
		"0 live, 0 places, 5 bytes, 5 of the pair, 5 of the project, 1 records, 1 lines",
	}
	all := g.whenEnded()
	if len(all) != len(want) {
		t.Fatalf("%d subscribers", len(all))
	}
	for i, take := range all {
		take(l, e)
		if got := state(); got != want[i] {
			t.Errorf("after subscriber %d: %s\nwant %s", i, got, want[i])
		}
	}
	for _, part := range []string{"cause=cut", "limited_to=2Mbit/s by=quota.per_job.rate bytes_out=5 bytes_in=0 duration=1.5s"} {
		if !strings.Contains(logged.String(), part) {
			t.Errorf("no %s in %s", part, logged.String())
		}
	}
}
