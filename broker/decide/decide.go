package decide

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Decide returns how processes of the asker's site connect to processes of the target's: the
// techniques to try, in order, each with its reason, and why each other one is left out. Every
// technique appears exactly once, in Steps or in Rejected. It is a pure function of the two
// profiles and the kinds of proxies, nil if these are not known; the reasons name the site and its
// rule, so that an admin knows which line to change.
//
// Nodes of one site reach each other directly, and the only technique that an admin can forbid
// there is the relay, because it takes data out of the site. The other techniques are for a node
// that found no free port in the site's range.
func Decide(asker, target overlay.SiteProfile, proxies []ProxyKind) overlay.Plan {
	plan := overlay.Plan{Asker: asker.Site, Target: target.Site}
	p := pair{asker: asker, target: target, proxies: proxies}
	for _, t := range overlay.Techniques() {
		v := p.judge(t)
		if !v.take {
			plan.Rejected = append(plan.Rejected, overlay.Rejection{Technique: t, Reason: v.reason})
			continue
		}
		plan.Steps = append(plan.Steps, overlay.Step{Technique: t, Via: p.via(t), Reason: v.reason, Port: p.port(t, v.ipv6), IPv6: v.ipv6})
		p.dials = p.dials || t.Kind() == overlay.AskerDials
		p.reached = p.reached || p.dials || t.Kind() == overlay.TargetDials
	}
	return plan
}

// pair is the state of Decide as it goes through the techniques in order of preference.
type pair struct {
	asker, target overlay.SiteProfile
	proxies       []ProxyKind
	dials         bool // a technique by which the asker dials the target was taken
	reached       bool // a technique by which either end dials the other was taken
}

// verdict is whether a technique is taken, and why or why not.
type verdict struct {
	take   bool
	reason string
	ipv6   bool // over IPv6
}

func take(format string, args ...any) verdict {
	return verdict{take: true, reason: fmt.Sprintf(format, args...)}
}
func reject(format string, args ...any) verdict { return verdict{reason: fmt.Sprintf(format, args...)} }

func (p pair) judge(t overlay.Technique) verdict {
	if p.sameSite() && t != overlay.Relay {
		return p.judgeSameSite(t)
	}
	for _, s := range []overlay.SiteProfile{p.asker, p.target} {
		if s.Forbids(t) {
			return reject("the admin of %s forbids it", s.Site)
		}
	}
	if t != overlay.Relay {
		if why := p.fullNAT(); why != "" {
			return reject("%s", why)
		}
	}
	if p.onlyIPv6() && t != overlay.Relay {
		return p.judgeOnlyIPv6(t)
	}
	v := p.judgeOne(t)
	doubtful := t.Kind() == overlay.BothSend && p.behindOneNAT() // which over IPv6 it is not
	if v.take && !doubtful || t == overlay.Relay {
		return v
	}
	return p.judgeOverIPv6(t, v)
}

// judgeOne is judge for the IP version that the profiles describe.
func (p pair) judgeOne(t overlay.Technique) verdict {
	if t.Kind().Negotiated() {
		if v := p.needsBoth(); !v.take {
			return v
		}
	}
	judge := judges[t]
	if judge == nil {
		return reject("not known to this broker")
	}
	v := judge(p)
	if v.take {
		if why := p.hiddenAddress(t); why != "" {
			return reject("%s", why)
		}
	}
	return v
}

// judges decides for each technique whether a pair of sites can use it, from their profiles alone.
var judges = map[overlay.Technique]func(pair) verdict{
	overlay.Direct:           pair.direct,
	overlay.PortRange:        pair.portRange,
	overlay.Reversed:         pair.reversed,
	overlay.SimultaneousOpen: pair.simultaneousOpen,
	overlay.Traversing:       pair.traversing,
	overlay.HolePunching:     pair.holePunching,
	overlay.Relay:            pair.relay,
}

// port returns the port from which the asker must dial, for a target that lets only port 443 out; 0
// if any port will do.
func (p pair) port(t overlay.Technique, ipv6 bool) uint16 {
	if ipv6 {
		p = p.overIPv6()
	}
	if t == overlay.SimultaneousOpen && p.target.Egress == overlay.Egress443 {
		return relayPort
	}
	return 0
}

// sameSite reports whether both ends are nodes of one site.
func (p pair) sameSite() bool { return p.asker.Site == p.target.Site }

// judgeSameSite is judge for nodes of one site.
func (p pair) judgeSameSite(t overlay.Technique) verdict {
	switch t {
	case overlay.Direct:
		return take("both processes are in %s", p.asker.Site)
	case overlay.Reversed:
		return take("both processes are in %s, and a target without a free port to listen on can still dial", p.asker.Site)
	}
	return reject("both processes are in %s, where nodes reach each other directly", p.asker.Site)
}

// via returns the gateways that carry the data. A node without a route out needs its gateway for
// every technique that leaves the site, whichever end dials.
func (p pair) via(t overlay.Technique) overlay.Via {
	var v overlay.Via
	if p.sameSite() && t != overlay.Relay {
		return v
	}
	if p.asker.GatewayOnly {
		v |= overlay.ViaAsker
	}
	if p.target.GatewayOnly {
		v |= overlay.ViaTarget
	}
	return v
}

