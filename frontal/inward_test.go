package frontal

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// A helper listens at the source address of its session, or at an address that the settings permit;
// and not at one that they deny.
func TestOwnAddress(t *testing.T) {
	r := newRig(t, func(c *Config) {
		c.NodeNetworks = []netip.Prefix{netip.MustParsePrefix("10.1.8.0/24"), netip.MustParsePrefix("127.0.0.0/8")}
		c.Deny = []netip.Prefix{netip.MustParsePrefix("10.1.8.128/25")}
	})
	id := control.Identity{Role: control.RoleHelper, Site: "sitea", Name: "a1"}
	from := netip.MustParseAddr("10.1.0.11")
	for local, want := range map[string]string{
		"10.1.0.11:20000":          "",
		"[::ffff:10.1.0.11]:20000": "",
		"10.1.8.7:20000":           "",
		"10.1.0.12:22":             "its session comes from 10.1.0.11",
		"203.0.113.9:22":           "its session comes from 10.1.0.11",
		"10.1.8.129:22":            "which this host's settings deny",
		"127.0.0.1:22":             "a loopback address that is not its own",
		"169.254.169.254:80":       "a link-local address that is not its own",
	} {
		err := r.f.ownAddress(id, from, overlay.AccessPoint{Process: proc(1), Node: id.Node(), Local: netip.MustParseAddrPort(local)})
		if (err == nil) != (want == "") || err != nil && (!errors.Is(err, overlay.ErrForbidden) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v; want %q", local, err, want)
		}
	}
	// A helper on this host reaches the frontal from its loopback, and listens at an address of this host.
	loopback := netip.MustParseAddr("127.0.0.1")
	own := multihome.Outward(loopback)
	for local, ok := range map[netip.Addr]bool{own: true, loopback: true, netip.MustParseAddr("198.51.100.254"): false, netip.MustParseAddr("169.254.169.254"): false} {
		if err := r.f.ownAddress(id, loopback, overlay.AccessPoint{Process: proc(1), Node: id.Node(), Local: netip.AddrPortFrom(local, 20000)}); (err == nil) != ok {
			t.Errorf("%v from the loopback: %v", local, err)
		}
	}
	if err := r.f.ownAddress(id, from, overlay.AccessPoint{Process: proc(1), Node: id.Node()}); err != nil {
		t.Errorf("without an address: %v", err)
	}
}

// The broker's claims about the inside of this site count only if the site's own helpers have made
// them.
func TestInsideIsTheSitesOwnWord(t *testing.T) {
	r := newRig(t, nil)
	h := r.helper("a1")
	h.register(1)
	own := h.point(1, 1)
	moved, unknown, foreign := h.point(1, 1), h.point(2, 1), h.point(1, 1)
	moved.Local, foreign.Site = "10.1.0.1:22", "siteb"
	for what, c := range map[string]struct {
		point *controlpb.AccessPoint
		want  string
	}{"own": {own, own.Local}, "elsewhere": {moved, ""}, "a process that is not here": {unknown, ""}, "another site's": {foreign, ""}} {
		before := c.point.Local
		if got := r.f.insideOf(c.point); got.Local != c.want || c.point.Local != before || got.Site != c.point.Site {
			t.Errorf("%s: %v, want local %q", what, got, c.want)
		}
		err := r.f.askerInside(&controlpb.Signal{Asker: c.point.Process, AskerSite: c.point.Site, ConnectAddress: c.point.Local})
		if ok := c.want != "" || c.point.Site != "sitea"; (err == nil) != ok || err != nil && !errors.Is(err, overlay.ErrForbidden) {
			t.Errorf("%s asks to be dialled back: %v", what, err)
		}
	}
}
