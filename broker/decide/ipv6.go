package decide

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/overlay"
)

// This file judges what two sites can do over IPv6, where addresses are not translated and little
// is known of filters (overlay.SiteProfile.OverIPv6).

// onlyIPv6 reports whether one of the sites has only IPv6, so that a connection is over IPv6 or
// impossible.
func (p pair) onlyIPv6() bool { return p.asker.IPv6Only || p.target.IPv6Only }

// overIPv6 returns the pair as it is over IPv6.
func (p pair) overIPv6() pair {
	p.asker, p.target = p.asker.OverIPv6(), p.target.OverIPv6()
	return p
}

// lacksIPv6 returns why nodes or gateways of the two sites cannot connect over IPv6, or "".
func (p pair) lacksIPv6() string {
	for _, s := range []overlay.SiteProfile{p.asker, p.target} {
		switch {
		case s.IPv6 && (s.IPv6Only || s.Egress == overlay.EgressAny):
		case s.IPv6:
			return fmt.Sprintf("%s, and what it lets out over IPv6 is not known", egressLimit(s))
		case s.IPv6Only:
			return fmt.Sprintf("the IPv6 addresses of %s are translated, or are not known not to be", s.Site)
		default:
			return fmt.Sprintf("%s has no IPv6", s.Site)
		}
	}
	return ""
}

// judgeOnlyIPv6 is judge where one of the sites has only IPv6, except for the relay. The profile of
// a site with both versions describes its IPv4 firewall, so its inbound rules over IPv6 are not
// known.
func (p pair) judgeOnlyIPv6(t overlay.Technique) verdict {
	six, other := p.asker, p.target
	if !six.IPv6Only {
		six, other = other, six
	}
	listener := p.target
	if t == overlay.Reversed {
		listener = p.asker
	}
	lacks := p.lacksIPv6()
	switch {
	case !other.IPv6 && !other.IPv6Only:
		return reject("%s has nothing but IPv6, and %s none of it", six.Site, other.Site)
	case t == overlay.HolePunching:
		return reject("%s has nothing but IPv6, over which holes are not punched", six.Site)
	case t.Kind().Negotiated() && lacks != "":
		return reject("%s has nothing but IPv6, and %s", six.Site, lacks)
	case !t.Kind().Negotiated() && !listener.IPv6Only:
		return reject("%s has nothing but IPv6, over which it is not known what %s lets in", six.Site, listener.Site)
	}
	v := p.overIPv6().judgeOne(t)
	if v.take {
		v.ipv6, v.reason = t.Kind().Negotiated(), "over IPv6: "+v.reason
	}
	return v
}
