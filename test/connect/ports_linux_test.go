//go:build system

package connect

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

const onlyPort = 20007

// A node that finds no free port in its site's range reports that, listens nowhere else, and is
// still reached: from other sites by a relay, and from its own, where the admin wants no relay, by
// dialling back.
func TestPortRangeFull(t *testing.T) {
	for _, tc := range []struct {
		name    string
		profile func(site string, p overlay.SiteProfile) overlay.SiteProfile
		ways    [][3]string // from, to, path
	}{
		{"from other sites", labtest.NoTraversalProfile, [][3]string{{"closed/n1", "range/n1", "relay"}, {"open/n1", "range/n1", "relay"}}},
		{"from its own", labtest.FixedProfile, [][3]string{{"range/n2", "range/n1", "reversed"}, {"range/n1", "range/n2", "direct"}, {"closed/n1", "range/n2", "port-range"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, labtest.SiteRange+labtest.SiteClosed+labtest.SiteOpen, grid.Config{
				Settings: map[string]map[string]any{"frontal": {"measure": "0s"}},
				Profile: func(site string, p overlay.SiteProfile) overlay.SiteProfile {
					if p.Inbound == overlay.InboundPorts {
						p.Ports = overlay.Ports{First: onlyPort, Last: onlyPort}
					}
					return tc.profile(site, p)
				},
			})
			full := w.Daemon("helper range/n1")
			for _, d := range []*grid.Daemon{full, w.Daemon("helper range/n2")} {
				w.onlyListener(d)
			}
			w.occupy(full)
			for _, way := range tc.ways {
				j := w.LinkPair(way[0], way[1])
				if got := labtest.PathOf(j.Near); got != way[2] {
					t.Errorf("%s to %s by %s, want %s", way[0], way[1], got, way[2])
				}
			}
			w.onlyListener(full) // the process that occupies the port
		})
	}
}

// onlyListener checks that nothing in a daemon's namespace listens except on the one port. The site
// must not be measured, which takes listeners for a moment.
func (w *world) onlyListener(d *grid.Daemon) {
	w.T.Helper()
	if got := listeners(w.T, d); len(got) != 1 || got[0] != onlyPort {
		w.T.Errorf("%s listens on the ports %v, want %d only", d.Name, got, onlyPort)
	}
}

// occupy takes the only port of a helper's site while it is stopped, restarts it and waits for its
// warning.
func (w *world) occupy(helper *grid.Daemon) {
	w.T.Helper()
	if err := helper.Stop(); err != nil {
		w.T.Fatal(err)
	}
	squatter, err := helper.Host.Listen("tcp", netip.AddrPortFrom(helper.Host.Addr(), onlyPort).String())
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { squatter.Close() })
	if err := helper.Start(w.Ctx); err != nil {
		w.T.Fatal(err)
	}
	if err := w.Settled(w.Ctx); err != nil {
		w.T.Fatal(err)
	}
	w.AwaitLog(helper.Name, "no data port: other nodes cannot dial this one",
		fmt.Sprintf("listen on %v: no free port in the site's range: all 1 ports of %d-%d are in use; "+
			"widen the range in the site's profile and firewall, or end what listens there (ss -ltnp)", helper.Host.Addr(), onlyPort, onlyPort))
}

// listeners returns the listening TCP ports in a daemon's namespace.
func listeners(t *testing.T, d *grid.Daemon) (ports []uint64) {
	t.Helper()
	const listen = "0A" // TCP_LISTEN in the column "st" of proc(5)
	for _, file := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", d.PID(), file))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 4 || fields[3] != listen {
				continue
			}
			_, hex, _ := strings.Cut(fields[1], ":")
			port, err := strconv.ParseUint(hex, 16, 16)
			if err != nil {
				t.Fatalf("%s: %q: %v", file, line, err)
			}
			ports = append(ports, port)
		}
	}
	return ports
}
