package plan

import (
	"testing"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A measurement of one direction counts for both; unknown values are assumed.
func TestOutlookModel(t *testing.T) {
	at := func(sites ...overlay.SiteID) (places []overlay.NodeID) {
		for _, s := range sites {
			places = append(places, overlay.NodeID{Site: s, Name: "n"})
		}
		return places
	}
	o := (&snapshot{places: at("b", "a", "b", "c")}).withPaths(map[sitePair]pathRecord{
		{"a", "b"}: {RTT: 0.020, Rate: 5e6}, {"b", "a"}: {RTT: 0.016}, {"c", "a"}: {Rate: 7e6},
	})
	m, far := o.model(), collectives.DefaultModel().InterSite
	const a, b, c = 1, 0, 2 // by the lowest rank
	for _, w := range []struct {
		from, to int
		ms       float64
		rate     float64
	}{{a, b, 8, 5e6}, {b, a, 8, 5e6}, {a, c, 10, 7e6}, {c, a, 10, 7e6}, {b, c, 10, far.Rate}} {
		if got := m.Between[w.from][w.to]; got.Latency.Seconds()*1000 != w.ms || got.Rate != w.rate {
			t.Errorf("from site %d to %d: %+v, want %+v", w.from, w.to, got, w)
		}
	}
	if !o.spansSites() || (&snapshot{places: at("a", "a")}).spansSites() || (&snapshot{}).spansSites() {
		t.Error("apart is wrong")
	}
}
