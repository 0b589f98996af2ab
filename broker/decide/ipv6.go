package decide

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/overlay"
)

// This file judges what two sites can do over IPv6, where addresses are not translated and a
// firewall's rules may be others than over IPv4 (overlay.SiteProfile.OverIPv6).

// onlyIPv6 reports whether one of the sites has only IPv6, so that a connection is over IPv6 or
// impossible.
func (p pair) onlyIPv6() bool { return p.asker.IPv6Only || p.target.IPv6Only }

// overIPv6 returns the pair as it is over IPv6.
func (p pair) overIPv6() pair {
	p.asker, p.target = p.asker.OverIPv6(), p.target.OverIPv6()
	return p
}

// hasIPv6Rules reports whether the profile says what the site's firewall does to IPv6.
func hasIPv6Rules(s overlay.SiteProfile) bool { return s.IPv6Only || s.IPv6Rules.Measured }

// lacksIPv6 returns why nodes or gateways of the two sites cannot connect over IPv6, or "".
func (p pair) lacksIPv6() string {
	for _, s := range []overlay.SiteProfile{p.asker, p.target} {
		switch {
		case s.IPv6 && (hasIPv6Rules(s) || s.Egress == overlay.EgressAny):
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

// listens returns the site whose listener a technique dials, if it does that.
func (p pair) listens(t overlay.Technique) overlay.SiteProfile {
	if t.Kind() == overlay.TargetDials {
		return p.asker
	}
	return p.target
}

// unknownOverIPv6 returns why it is not known whether two sites that have IPv6 can use the
// technique over it, or "".
func (p pair) unknownOverIPv6(t overlay.Technique) string {
	l := p.listens(t)
	switch {
	case t.Kind() == overlay.BothDial || l.IPv6Only:
		return ""
	case t.Kind() == overlay.BothSend:
		for _, s := range []overlay.SiteProfile{p.asker, p.target} {
			if !hasIPv6Rules(s) {
				return fmt.Sprintf("it is not known whether datagrams leave %s over IPv6", s.Site)
			}
		}
	case !l.IPv6Rules.Measured:
		return fmt.Sprintf("it is not known what %s lets in over IPv6", l.Site)
	case l.GatewayOnly:
		return fmt.Sprintf("the gateway of %s listens on one address, of IPv4", l.Site)
	case l.IPv6Rules.Inbound == overlay.InboundOpen && !l.DeclaresIPv6():
		return fmt.Sprintf("%s lets every connection in over IPv6, but its profile.networks declares no network of IPv6 where its nodes are reached", l.Site)
	}
	return ""
}

// judgeOverIPv6 is judge over IPv6, for sites that have IPv4 as well and cannot use the technique
// over it because of four, or only perhaps. It is four's verdict where IPv6 does no better.
func (p pair) judgeOverIPv6(t overlay.Technique, four verdict) verdict {
	if p.lacksIPv6() != "" {
		return four
	}
	six := p.overIPv6().judgeOne(t)
	if !six.take {
		return four
	}
	if why := p.unknownOverIPv6(t); why != "" {
		if p.listens(t).IPv6Rules.Measured && t.Kind() != overlay.BothSend { // something can be done about it
			four.reason += "; " + why
		}
		return four
	}
	six.ipv6, six.reason = true, fmt.Sprintf("over IPv6: %s (not over IPv4: %s)", six.reason, four.reason)
	return six
}

// judgeOnlyIPv6 is judge where one of the sites has only IPv6, except for the relay.
func (p pair) judgeOnlyIPv6(t overlay.Technique) verdict {
	six, other := p.asker, p.target
	if !six.IPv6Only {
		six, other = other, six
	}
	if !other.IPv6 && !other.IPv6Only {
		return reject("%s has nothing but IPv6, and %s none of it", six.Site, other.Site)
	}
	lacks := ""
	if t.Kind().Negotiated() || !p.listens(t).IPv6Only {
		lacks = p.lacksIPv6()
	}
	if lacks == "" {
		lacks = p.unknownOverIPv6(t)
	}
	if lacks != "" {
		return reject("%s has nothing but IPv6, and %s", six.Site, lacks)
	}
	v := p.overIPv6().judgeOne(t)
	if v.take {
		v.ipv6, v.reason = t.Kind().Negotiated() || !p.listens(t).IPv6Only, "over IPv6: "+v.reason
	}
	return v
}
