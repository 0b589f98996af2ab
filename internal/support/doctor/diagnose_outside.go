package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The clock skew at which something breaks, and at which there is a warning.
const (
	clockBroken = min(overlay.MaxAhead, overlay.MaxLate)
	clockOff    = 2 * time.Second
)

// session judges the information from the daemon above.
func session(o Observations) []Finding {
	s := o.Session
	if !s.Tried || len(o.Services) == 0 {
		return nil
	}
	target := o.Services[0].What + " " + s.At
	f := Finding{Layer: "session", Target: target, Status: Passed, Class: OK, Evidence: "it answers calls", Meaning: "the control plane works up to the broker"}
	var all []Finding
	switch {
	case s.Err != "":
		f.Status, f.Class, f.Evidence = Failed, Refused, s.Err
		f.Meaning, f.Fix = "the hand-shake goes through and the session fails", "look at the daemon's log"
	case s.Listed:
		all = append(all, clock(o, target))
	case s.Gone:
		f.Status, f.Class, f.Evidence = Failed, BrokerAway, s.ListErr
		f.Meaning = "this node reaches its gateway, and the gateway gets no answer from the broker: it has no session, for the reason in its words, or the session has just gone silent"
		f.Device, f.Fix = "what lies between the site's gateway and the broker", "run isthmus doctor on the gateway"
	case s.Unknown:
		f.Status, f.Evidence, f.Meaning = NotChecked, s.ListErr, "not checked: a daemon on the way does not know the call by which the grid's public addresses are learned"
		f.Fix = "upgrade the grid's daemons, or name public hosts with --proxy"
	default:
		f.Status, f.Class, f.Evidence = Failed, Refused, s.ListErr
		f.Meaning, f.Fix = "the session works and the call for reflectors fails", "look at the log of gateway and broker"
	}
	if s.Keeps.IsValid() {
		all = append(all, contested(o, target))
	}
	return append([]Finding{f}, all...)
}

// contested reports two hosts with one certificate.
func contested(o Observations, target string) Finding {
	s := o.Session
	return Finding{Layer: "session", Target: target, Status: Failed, Class: Contested,
		Evidence: fmt.Sprintf("within the last 10 minutes the certificate of %s was presented from %v, whose session goes on, and from %v, which is refused", o.Self, s.Keeps, s.Refused),
		Meaning:  "two hosts have one certificate and its key, as when a host's disk was copied; one of them cannot be part of the grid",
		Device:   "the hosts at " + s.Keeps.Addr().String() + " and " + s.Refused.Addr().String() + ", as seen from there",
		Fix:      "give one of them a certificate of its own (isthmus ca enroll, or isthmus ca issue), delete the copied key there, and restart its daemon"}
}

// setClocks is the fix for clock skew.
const setClocks = "have NTP set both clocks (chrony, ntpd)"

// clock compares this host's clock with the broker's, within half a round trip.
func clock(o Observations, target string) Finding {
	s := o.Session
	trip := s.Got.Sub(s.Sent)
	off := s.Sent.Add(trip / 2).Sub(s.BrokerTime)
	f := Finding{Layer: "clock", Target: target, Status: Passed, Class: OK,
		Evidence: fmt.Sprintf("this host's clock is %s %s the broker's, give or take %s", off.Abs().Round(time.Millisecond), aheadOf(off), (trip / 2).Round(time.Millisecond)),
		Meaning:  "the clocks agree well enough"}
	if off.Abs() <= clockOff+trip/2 {
		return f
	}
	differ := overlay.ClocksDiffer("this host", "the broker", off.Abs()-trip/2)
	f.Status, f.Class, f.Fix = Warning, Clock, setClocks
	f.Meaning = differ + "; agreed instants still hold, since offsets are measured, and log lines do not compare"
	if off.Abs() > clockBroken {
		f.Status, f.Meaning = Failed, differ+", and certificates allow for less than that"
	}
	return f
}

func aheadOf(off time.Duration) string {
	if off < 0 {
		return "behind"
	}
	return "ahead of"
}

// profile returns the site's profile, or an empty one.
func (o Observations) profile() overlay.SiteProfile {
	if o.Session.Profile != nil {
		return *o.Session.Profile
	}
	return overlay.SiteProfile{}
}

