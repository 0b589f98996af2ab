package decide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/overlay"
)

// This file judges the relay, which depends on the grid's proxies as well.

// ProxyKind is what decides which sites a proxy can join: what it has an address with.
type ProxyKind struct {
	Port443 bool `json:"port_443"`
	IPv4    bool `json:"ipv4"`
	IPv6    bool `json:"ipv6"`
}

// Need is what a relay between two sites requires of its proxy.
type Need struct {
	Only443 bool // an address with port 443
	IPv4    bool // an IPv4 address; considered only with IPv6
	IPv6    bool // an IPv6 address
}

// NeedOf returns what a relay between two sites requires.
func NeedOf(asker, target overlay.SiteProfile) Need {
	return Need{
		Only443: asker.Egress != overlay.EgressAny || target.Egress != overlay.EgressAny,
		IPv4:    !asker.IPv6Only || !target.IPv6Only,
		IPv6:    asker.IPv6Only || target.IPv6Only,
	}
}

// Unmet returns why none of some proxies meets the need, or "" if one does.
func (n Need) Unmet(proxies []ProxyKind) string {
	if len(proxies) == 0 {
		return "no proxy has a session with the broker; start one, or look at its log"
	}
	listening := slices.DeleteFunc(slices.Clone(proxies), func(p ProxyKind) bool { return n.Only443 && !p.Port443 })
	switch {
	case len(listening) == 0:
		return "no proxy offers an address of port 443, and a site lets only that out; add one to a proxy's advertise"
	case slices.ContainsFunc(listening, func(p ProxyKind) bool { return !n.IPv6 || p.IPv6 && (!n.IPv4 || p.IPv4) }):
		return ""
	case n.IPv4:
		return "one site has nothing but IPv6, the other has IPv4, and no proxy that they can reach advertises an address of each; add both to a proxy's advertise"
	}
	return "both sites have nothing but IPv6, and no proxy that they can reach advertises an IPv6 address; add one to a proxy's advertise"
}

// relay works wherever both sites can connect to port 443 of a public host that is a proxy.
func (p pair) relay() verdict {
	var inTLS []string // sites that let nothing but TLS out
	for _, s := range []overlay.SiteProfile{p.asker, p.target} {
		switch s.Egress {
		case overlay.EgressAny, overlay.Egress443, overlay.EgressHTTPProxy:
		case overlay.EgressTLS443, overlay.EgressHTTPProxyTLS:
			if !slices.Contains(inTLS, string(s.Site)) {
				inTLS = append(inTLS, string(s.Site))
			}
		default:
			return reject("%s, so that no proxy can be reached", egressLimit(s))
		}
	}
	if p.proxies != nil {
		if why := NeedOf(p.asker, p.target).Unmet(p.proxies); why != "" {
			return reject("%s", why)
		}
	}
	how := ""
	if len(inTLS) > 0 {
		how = fmt.Sprintf(" (%s inside of TLS)", strings.Join(inTLS, " and "))
	}
	if p.sameSite() {
		return take("%s can reach a proxy on port 443%s, should its nodes not reach each other", p.asker.Site, how)
	}
	if p.asker.IPv6Only != p.target.IPv6Only {
		return take("both sites can reach a proxy on port 443%s that has IPv4 and IPv6", how)
	}
	return take("both sites can reach a proxy on port 443%s", how)
}
