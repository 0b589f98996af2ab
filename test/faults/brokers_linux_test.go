//go:build system

package faults

import (
	"slices"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Two brokers: the current one dies, and then, when it is back, the other. Links continue, and
// processes from before and after each failure find each other through the remaining broker, even
// if that needs a signalling request.
func TestEitherBrokerIsEnough(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed+labtest.SiteShut, grid.Config{Standby: "public/stranger"})
	some := slices.Concat(labtest.Ways[:1], labtest.Ways[2:4]) // direct, reversed, relay
	var flows []*labtest.Flow
	for _, way := range some {
		flows = append(flows, w.StartFlow(w.LinkPair(way.From, way.To)))
	}
	for _, broker := range []string{"broker", "broker 2"} {
		var before []*labtest.Pair
		for _, way := range some {
			before = append(before, w.JoinPair(way.From, way.To))
		}
		w.Daemon(broker).Kill()
		died := time.Now()
		for i, way := range some {
			w.Connect(before[i])
			w.Exchange(before[i])
			j := w.LinkPair(way.From, way.To)
			if got := labtest.PathOf(j.Near); got != way.Path {
				t.Errorf("without %s: %s to %s by %s, want %s", broker, way.From, way.To, got, way.Path)
			}
			before[i].End(t)
			j.End(t)
		}
		t.Logf("without %s: %v until %d new links", broker, time.Since(died).Round(time.Millisecond), 2*len(some))
		w.AwaitFlows("without "+broker, flows)
		if err := w.Daemon(broker).Start(w.Ctx); err != nil {
			t.Fatal(err)
		}
		if err := w.Settled(w.Ctx); err != nil {
			t.Fatal(err)
		}
	}
	w.AwaitFlows("with both again", flows)

	// A handover is unnoticeable: the successor has the same address and all state.
	if err := w.Daemon("broker").HandOver(w.Ctx); err != nil {
		t.Fatal(err)
	}
	w.Until("the successor to know everybody", func() bool { return w.Settled(w.Ctx) == nil })
	w.LinkPair("closed/n1", "shut/n1").End(t)
}