// outside judges the path to the grid's public hosts over TCP.
func outside(o Observations) []Finding {
	var all []Finding
	p := o.profile()
	if o.Helper && p.GatewayOnly {
		return gatewayOnly(o)
	}
	if o.Straight != nil {
		all = append(all, pastProxy(*o.Straight))
	}
	on443 := false
	for _, v := range o.Reflectors {
		on443 = on443 || v.At.Port() == 443 && v.Connect.Outcome == Connected
	}
	blocked := false
	if onlySix(o) {
		return append(all, overSixAlone(o))
	}
	for _, v := range o.Reflectors {
		if v.At.Port() != 443 && on443 && v.Connect.Outcome != Connected {
			if !blocked { // report it once
				all = append(all, only443(v, p))
			}
			blocked = true
			continue
		}
		all = append(all, judgeReflector(v))
	}
	all = append(all, stripped(o)...)
	return append(append(all, translated(o)...), mappingTCP(o)...)
}

// onlySix reports whether this host reaches all known hosts of the grid over IPv6, and has no route
// to any over IPv4.
func onlySix(o Observations) bool {
	is := func(outcome Outcome) func(Reflector) bool {
		return func(v Reflector) bool { return v.Connect.Outcome != outcome }
	}
	return len(o.Reflectors) > 0 && !slices.ContainsFunc(o.Reflectors, is(Routeless)) && len(o.IPv6) > 0 && !slices.ContainsFunc(o.IPv6, is(Connected))
}

// overSixAlone judges a host that has nothing but IPv6.
func overSixAlone(o Observations) Finding {
	f := Finding{Layer: "TCP", Target: "outside, over IPv4", Status: Passed, Class: OK,
		Evidence: fmt.Sprintf("no route to %v; over IPv6 %v answers", o.Reflectors[0].At, o.IPv6[0].At),
		Meaning:  "this host has nothing but IPv6: links with sites that have IPv4 alone go over a proxy that advertises both"}
	if o.Session.NoDual {
		f.Status, f.Class = Warning, NoDualProxy
		f.Evidence += "; no proxy that the broker names has an address of each version of IP"
		f.Meaning = "this host has nothing but IPv6, and nothing joins it with a site that has IPv4 alone: that takes a proxy with both"
		f.Device, f.Fix = "the grid's proxies", "give a proxy addresses of both versions of IP, and list both in advertise of its settings"
	}
	return f
}

// gatewayOnly judges a node whose data its gateway carries.
func gatewayOnly(o Observations) []Finding {
	f := Finding{Layer: "TCP", Target: "outside", Status: Warning, Class: GatewayOnly, Device: "this host: its routes",
		Evidence: "the site's profile says gateway_only",
		Meaning:  "by design: this node needs no way out, its gateway carries its data; what the gateway reaches is for a run there",
		Fix:      "nothing, if this is meant; run isthmus doctor on the gateway for the rest"}
	for _, v := range o.Reflectors {
		switch v.Connect.Outcome {
		case Connected:
			f.Evidence += fmt.Sprintf("; yet a connection to %s was made", v.At)
			f.Meaning, f.Device = "this node has a route out that its site's profile does not use: every link takes the detour over the gateway", ""
			f.Fix = "set profile.gateway_only: false at the frontal, if all nodes have that route"
			return []Finding{f}
		default:
			f.Evidence += fmt.Sprintf("; to %s: %s", v.At, v.Connect.Err)
		}
	}
	return []Finding{f}
}

// pastProxy judges a connection that bypassed the HTTP proxy.
func pastProxy(c Connection) Finding {
	f := connection("TCP", c)
	f.Target = c.To.String() + ", past the HTTP proxy"
	f.Status, f.Class = Warning, EgressProxy
	f.Fix = "nothing, if this is meant: links go over relays. For direct ones ask for the rules that --firewall-request prints"
	if c.Outcome == Connected {
		f.Meaning = "TCP leaves the site without the proxy, though the profile says that it does not: links go over relays for nothing"
		f.Fix = "set profile.egress at the frontal to what the firewall does"
		return f
	}
	f.Meaning = "only the HTTP proxy leads out, as the profile says"
	return f
}

// only443 judges another port of a host whose port 443 answers.
func only443(v Reflector, p overlay.SiteProfile) Finding {
	f := connection("TCP", v.Connect)
	f.Target, f.Status, f.Class = v.At.String(), Warning, Egress443
	f.Evidence += "; port 443 answers"
	f.Meaning = "only port 443 is permitted outbound, or a device in front of that host refuses its other ports: the two cannot be distinguished"
	if p.Egress == overlay.Egress443 || p.Egress == overlay.EgressTLS443 {
		f.Meaning = "only port 443 leads out, as the profile says"
	}
	f.Fix = "nothing, if this is meant: links go over relays on port 443. For direct ones ask for the rules that --firewall-request prints"
	return f
}

