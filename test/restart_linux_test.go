package test

import (
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/grid"
)

// Daemons come and go, ended politely or killed; the links that were made
// before go on all the time, and afterwards new ones are made in every way, by
// processes that were there before and by new ones.
func TestLinksOutliveDaemons(t *testing.T) {
	w := newWorld(t, siteOpen+siteClosed+siteShut+siteRange+siteHidden, grid.Config{})
	var flows []*flow
	for _, way := range ways {
		j := w.linked(way.from, way.to)
		if got := pathOf(j.near); got != way.path {
			t.Errorf("%s to %s by %s, want %s", way.from, way.to, got, way.path)
		}
		flows = append(flows, w.flow(j))
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
				var before []*joint
				for _, way := range ways {
					before = append(before, w.members(way.from, way.to))
				}
				for _, d := range w.Daemons() {
					// The gateway of hidden carries its nodes' data: that link
					// lives by its frontal, and is looked at elsewhere.
					if strings.HasPrefix(d.Name, kind) && d.Name != "frontal hidden" {
						if err := ending.end(d); err != nil {
							t.Fatal(err)
						}
					}
				}
				w.flowing("while every "+kind+" is away", flows)
				for _, d := range w.Daemons() {
					if !d.Running() {
						if err := d.Start(w.ctx); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := w.Settled(w.ctx); err != nil {
					t.Fatal(err)
				}
				w.flowing("after every "+kind+" came back", flows)
				for i, way := range ways {
					w.connect(before[i])
					w.exchange(before[i])
					before[i].end(t)
					j := w.linked(way.from, way.to)
					if got := pathOf(j.near); got != way.path {
						t.Errorf("after the restart %s to %s by %s, want %s", way.from, way.to, got, way.path)
					}
					j.end(t)
				}
			})
		}
	}
}

// A link that a gateway carries waits for its frontal, and goes on when that is
// back.
func TestCarriedLinkSurvivesItsGateway(t *testing.T) {
	w := newWorld(t, siteHidden+siteClosed, grid.Config{})
	f := w.flow(w.linked("hidden/n1", "closed/n1"))
	w.flowing("before", []*flow{f})
	w.Daemon("frontal hidden").Kill()
	w.until("the link to have no carrier", func() bool { return len(f.joint.near.Carriers()) == 0 })
	if err := w.Daemon("frontal hidden").Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.flowing("after the gateway's restart", []*flow{f})
}
