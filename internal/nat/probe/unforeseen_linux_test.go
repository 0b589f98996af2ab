//go:build system

package probe

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/overlay"
)

// unforeseen returns profiles of presets that have none of their own, because only a measurement
// describes them.
func unforeseen() map[string]overlay.SiteProfile {
	stateful := overlay.SiteProfile{Filter: overlay.FilterStateful, UDP: true, Privileged: true}
	cone := overlay.NAT{Mapping: overlay.EndpointIndependent, Filtering: overlay.AddressAndPortDependent, KeepsPort: true}
	with := func(change func(*overlay.SiteProfile)) overlay.SiteProfile {
		p := stateful
		change(&p)
		return p
	}
	return map[string]overlay.SiteProfile{
		"ipv6-only":       with(func(p *overlay.SiteProfile) { p.IPv6, p.IPv6Only = true, true }),
		"wscale-stripped": stateful, "options-stripped": stateful,
		"ipv6-stateful-nat-symmetric": with(func(p *overlay.SiteProfile) {
			p.NAT = overlay.NAT{Mapping: overlay.AddressAndPortDependent, Filtering: overlay.AddressAndPortDependent}
			p.IPv6, p.IPv6Rules = true, overlay.IPv6Rules{Measured: true, Filter: overlay.FilterStateful, UDP: true}
		}),
		"ipv6-open-nat": with(func(p *overlay.SiteProfile) {
			p.NAT, p.IPv6 = cone, true
			p.IPv6Rules = overlay.IPv6Rules{Measured: true, Inbound: overlay.InboundOpen, UDP: true}
		}),
		"cgnat-over-stateful": with(func(p *overlay.SiteProfile) { p.NAT = cone }),
		"nat-tcp-symmetric-udp-eim": with(func(p *overlay.SiteProfile) {
			p.NAT = overlay.NAT{Mapping: overlay.AddressAndPortDependent, Filtering: overlay.AddressAndPortDependent}
			p.NATUDP = cone
		}),
	}
}

// TestUnforeseen measures presets without a profile.
func TestUnforeseen(t *testing.T) {
	spec := lab.Spec{
		WAN:   lab.WAN{Default: wan.Shape{Delay: 5 * time.Millisecond}},
		Sites: []lab.Site{{Name: "pub", Preset: lab.Public, Nodes: []string{"broker", "proxy"}}},
	}
	truths := unforeseen()
	checkPresets(t, spec, slices.Sorted(maps.Keys(truths)), truths)
}