// judgeReflector judges one public host.
func judgeReflector(v Reflector) Finding {
	f := connection("TCP", v.Connect)
	f.Target = v.At.String()
	switch {
	case v.Via != "" && v.Connect.Outcome == Connected && !v.Tunnel.Open:
		f.Layer = "HTTP proxy"
		return refusedTunnel(f, v.Via, v.At.String(), v.Tunnel)
	case v.Connect.Outcome != Connected:
		return f
	case v.TLS:
		f.Status, f.Class = Warning, EgressTLS
		f.Evidence += fmt.Sprintf("; a plain question got no answer (%s), and one inside of TLS did: it sees %s", v.Err, v.Seen)
		f.Meaning = "something on the way inspects connections and lets only TLS through: links go over relays, inside of TLS"
		f.Device = "a firewall that inspects what passes port 443, most likely this site's"
		if v.Via != "" {
			f.Meaning = "the HTTP proxy opens tunnels and lets only TLS through them: links go over relays, inside of TLS"
			f.Device = "the HTTP proxy " + v.Via
		}
		f.Fix = "nothing, if this is meant: relayed links work, and cost this host and the proxy some CPU time more. For plain and direct ones ask for a rule without inspection"
	case v.Err != "":
		f.Status, f.Class = Warning, Refused
		f.Evidence += "; then " + v.Err
		f.Meaning = "TCP passes; what answers is no reflector of the grid, or something in between lets nothing through of which it does not know the protocol"
		f.Fix = "check that the address is that of a broker or proxy; ask for a rule without inspection"
		if strings.Contains(v.Err, "refused:") {
			f.Status, f.Class, f.Meaning, f.Fix = Passed, OK, "TCP passes, and a daemon of the grid answers", ""
		}
	case v.Bulk.Tried && !v.Bulk.Passed && v.Bulk.Smaller == 0:
		return lostBulk(f, v)
	default:
		f.Evidence += fmt.Sprintf("; it sees %s", v.Seen)
		switch {
		case v.Bulk.Passed:
			f.Evidence += "; full-size segments arrive"
		case v.Bulk.Tried:
			f.Evidence += "; full-size segments do not arrive (see MTU)"
		}
		f.Meaning = "a host of the grid answers: data passes in the clear form that links use on this port"
		if v.Via != "" {
			f.Evidence += ", through the HTTP proxy " + v.Via
		}
	}
	return f
}

// lostBulk judges a connection on which a request is answered but nothing larger arrives, in any
// segment size.
func lostBulk(f Finding, v Reflector) Finding {
	f.Layer, f.Status, f.Class = "MTU", Failed, TCPDropped
	f.Evidence += fmt.Sprintf("; small frames are answered, and of 4000 bytes not all were acknowledged within %s, neither in full-size segments nor in segments of %d bytes (path MTU as this host knows it: %d)", ms(segmentBound), smallSegment, v.Bulk.PathMTU)
	f.Meaning = "the way loses what comes after the first packets: a device that inspects connections, or heavy loss"
	f.Fix = "ask for a rule without inspection"
	return f
}

// stripped reports which TCP options no connection has. If the administrator of a grid host
// disabled one, a connection with another host has it.
func stripped(o Observations) []Finding {
	var with probe.TCPOptions
	var to []string
	for _, v := range o.Reflectors {
		if v.Options != nil {
			to = append(to, v.At.String())
			with.Scale, with.SACK, with.Timestamps = with.Scale || v.Options.Scale, with.SACK || v.Options.SACK, with.Timestamps || v.Options.Timestamps
		}
	}
	if len(to) == 0 {
		return nil
	}
	var missing []string
	f := Finding{Layer: "TCP", Target: "options", Status: Warning, Class: TCPOptions, Meaning: "losses cost connections more than they need to",
		Device: "something on the way that normalises TCP, most likely this site's firewall or a WAN optimiser; the settings net.ipv4.tcp_window_scaling, tcp_sack and tcp_timestamps of this host would look the same",
		Fix:    "ask its administrator not to modify TCP options (RFC 7323, RFC 2018)"}
	if !with.Scale {
		missing = append(missing, "window scaling")
		f.Meaning = "a connection carries no more than 64 KiB a round trip, 6 Mb/s at 80 ms; simultaneous open and traversing do not work, for where SYNs cross next to nothing is carried. Hole punching goes by UDP and is not concerned"
	}
	if !with.SACK {
		missing = append(missing, "SACK")
	}
	if !with.Timestamps {
		missing = append(missing, "timestamps")
	}
	if len(missing) == 0 {
		return nil
	}
	f.Evidence = fmt.Sprintf("no connection to %s has %s", strings.Join(to, ", "), strings.Join(missing, " or "))
	return []Finding{f}
}

