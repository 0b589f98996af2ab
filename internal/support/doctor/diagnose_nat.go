package doctor

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/isthmus-grid/isthmus/overlay"
)

// carriers is the address space between carriers and their customers (RFC 6598).
var carriers = netip.MustParsePrefix("100.64.0.0/10")

// translated compares local addresses with those seen from outside.
func translated(o Observations) []Finding {
	for _, v := range o.Reflectors {
		if v.Via != "" || !v.Seen.IsValid() || v.Seen.Addr() == v.Connect.From.Addr() {
			continue
		}
		f := Finding{Layer: "NAT", Target: v.At.String(), Status: Warning, Class: NAT,
			Evidence: fmt.Sprintf("this host connects from %s, and %s sees %s", v.Connect.From, v.At, v.Seen),
			Meaning:  "a NAT on the way changes this host's address; whether it is one or several in a row cannot be determined from this host",
			Device:   "the NAT of this site, or one beyond it; isthmus doctor on the site's gateway tells which, if that is what translates",
			Fix:      "nothing: the grid works with it; what kind of NAT it is decides which direct paths exist"}
		if !o.Helper {
			f.Meaning = "a NAT beyond this host changes its address; if this host translates for the site's nodes, theirs are changed twice"
			f.Device = "what lies beyond this host: a NAT of the site in front of its gateway, or the provider's"
		}
		if carriers.Contains(v.Connect.From.Addr()) {
			f.Device = fmt.Sprintf("most likely a NAT of the provider, on which the site has no say: %s is of the space between carriers and their customers (RFC 6598)", v.Connect.From.Addr())
			f.Fix += "; what is to be reachable from outside needs a public address from the provider, or IPv6"
		}
		return []Finding{f}
	}
	return nil
}

// fullNAT reports what the site has seen of a NAT that has room for few sessions. A test would have
// to fill it, while jobs run.
func fullNAT(o Observations) []Finding {
	n := o.profile().Sessions
	if n == 0 {
		return nil
	}
	f := Finding{Layer: "NAT", Target: "links of this site", Status: Warning, Class: NATFull,
		Evidence: "within the last 10 minutes new connections to a proxy got no answer, while an older one to the same port did",
		Meaning:  fmt.Sprintf("the NAT before this site lets no new connections through beyond about %d of a node; relays share those that there are, and nothing else is tried", n),
		Device:   "the NAT of this site, or one beyond it",
		Fix:      "ask for more sessions, or for more ports, for this host; or for a range of ports to be opened to it (--firewall-request)"}
	if n <= overlay.FewSessions && !o.profile().GatewayOnly {
		f.Meaning += "; so few leave nodes without any, and their links time out"
		f.Fix = "set profile.gateway_only: true at the frontal, so that the gateway's connections carry all nodes' links; or " + f.Fix
	}
	return []Finding{f}
}

// dependence is whether mappings depend on the destination (RFC 4787, section 4.1).
type dependence int

const (
	undetermined dependence = iota
	independent
	dependent
)

// ofTCP and ofUDP return how the NAT on the path, if there is one, maps one port of this host.
func (o Observations) ofTCP() dependence {
	m := o.Inbound.Mapped
	switch {
	case len(m) < 2:
		return undetermined
	case m[0].Seen != m[1].Seen:
		return dependent
	}
	return independent
}

func (o Observations) ofUDP() dependence {
	var first netip.AddrPort
	d := undetermined
	for _, seen := range o.UDP.Seen {
		switch {
		case !first.IsValid():
			first = seen
		case seen != first:
			return dependent
		default:
			d = independent
		}
	}
	return d
}

// mappingTCP is mapping for TCP, which reports only a mapping that is an obstacle.
func mappingTCP(o Observations) []Finding {
	if o.ofTCP() != dependent {
		return nil
	}
	m := o.Inbound.Mapped
	f := Finding{Layer: "NAT", Target: fmt.Sprintf("%s, %s", m[0].At, m[1].At), Status: Warning, Class: NATSymmetric,
		Evidence: fmt.Sprintf("connections from one port of this host: %s sees %s, %s sees %s", m[0].At, m[0].Seen, m[1].At, m[1].Seen),
		Device:   "the NAT of this site, or one beyond it"}
	f.Fix = "nothing: links are direct where the other end can be dialled, else they are relayed"
	ask := ". For direct TCP ask for endpoint-independent mapping (RFC 5382, REQ-1)"
	switch o.ofUDP() {
	case independent:
		f.Meaning = "the NAT's TCP mappings depend on the destination, UDP's do not: direct TCP by simultaneous open is not possible from here, hole punching over UDP is"
		f.Fix = "nothing: links are direct where the other end can be dialled, or else by hole punching, if that end's site lets datagrams through"
		ask += ", as UDP has it"
	case dependent:
		f.Meaning = "the NAT's TCP mappings depend on the destination, as UDP's do: neither direct TCP by simultaneous open nor hole punching over UDP is possible from here"
		ask = ". For more direct paths ask for endpoint-independent mapping of both (RFC 5382, REQ-1; RFC 4787, REQ-1)"
	default:
		f.Meaning = "the NAT's TCP mappings depend on the destination: direct TCP by simultaneous open is not possible from here; whether UDP's do could not be determined"
	}
	f.Fix += ask
	return []Finding{f}
}

// mapping compares what several servers saw of one port (RFC 4787 section 4.1).
func mapping(o Observations) Finding {
	d := o.UDP
	f := Finding{Layer: "UDP", Target: servers(d), Status: Passed, Class: OK, Meaning: "datagrams pass, and no NAT changes them"}
	var first netip.AddrPort
	var texts []string
	for _, s := range d.Servers {
		if seen, ok := d.Seen[s]; ok {
			texts = append(texts, fmt.Sprintf("%s sees %s", s, seen))
			first = seen
		}
	}
	f.Evidence = fmt.Sprintf("from %s: %s", d.Local, strings.Join(texts, ", "))
	switch {
	case o.ofUDP() == dependent:
		f.Status, f.Class = Warning, NATSymmetric
		f.Meaning = "the NAT takes another port for each destination (address-dependent mapping at least): a peer cannot know where to send"
		if o.ofTCP() == independent {
			f.Meaning += "; TCP's mappings do not depend on the destination: direct TCP by simultaneous open can work"
		}
		f.Device, f.Fix = "the NAT of this site, or one beyond it", "nothing: links are direct where the other end can be dialled; else they are relayed. For more direct paths ask for endpoint-independent mapping (RFC 4787, REQ-1)"
		if a := o.ownIPv6(); a.IsValid() {
			f.Fix += fmt.Sprintf("; over IPv6 (%s), which is not translated, they exist already between sites that have it", a)
		}
	case first != d.Local:
		f.Status, f.Class = Warning, NAT
		f.Meaning = "a NAT on the way changes this host's address"
		if len(texts) > 1 {
			f.Meaning += ", the same for all servers asked: hole punching can work"
		} else {
			f.Meaning += "; with one server it cannot be determined whether the same for all destinations"
		}
		f.Fix = "nothing: the grid works with it"
	}
	return f
}

func servers(d Datagrams) string {
	var texts []string
	for _, s := range d.Servers {
		texts = append(texts, s.String())
	}
	return strings.Join(texts, ", ")
}
