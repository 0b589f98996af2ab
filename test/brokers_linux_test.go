package test

import (
	"slices"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/grid"
)

// Two brokers: the one that is asked dies, and then, while it is back, the
// other. Links go on, and processes from before and after each death find each
// other by the broker that is left, also where that takes an introduction.
func TestEitherBrokerIsEnough(t *testing.T) {
	w := newWorld(t, siteOpen+siteClosed+siteShut, grid.Config{Standby: "public/stranger"})
	some := slices.Concat(ways[:1], ways[2:4]) // direct, reversed, relay
	var flows []*flow
	for _, way := range some {
		flows = append(flows, w.flow(w.linked(way.from, way.to)))
	}
	for _, broker := range []string{"broker", "broker 2"} {
		var before []*joint
		for _, way := range some {
			before = append(before, w.members(way.from, way.to))
		}
		w.Daemon(broker).Kill()
		died := time.Now()
		for i, way := range some {
			w.connect(before[i])
			w.exchange(before[i])
			j := w.linked(way.from, way.to)
			if got := pathOf(j.near); got != way.path {
				t.Errorf("without %s: %s to %s by %s, want %s", broker, way.from, way.to, got, way.path)
			}
			before[i].end(t)
			j.end(t)
		}
		t.Logf("without %s: %v until %d new links", broker, time.Since(died).Round(time.Millisecond), 2*len(some))
		w.flowing("without "+broker, flows)
		if err := w.Daemon(broker).Start(w.ctx); err != nil {
			t.Fatal(err)
		}
		if err := w.Settled(w.ctx); err != nil {
			t.Fatal(err)
		}
	}
	w.flowing("with both again", flows)

	// One that hands over is not missed at all: it has the same address and all news.
	if err := w.Daemon("broker").HandOver(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.until("the successor to know everybody", func() bool { return w.Settled(w.ctx) == nil })
	w.linked("closed/n1", "shut/n1").end(t)
}
