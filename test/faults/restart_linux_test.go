//go:build system

package faults

import (
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Daemons start and end, gracefully or killed; existing links continue throughout, and afterwards
// new ones are set up by every technique, by existing processes and by new ones.
func TestLinksOutliveDaemons(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed+labtest.SiteShut+labtest.SiteRange+labtest.SiteHidden, grid.Config{})
	var flows []*labtest.Flow
	for _, way := range labtest.Ways {
		j := w.LinkPair(way.From, way.To)
		if got := labtest.PathOf(j.Near); got != way.Path {
			t.Errorf("%s to %s by %s, want %s", way.From, way.To, got, way.Path)
		}
		flows = append(flows, w.StartFlow(j))
	}
	for _, ending := range []struct {
		name string
		end  func(*grid.Daemon) error
	}{
		{"stopped", (*grid.Daemon).Stop},
		{"killed", func(d *grid.Daemon) error { d.Kill(); return nil }},
	} {
		for _, kind := range []string{"broker", "frontal", "helper"} {
			t.Run(kind+" "+ending.name, func(t *testing.T) {
				w := w.sub(t)
				var before []*labtest.Pair
				for _, way := range labtest.Ways {
					before = append(before, w.JoinPair(way.From, way.To))
				}
				for _, d := range w.Daemons() {
					// The gateway of hidden carries its nodes' data: that link depends on its
					// frontal, and is tested elsewhere.
					if strings.HasPrefix(d.Name, kind) && d.Name != "frontal hidden" {
						if err := ending.end(d); err != nil {
							t.Fatal(err)
						}
					}
				}
				w.AwaitFlows("while every "+kind+" is away", flows)
				for _, d := range w.Daemons() {
					if !d.Running() {
						if err := d.Start(w.Ctx); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := w.Settled(w.Ctx); err != nil {
					t.Fatal(err)
				}
				w.AwaitFlows("after every "+kind+" came back", flows)
				for i, way := range labtest.Ways {
					w.Connect(before[i])
					w.Exchange(before[i])
					before[i].End(t)
					j := w.LinkPair(way.From, way.To)
					if got := labtest.PathOf(j.Near); got != way.Path {
						t.Errorf("after the restart %s to %s by %s, want %s", way.From, way.To, got, way.Path)
					}
					j.End(t)
				}
			})
		}
	}
}

// A link carried by a gateway waits for its frontal, and continues when that is back.
func TestCarriedLinkSurvivesItsGateway(t *testing.T) {
	t.Parallel() // most of it is waiting
	w := newWorld(t, labtest.SiteHidden+labtest.SiteClosed, grid.Config{})
	f := w.StartFlow(w.LinkPair("hidden/n1", "closed/n1"))
	w.AwaitFlows("before", []*labtest.Flow{f})
	w.Daemon("frontal hidden").Kill()
	w.Until("the link to have no carrier", func() bool { return len(f.Pair.Near.Carriers()) == 0 })
	if err := w.Daemon("frontal hidden").Start(w.Ctx); err != nil {
		t.Fatal(err)
	}
	w.AwaitFlows("after the gateway's restart", []*labtest.Flow{f})
}
