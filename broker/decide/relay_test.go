package decide

import (
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/overlay"
)

// TestDecideRelayByProxies: a relay is planned where a proxy can carry it, and where it is not known whether one can.
func TestDecideRelayByProxies(t *testing.T) {
	four := overlay.SiteProfile{}
	dual := overlay.SiteProfile{IPv6: true}
	six := overlay.SiteProfile{IPv6: true, IPv6Only: true}
	narrow := overlay.SiteProfile{Egress: overlay.Egress443}
	narrowSix := overlay.SiteProfile{IPv6: true, IPv6Only: true, Egress: overlay.Egress443}
	on4, on6, both := ProxyKind{Port443: true, IPv4: true}, ProxyKind{Port443: true, IPv6: true}, ProxyKind{Port443: true, IPv4: true, IPv6: true}
	elsewhere := ProxyKind{IPv4: true, IPv6: true}
	for name, tc := range map[string]struct {
		asker, target overlay.SiteProfile
		proxies       []ProxyKind
		against       string // "": the relay is planned
	}{
		"not known which there are":     {four, six, nil, ""},
		"none":                          {four, four, []ProxyKind{}, "no proxy has a session"},
		"IPv4":                          {four, dual, []ProxyKind{on4}, ""},
		"IPv4 and IPv6 alone":           {four, six, []ProxyKind{on4}, "advertises an address of each"},
		"the other way":                 {six, four, []ProxyKind{on4}, "advertises an address of each"},
		"one proxy of each":             {four, six, []ProxyKind{on4, on6}, "advertises an address of each"},
		"a dual stack site":             {dual, six, []ProxyKind{on4}, "advertises an address of each"},
		"one proxy with both":           {four, six, []ProxyKind{on4, both}, ""},
		"IPv6 alone":                    {six, six, []ProxyKind{on4}, "advertises an IPv6 address"},
		"IPv6 alone, by such a proxy":   {six, six, []ProxyKind{on6}, ""},
		"only 443 out":                  {narrow, four, []ProxyKind{elsewhere}, "an address of port 443"},
		"443 of another version of IP":  {four, narrowSix, []ProxyKind{elsewhere, on4}, "advertises an address of each"},
		"443 and both":                  {four, narrowSix, []ProxyKind{elsewhere, both}, ""},
		"any port, where any leads out": {four, six, []ProxyKind{elsewhere}, ""},
	} {
		tc.asker.Site, tc.target.Site = "sitea", "siteb"
		why, taken := has(Decide(tc.asker, tc.target, tc.proxies), overlay.Relay)
		if taken != (tc.against == "") || !strings.Contains(why, tc.against) {
			t.Errorf("%s: taken: %t (%s)", name, taken, why)
		}
	}
}