func (p pair) direct() verdict {
	if p.target.Inbound == overlay.InboundPorts {
		return reject("%s lets in only its ports %v, which is technique %v", p.target.Site, p.target.Ports, overlay.PortRange)
	}
	return dial(p.asker, p.target)
}

func (p pair) portRange() verdict {
	switch p.target.Inbound {
	case overlay.InboundPorts:
		return dial(p.asker, p.target)
	case overlay.InboundOpen:
		return reject("%s lets every port in, which is technique %v", p.target.Site, overlay.Direct)
	}
	return reject("%s opens no port range", p.target.Site)
}

// reversed takes the technique if only the asker can be reached: where the asker can dial, a dial
// back from the target gains nothing.
func (p pair) reversed() verdict {
	if p.dials {
		return reject("%s can dial %s itself", p.asker.Site, p.target.Site)
	}
	v := dial(p.target, p.asker)
	if v.take {
		v.reason = fmt.Sprintf("%s cannot dial %s, but the other way works: %s", p.asker.Site, p.target.Site, v.reason)
	} else {
		v.reason = fmt.Sprintf("%s cannot dial back: %s", p.target.Site, v.reason)
	}
	return v
}

// relayPort is where proxies listen, and the only port that a site with restricted egress lets out.
const relayPort = 443

// dial judges whether a connection from one site reaches a listener of another. Helpers of an open
// site listen on ports that their kernel picks, so a site that lets only port 443 out reaches none
// of them.
func dial(from, to overlay.SiteProfile) verdict {
	if to.Inbound != overlay.InboundOpen && to.Inbound != overlay.InboundPorts {
		if to.NAT.Translates() {
			return reject("%s is behind a NAT that forwards no port inward", to.Site)
		}
		return reject("%s lets no connection in", to.Site)
	}
	lowPorts := !to.HighPortsOnly || to.GatewayOnly // what a gateway listens on is set, and bound
	if !lowPorts && to.Inbound == overlay.InboundPorts && to.Ports.Last <= relayPort {
		return reject("%s opens ports %v, and its helpers may bind none of them (they have no CAP_NET_BIND_SERVICE)", to.Site, to.Ports)
	}
	if from.Egress == overlay.EgressAny {
		return take("%s", inboundText(to))
	}
	limit := egressLimit(from)
	switch {
	case from.Egress.OnlyTLS():
		return reject("%s, and a %s of %s takes none; proxies do", limit, listener(to), to.Site)
	case from.Egress != overlay.Egress443 && from.Egress != overlay.EgressHTTPProxy:
		return reject("%s", limit)
	case to.Inbound == overlay.InboundPorts && to.Ports.Contains(relayPort) && !lowPorts:
		return reject("%s, and the helpers of %s may not bind that port (they have no CAP_NET_BIND_SERVICE)", limit, to.Site)
	case to.Inbound == overlay.InboundPorts && to.Ports.Contains(relayPort):
		return take("%s, and %s", limit, inboundText(to))
	case to.Inbound == overlay.InboundPorts:
		return reject("%s, and %s", limit, inboundText(to))
	}
	return reject("%s, and a %s of %s listens elsewhere", limit, listener(to), to.Site)
}

// inboundText describes an inbound rule that lets something in.
func inboundText(s overlay.SiteProfile) string {
	if s.Inbound == overlay.InboundPorts {
		return fmt.Sprintf("%s opens ports %v", s.Site, s.Ports)
	}
	return fmt.Sprintf("%s lets every connection in", s.Site)
}

// egressLimit describes an egress rule that does not let everything out.
func egressLimit(s overlay.SiteProfile) string {
	switch s.Egress {
	case overlay.Egress443:
		return fmt.Sprintf("%s lets only port 443 out", s.Site)
	case overlay.EgressHTTPProxy:
		return fmt.Sprintf("%s lets only its HTTP proxy out, to port 443", s.Site)
	case overlay.EgressTLS443:
		return fmt.Sprintf("%s lets only TLS out, to port 443", s.Site)
	case overlay.EgressHTTPProxyTLS:
		return fmt.Sprintf("%s lets only its HTTP proxy out, to port 443, and only TLS inside", s.Site)
	}
	return fmt.Sprintf("%s lets nothing out", s.Site)
}

func listener(s overlay.SiteProfile) string {
	if s.GatewayOnly {
		return "gateway"
	}
	return "helper"
}

// fullNAT says why only relays, which share connections, are tried: the NAT before a site lets no
// new connection through. It is "" where that is not so, or no relay is possible.
func (p pair) fullNAT() string {
	for _, s := range []overlay.SiteProfile{p.asker, p.target} {
		if s.Sessions > 0 && p.judge(overlay.Relay).take {
			why := fmt.Sprintf("the NAT before %s lets no new connections through beyond about %d of a node, and relays share those that there are", s.Site, s.Sessions)
			if s.Sessions <= overlay.FewSessions && !s.GatewayOnly {
				why += "; so few leave nodes without any: with gateway_only its gateway shares for all"
			}
			return why
		}
	}
	return ""
}