// ipv6 judges the path to the grid's public hosts over IPv6. Its absence is not a fault.
func ipv6(o Observations) []Finding {
	for _, v := range o.IPv6 {
		if !v.Seen.IsValid() {
			continue
		}
		f := Finding{Layer: "IPv6", Target: v.At.String(), Status: Passed, Class: OK,
			Evidence: fmt.Sprintf("connected from %s, and it sees %s", v.Connect.From, v.Seen),
			Meaning:  "IPv6 leaves this site untranslated: nodes of two such sites can meet over it, whatever NATs do to IPv4; one that lets connections in over IPv6 is dialled where profile.networks has its network, and others punch"}
		if v.Seen != v.Connect.From {
			f.Status, f.Class = Warning, NAT
			f.Meaning = "a NAT on the way changes this host's IPv6 address: the site counts as one without IPv6"
			f.Fix = "nothing: the grid works without IPv6. For direct paths ask for IPv6 without translation"
		}
		return []Finding{f}
	}
	if len(o.IPv6) == 0 {
		return nil
	}
	v := o.IPv6[0]
	why := v.Connect.Err
	if why == "" {
		why = v.Err
	}
	return []Finding{{Layer: "IPv6", Target: v.At.String(), Status: Passed, Class: OK,
		Evidence: fmt.Sprintf("not reached (%s), which the grid does not need", why), Meaning: "there is no IPv6 from here to the grid's hosts; links go over IPv4"}}
}

// ownIPv6 returns this host's address as a public host saw it untranslated; invalid if none did.
func (o Observations) ownIPv6() netip.Addr {
	for _, v := range o.IPv6 {
		if v.Seen.IsValid() && v.Seen == v.Connect.From {
			return v.Seen.Addr()
		}
	}
	return netip.Addr{}
}

// inbound judges the call-back.
func inbound(o Observations) []Finding {
	in := o.Inbound
	f := Finding{Layer: "inbound", Target: "this host", Status: NotChecked, Class: OK}
	if !in.Tried {
		if in.Err == "" {
			return nil
		}
		f.Evidence, f.Meaning = in.Err, "not checked: no host outside could be asked to connect here"
		return []Finding{f}
	}
	f.Target = in.To.String()
	said := ""
	if in.Text != "" {
		said = ": " + in.Text
	}
	f.Evidence = fmt.Sprintf("asked to connect to %s, %s reports %s%s", in.To, in.From, in.Outcome, said)
	f.Status, f.Device = Warning, "this site's firewall or NAT, most likely at its gateway; this host's own firewall would look the same"
	if len(translated(o)) > 0 {
		f.Device = "a NAT on the way, which forwards nothing unasked to this host, or a firewall; which of several cannot be determined"
	}
	f.Fix = unlessOpened(o.profile())
	switch {
	case in.Outcome == Connected && in.Arrived:
		f.Status, f.Class, f.Fix, f.Device = Passed, OK, "", ""
		f.Meaning = "connections from outside reach this port"
	case in.Outcome == Connected:
		f.Class, f.Meaning = InboundRefused, "a device on the path accepted in this host's name; nothing arrived here"
	case in.Outcome == Silent:
		f.Class, f.Meaning = InboundDropped, "connections from outside vanish"
	default:
		f.Class, f.Meaning = InboundRefused, "connections from outside are refused with a reset or an ICMP error"
	}
	return []Finding{f}
}

// unlessOpened describes how links are established if outside hosts cannot dial in.
func unlessOpened(p overlay.SiteProfile) string {
	fix := "nothing, if this is meant: "
	switch {
	case p.Egress != overlay.EgressAny:
		fix += "links are relayed"
	case p.Filter == overlay.FilterStateless && p.Privileged:
		fix += "links are direct where the other end can be dialled, by traversing TCP, or by hole punching where datagrams pass; else they are relayed"
	case p.Filter == overlay.FilterStateless:
		fix += "links are direct where the other end can be dialled, or by hole punching where datagrams pass; else they are relayed. Past a filter that judges SYNs alone TCP gets by traversing, for which the daemons that make connections need CAP_NET_RAW (install traversing.conf, set profile.privileged)"
	default:
		fix += "links are direct where the other end can be dialled, or where both ends can open the way at once (simultaneous open, traversing TCP, hole punching; isthmus plan SITE SITE tells); else they are relayed"
	}
	if p.HighPortsOnly && p.Egress == overlay.EgressAny {
		fix += ". Links with sites that let only port 443 out are relayed, since the daemons here may not bind that port: port443.conf lets them"
	}
	return fix + ". To be dialled open a port range (--firewall-request)"
}
