package test

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/grid"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A node that finds no free port in its site's range says so, listens nowhere
// else, and is reached all the same: from its own site by dialling back, from
// others by a relay. Every other node of the site listens inside the range.
func TestPortRangeFull(t *testing.T) {
	const port = 20007
	w := newWorld(t, siteRange+siteClosed+siteOpen, grid.Config{
		Profile: func(site string, p overlay.SiteProfile) overlay.SiteProfile {
			if p.Inbound == overlay.InboundPorts {
				p.Ports = overlay.Ports{First: port, Last: port}
			}
			return p
		},
	})
	full := w.Daemon("helper range/n1")
	for _, d := range []*grid.Daemon{full, w.Daemon("helper range/n2")} {
		if got := listeners(t, d); len(got) != 1 || got[0] != port {
			t.Errorf("%s listens on the ports %v, want %d only", d.Name, got, port)
		}
	}
	if err := full.Stop(); err != nil {
		t.Fatal(err)
	}
	squatter, err := full.Host.Listen("tcp", netip.AddrPortFrom(full.Host.Addr(), port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { squatter.Close() })
	if err := full.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.Settled(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.logged("helper range/n1", "no data port: other nodes cannot dial this one",
		fmt.Sprintf("listen on %v: no free port in the site's range: all 1 ports of %d-%d are in use; "+
			"widen the range in the site's profile and firewall, or end what listens there (ss -ltnp)", full.Host.Addr(), port, port))
	for _, way := range []struct{ from, to, path string }{
		{"closed/n1", "range/n1", "relay"},
		{"open/n1", "range/n1", "relay"},
		{"range/n2", "range/n1", "reversed"},
		{"range/n1", "range/n2", "direct"},
		{"range/n1", "open/n1", "direct"},
		{"closed/n1", "range/n2", "port-range"},
	} {
		j := w.linked(way.from, way.to)
		if got := pathOf(j.near); got != way.path {
			t.Errorf("%s to %s by %s, want %s", way.from, way.to, got, way.path)
		}
	}
	// Only the squatter listens in that node's namespace.
	if got := listeners(t, full); len(got) != 1 || got[0] != port {
		t.Errorf("on the full node the ports %v are listened on, want only the squatter's, %d", got, port)
	}
}

// listeners returns the TCP ports that are listened on where a daemon runs.
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
