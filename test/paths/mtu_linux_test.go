//go:build system

package paths

import (
	"fmt"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// unmeasured are settings of frontals that do not measure their sites. A measurement finds that
// packets of 1280 bytes pass where the limit is 1300: hosts then send none that are larger, and links
// need no smaller ones. When it ends depends on how busy the machine is.
var unmeasured = map[string]map[string]any{"frontal": {"measure": "0s"}}

// small reports whether a link's end sends in small packets only.
func small(j *labtest.Pair) bool {
	small := false
	for _, c := range j.Near.Carriers() {
		if c.Used && !c.Path.Small {
			return false
		}
		small = small || c.Used
	}
	return small
}

// full reports whether a link's end sends in packets of full size only.
func full(j *labtest.Pair) bool {
	full := false
	for _, c := range j.Near.Carriers() {
		if c.Used && c.Path.Small {
			return false
		}
		full = full || c.Used
	}
	return full
}

// relayed reports whether a link's end sends through a relay.
func relayed(j *labtest.Pair) bool {
	return slices.ContainsFunc(j.Near.Carriers(), func(c link.Carrier) bool { return c.Used && c.Path.Technique == overlay.Relay })
}

// Large packets begin to be dropped silently on the path to both sites: links continue with small
// ones, directly where that was the path, nothing is lost, and the helper logs that it is slower;
// and with large ones when these pass again. A link that begins meanwhile does the same.
func TestPathNarrowsUnderWay(t *testing.T) {
	t.Parallel() // most of it is waiting
	for _, bytes := range []int{1300, 600} {
		t.Run(fmt.Sprint(bytes), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, labtest.SiteOpen+labtest.SiteClosed, grid.Config{Settings: unmeasured})
			j := w.LinkPair("closed/n1", "open/n1")
			var lift []func() error
			for _, site := range []string{"open", "closed"} {
				n, err := w.Lab.Narrow(site, bytes)
				if err != nil {
					t.Fatal(err)
				}
				lift = append(lift, n.Lift)
			}
			if err := probe.Exchange(w.Ctx, j.Near, j.Far, 4<<20); err != nil {
				t.Fatal(err)
			}
			w.Until("the link to use small packets alone", func() bool { return small(j) }, func() string { return fmt.Sprint(j.Near.Carriers()) })
			late := w.LinkPair("closed/n2", "open/n2")
			w.Until("a link that began meanwhile to do the same", func() bool { return small(late) }, func() string { return fmt.Sprint(late.Near.Carriers()) })
			w.AwaitLog("helper closed/n1", "carries nothing in packets of full size", "remedy", "ICMP")
			w.Until("the link to go without a relay, in small packets", func() bool {
				return small(j) && !relayed(j)
			}, func() string { return fmt.Sprint(j.Near.Carriers()) })
			for _, f := range lift {
				if err := f(); err != nil {
					t.Fatal(err)
				}
			}
			w.Until("packets of full size to be used again", func() bool { return full(j) }, func() string { return fmt.Sprint(j.Near.Carriers()) })
			w.Exchange(j)
		})
	}
}

// Large packets are dropped from the start, and the site's profile does not say so: links are made
// with small ones, directly, relayed, dialled back and by simultaneous open.
func TestPathIsNarrowFromTheStart(t *testing.T) {
	t.Parallel() // most of it is waiting
	const siteNarrow = "  - {name: narrow, preset: mtu-1300-blackhole, nodes: 1}\n"
	for _, c := range []struct {
		from, to, sites string
		profile         func(string, overlay.SiteProfile) overlay.SiteProfile
	}{
		{"narrow/n1", "open/n1", siteNarrow + labtest.SiteOpen, labtest.FixedProfile},
		{"open/n1", "narrow/n1", siteNarrow + labtest.SiteOpen, labtest.FixedProfile},
		{"narrow/n1", "closed/n1", siteNarrow + labtest.SiteClosed, labtest.NoTraversalProfile},
		{"closed/n1", "narrow/n1", siteNarrow + labtest.SiteClosed, labtest.NoTraversalProfile},
		{"closed/n1", "narrow/n1", siteNarrow + labtest.SiteClosed, nil},
	} {
		t.Run(c.from+" to "+c.to, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.sites, grid.Config{Settings: unmeasured, Profile: func(site string, p overlay.SiteProfile) overlay.SiteProfile {
				if site == "narrow" {
					p.Filter, p.UDP, p.MTU = overlay.FilterStateful, true, 0
				}
				if c.profile == nil {
					return p
				}
				return c.profile(site, p)
			}})
			j := w.LinkPair(c.from, c.to)
			if !small(j) {
				t.Errorf("the link goes by %v", j.Near.Carriers())
			}
		})
	}
}
