//go:build system

package paths

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// A path is alive whose packets wait for seconds in a queue that the links' own data fills, or overtake each
// other: no carrier counts as dead, and a link leaves its path only to try a relay, which is soon known to gain
// nothing, as all paths between sites are alike.
func TestQueueAndJitterAreNotDeath(t *testing.T) {
	t.Parallel() // most of it is waiting
	const other = "  - {name: other, preset: stateful, nodes: 2}\n"
	for _, c := range []struct {
		name, wan string
		links     int
	}{
		{"4 s of queue", "{rtt: 20ms, rate: 10Mbit, queue: 5MB}", 6},
		{"4 s of queue on a thin path", "{rtt: 40ms, rate: 2Mbit, queue: 1MB}", 1},
		{"overtaking", "{rtt: 220ms, rate: 50Mbit, jitter: 100ms, reorder: true}", 1},
	} {
		for _, sites := range []struct{ from, to, lines string }{
			{"closed/n1", "open/n1", labtest.SiteClosed + labtest.SiteOpen},
			{"closed/n1", "other/n1", labtest.SiteClosed + other},
		} {
			t.Run(fmt.Sprintf("%s/%s to %s", c.name, sites.from, sites.to), func(t *testing.T) {
				t.Parallel()
				w := &world{labtest.NewWorldOver(t, c.wan, sites.lines, grid.Config{
					Settings: unmeasured, Profile: func(_ string, p overlay.SiteProfile) overlay.SiteProfile { return p },
				})}
				var pairs []*labtest.Pair
				var streams []*streamed
				for range c.links {
					j := w.LinkPair(sites.from, sites.to)
					pairs, streams = append(pairs, j), append(streams, w.stream(j))
				}
				moves, longest := make([]int, c.links), time.Duration(0)
				last := make([]*stream.Carrier, c.links)
				const long = 40 * time.Second
				for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
					for i, j := range pairs {
						for _, c := range j.Near.Carriers() {
							longest = max(longest, c.RTT, c.Asked)
							if c.Silent {
								t.Fatalf("link %d: %v is taken for dead", i, c.Path)
							}
							if c.Used && c.State.Carrier != last[i] {
								last[i] = c.State.Carrier
								moves[i]++
							}
							if c.Used {
								break
							}
						}
					}
				}
				t.Logf("round trips of up to %v; carriers in use of each link: %v", longest, moves)
				if most := slices.Max(moves); most > 9 { // the first, and four trials
					t.Errorf("a link changed its carrier %d times in %v", most-1, long)
				}
				for i, s := range streams {
					if s.arrived.Load() == 0 {
						t.Errorf("nothing arrived on link %d", i)
					}
				}
			})
		}
	}
}
