//go:build system

package connect

import (
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// An uplink of a site goes silent under a link: the link continues over the other, and another link
// is made meanwhile; likewise when the uplinks have changed roles.
func TestUplinkDies(t *testing.T) {
	t.Parallel() // most of it is waiting
	const siteTwo = "  - {name: two, preset: two-uplinks, nodes: 2}\n"
	for _, c := range []struct{ name, from, to, sites string }{
		{"asker", "two/n1", "closed/n1", siteTwo + labtest.SiteClosed},
		{"target", "closed/n1", "two/n1", siteTwo + labtest.SiteClosed},
		{"gateway", "two/n1", "closed/n1", "  - {name: two, preset: no-route/two-uplinks, nodes: 2}\n" + labtest.SiteClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.sites, grid.Config{Profile: labtest.NoTraversalProfile})
			j := w.LinkPair(c.from, c.to)
			for _, uplink := range []int{1, 2} {
				if err := w.Lab.CutUplink("two", uplink); err != nil {
					t.Fatal(err)
				}
				w.Exchange(j)
				w.LinkPair(c.from, c.to).End(t)
				if err := w.Lab.RestoreUplink("two", uplink); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
