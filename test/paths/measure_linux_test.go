//go:build system

package paths

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// Sites whose firewalls are not declared are measured by their helpers or gateways, with the help
// of broker and proxy, and the broker decides from the results.
func TestUndeclaredSitesAreMeasured(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	if err := undeclaredAreMeasured(t); err != nil {
		t.Error(err)
	}
}

// undeclaredAreMeasured lets new sites be measured, and returns where the broker or the doctor is
// wrong about them.
func undeclaredAreMeasured(t *testing.T) error {
	presets := map[string]string{
		"plain": "open", "resets": "syn-reset", "cone": "nat-random", "symmetric": "nat-symmetric",
		"narrow": "egress-443", "hidden": "no-route/nat-symmetric",
		"slow": "udp-slow", "small": "mtu-1400", "six": "nat-ipv6",
	}
	spec := lab.Spec{Sites: []lab.Site{{Name: "pub", Preset: lab.Public, Nodes: []string{"broker", "p1"}}}}
	settings := map[string]map[string]any{}
	for site, preset := range presets {
		spec.Sites = append(spec.Sites, lab.Site{Name: site, Preset: preset, Nodes: lab.Nodes(2)})
		settings["frontal "+site] = map[string]any{"profile": map[string]any{"gateway_only": strings.HasPrefix(preset, "no-route/")}}
	}
	l, err := lab.Up(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p1 := l.Host("pub/p1")
	both := []string{netip.AddrPortFrom(p1.Addr(), 443).String(), netip.AddrPortFrom(p1.Addr6(), 443).String()}
	settings["proxy p1"] = map[string]any{"listen": both, "advertise": both}
	g, err := grid.Start(t.Context(), l, grid.Config{
		Binary: func(daemon string) []string { return []string{labtest.Program(t, "-"+daemon)} },
		Broker: "pub/broker", Proxies: []string{"pub/p1"}, Settings: settings,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	s, done, err := g.Admin(t.Context(), "broker")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	status := awaitMeasured(t, s)
	var faults []error
	private, err := control.NetworksFromPB(grid.Private)
	if err != nil {
		t.Fatal(err)
	}
	for _, site := range status.Sites {
		preset := presets[string(site.Profile.Site)]
		want, err := lab.Profile(preset)
		if err != nil {
			t.Fatal(err)
		}
		want.Site, want.Privileged = site.Profile.Site, false // which is not measured
		if rate := site.Profile.UDPRate; preset == "udp-slow" && want.UDPRate < rate*3/2 && rate < want.UDPRate*3/2 {
			want.UDPRate = rate // as exact as can be
		}
		want.Private, want.PrivateGiven = private, true
		want.SeenAt = l.Host(string(want.Site) + "/n1").Addr()
		if want.NAT.Translates() || want.GatewayOnly {
			want.SeenAt = l.Outside(string(want.Site))
		}
		if fmt.Sprintf("%+v", site.Profile) != fmt.Sprintf("%+v", want) {
			faults = append(faults, fmt.Errorf("%s is %s: the broker decides by\n%+v, want\n%+v\nmeasured %+v", site.Profile.Site, preset, site.Profile, want, site.Measured))
		}
		if len(site.Differs) > 0 {
			faults = append(faults, fmt.Errorf("%s: %+v", site.Profile.Site, site.Differs))
		}
	}
	// One that measured again, because the host was busy, may meet the broker's limit.
	if v := status.Reflector; v.CallBacks["CONNECTED"] == 0 || v.CallBacks["SILENT"] == 0 || v.Observer.Answered == 0 || v.Refused > v.CallBacks["CONNECTED"]+v.CallBacks["SILENT"] {
		faults = append(faults, fmt.Errorf("reflector %+v", v))
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	w := &world{&labtest.World{Grid: g, T: t, Ctx: t.Context()}} // what daemons measure and keep to is nothing that stops them
	w.DoctorFinds("frontal small", "inbound-dropped mtu", "(profile.mtu: auto)")
	w.DoctorFinds("helper small/n1", "inbound-dropped mtu", "knows it (mtu 1400)")
	return nil
}

// awaitMeasured returns the broker's status once every site was measured.
func awaitMeasured(t *testing.T, s *control.Session) broker.Status {
	t.Helper()
	for end := time.Now().Add(labtest.Patience); ; time.Sleep(50 * time.Millisecond) { // nothing announces it
		resp, err := controlpb.NewAdminClient(s.Conn()).Status(t.Context(), &controlpb.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var status broker.Status
		if err := json.Unmarshal(resp.Json, &status); err != nil {
			t.Fatal(err)
		}
		waiting := false
		for _, site := range status.Sites {
			waiting = waiting || site.Measured == nil
		}
		if !waiting {
			return status
		}
		if time.Now().After(end) {
			t.Fatalf("waited %v for all sites to be measured: %s", labtest.Patience, resp.Json)
		}
	}
}
