//go:build system

package paths

import (
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Sites 0.6 to 1.4 s from each other and from the broker are measured to be what they are, stay connected with the broker,
// and link within eight round trips; the first message takes two more. What the machine needs is not counted to the path.
func TestFarAway(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	const machine = 3 * time.Second
	for _, trip := range []time.Duration{600 * time.Millisecond, time.Second, 1400 * time.Millisecond} {
		t.Run(fmt.Sprint(trip), func(t *testing.T) {
			t.Parallel()
			w := newWorldAfter(t, fmt.Sprintf("{rtt: %v, rate: 10Mbit}", trip), "  - {name: a, preset: stateful, nodes: 1}\n  - {name: b, preset: stateful, nodes: 1}\n",
				func(*lab.Lab) error { return nil })
			s, done, err := w.Admin(w.Ctx, "broker")
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			for _, site := range awaitMeasured(t, s).Sites {
				if p := site.Profile; p.Egress != overlay.EgressAny || !p.UDP || p.NAT.Translates() {
					t.Errorf("%s was measured as %+v: %+v", p.Site, p, site.Measured)
				}
			}
			j := w.JoinPair("a/n1", "b/n1")
			begun := time.Now()
			w.Connect(j)
			connected := time.Since(begun)
			if err := probe.Exchange(w.Ctx, j.Near, j.Far, 1); err != nil {
				t.Fatal(err)
			}
			first := time.Since(begun)
			t.Logf("%v: connected after %.1f round trips, first message after %.1f", j.Near.Path, float64(connected)/float64(trip), float64(first)/float64(trip))
			if connected > 8*trip+machine || first > 10*trip+machine {
				t.Errorf("connected after %v, first message after %v", connected, first)
			}
			for _, site := range []string{"a", "b"} {
				if n := w.Figure("frontal "+site, "brokers"); n == nil {
					t.Errorf("frontal %s has lost its broker", site)
				}
			}
		})
	}
}
