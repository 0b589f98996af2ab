package probe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/overlay"
)

// The measured fields of a profile, as the settings name them.
const (
	Inbound      = "inbound"
	Filter       = "filter"
	Refusal      = "refusal"
	NATMapping   = "nat.mapping"
	NATFiltering = "nat.filtering"
	NATKeepsPort = "nat.keeps_port"

	NATUDPMapping   = "nat_udp.mapping" // the same for UDP, reported in full even if equal to TCP's
	NATUDPFiltering = "nat_udp.filtering"
	NATUDPKeepsPort = "nat_udp.keeps_port"

	Egress   = "egress"
	UDP      = "udp"
	UDPRate  = "udp_rate"    // bits per second, or none
	MTU      = "mtu"         // bytes, or none
	IdleTCP  = "idle_tcp"    // seconds, with a + if it may be more, or none
	IdleUDP  = "idle_udp"    // the same
	Stripped = "tcp_options" // options removed on the way, or none
	IPv6Only = "ipv6_only"
	IPv6     = "ipv6"

	// What the firewall does to IPv6, of a site that has IPv4 as well.
	IPv6Inbound = "ipv6_rules.inbound"
	IPv6Filter  = "ipv6_rules.filter"
	IPv6Refusal = "ipv6_rules.refusal"
	IPv6Egress  = "ipv6_rules.egress"
	IPv6UDP     = "ipv6_rules.udp"

	Privileged    = "privileged"
	HighPortsOnly = "high_ports_only"
	SeenAt        = "seen_at" // an address, or none
)

// Fields returns the fields in the order of findings.
func Fields() []string {
	return []string{Inbound, Filter, Refusal, NATMapping, NATFiltering, NATKeepsPort,
		NATUDPMapping, NATUDPFiltering, NATUDPKeepsPort, Egress, UDP,
		UDPRate, MTU, Stripped, IdleTCP, IdleUDP, IPv6, IPv6Only, IPv6Inbound, IPv6Filter, IPv6Refusal, IPv6Egress, IPv6UDP, Privileged, HighPortsOnly, SeenAt}
}

// Finding is one field of a measured profile.
type Finding struct {
	Field string `json:"field"`
	Value string `json:"value,omitempty"` // as in the settings; empty: unknown
	How   string `json:"how"`             // how it was learned, or why it is unknown
}

// HasValue reports whether the value is known.
func (f Finding) HasValue() bool { return f.Value != "" }

// Result is a measured profile. Fields of Profile that Findings report as unknown have their zero
// value, which means nothing.
type Result struct {
	Profile  overlay.SiteProfile // without Site, GatewayOnly and Forbidden, which are not measured
	Findings []Finding           // one for each of Fields, in that order
}

// Finding returns the finding for a field; the zero Finding if there is none.
func (r Result) Finding(field string) Finding {
	for _, f := range r.Findings {
		if f.Field == field {
			return f
		}
	}
	return Finding{}
}

// Infer draws the conclusions from the observations.
func Infer(o Observations) Result {
	var r Result
	p := &r.Profile
	note := func(field string, value any, how string) {
		text := ""
		if value != nil {
			text = fmt.Sprint(value)
		}
		r.Findings = append(r.Findings, Finding{field, text, how})
	}
	nat, natUDP := o.nat(false), o.nat(true)
	// A STUN server has one UDP port, so ports of one host cannot be compared.
	if udp := &natUDP.mapping; udp.value == overlay.AddressDependent && nat.mapping.value == overlay.AddressAndPortDependent {
		*udp = is(nat.mapping.value, "%s, but for TCP it does", udp.how)
	}
	rules := o // of the version of IP that the profile is about
	if o.ipv6Only().value && o.OverIPv6 != nil {
		rules = *o.OverIPv6
	}
	note(Inbound, take(&p.Inbound, rules.inbound()), rules.inbound().how)
	if p.Inbound == overlay.InboundPorts {
		p.Ports = o.Ports
	}
	filter := rules.filter(rules.nat(false), p.Inbound)
	note(Filter, take(&p.Filter, filter), filter.how)
	note(Refusal, take(&p.Refusal, rules.refusal()), rules.refusal().how)
	note(NATMapping, take(&p.NAT.Mapping, nat.mapping), nat.mapping.how)
	filtering := o.natFiltering(nat, false)
	note(NATFiltering, take(&p.NAT.Filtering, filtering), filtering.how)
	note(NATKeepsPort, take(&p.NAT.KeepsPort, nat.keeps), nat.keeps.how)
	note(NATUDPMapping, take(&p.NATUDP.Mapping, natUDP.mapping), natUDP.mapping.how)
	filtering = o.natFiltering(natUDP, true)
	note(NATUDPFiltering, take(&p.NATUDP.Filtering, filtering), filtering.how)
	note(NATUDPKeepsPort, take(&p.NATUDP.KeepsPort, natUDP.keeps), natUDP.keeps.how)
	if p.NATUDP = consistent(p.NATUDP); p.NATUDP == p.NAT || !p.NAT.Translates() {
		p.NATUDP = overlay.NAT{}
	}
	note(Egress, take(&p.Egress, rules.egress()), rules.egress().how)
	note(UDP, take(&p.UDP, rules.udp()), rules.udp().how)
	rate, mtu := o.rate(), o.mtu()
	p.UDPRate, p.MTU = rate.value.value, uint16(mtu.value.value)
	note(UDPRate, take(new(bound), rate), rate.how)
	note(MTU, take(new(bound), mtu), mtu.how)
	note(Stripped, take(new(string), o.stripped()), o.stripped().how)
	for _, field := range []string{IdleTCP, IdleUDP} {
		note(field, nil, "it takes minutes, and is measured by itself")
	}
	note(IPv6, take(&p.IPv6, o.ipv6()), o.ipv6().how)
	note(IPv6Only, take(&p.IPv6Only, o.ipv6Only()), o.ipv6Only().how)
	o.noteIPv6Rules(p, note)
	note(Privileged, take(&p.Privileged, o.privileged()), o.privileged().how)
	note(HighPortsOnly, take(&p.HighPortsOnly, o.highPortsOnly()), o.highPortsOnly().how)
	at := o.seenAt()
	if note(SeenAt, nil, at.how); at.ok {
		p.SeenAt = at.value
		r.Findings[len(r.Findings)-1].Value = Value(*p, SeenAt)
	}
	return r
}

// noteIPv6Rules draws the conclusions about the rules for IPv6 beside IPv4.
func (o Observations) noteIPv6Rules(p *overlay.SiteProfile, note func(field string, value any, how string)) {
	if o.OverIPv6 == nil || o.ipv6Only().value {
		how := "no reflector saw this host's own address over IPv6"
		if o.OverIPv6 != nil {
			how = "there is nothing but IPv6, and the fields without ipv6_rules are about it"
		}
		for _, field := range []string{IPv6Inbound, IPv6Filter, IPv6Refusal, IPv6Egress, IPv6UDP} {
			note(field, nil, how)
		}
		return
	}
	six, r := *o.OverIPv6, defaultIPv6Rules(*p)
	inbound, egress, refusal, udp := six.inbound(), six.egress(), six.refusal(), six.udp()
	note(IPv6Inbound, take(&r.Inbound, inbound), inbound.how)
	filter := six.filter(six.nat(false), r.Inbound)
	note(IPv6Filter, take(&r.Filter, filter), filter.how)
	note(IPv6Refusal, take(&r.Refusal, refusal), refusal.how)
	note(IPv6Egress, take(&r.Egress, egress), egress.how)
	note(IPv6UDP, take(&r.UDP, udp), udp.how)
	if inbound.ok || filter.ok || egress.ok || udp.ok {
		p.IPv6Rules = r
	}
}

// defaultIPv6Rules returns the values to assume for fields that are not known when others are.
func defaultIPv6Rules(p overlay.SiteProfile) overlay.IPv6Rules {
	return overlay.IPv6Rules{Measured: true, Filter: overlay.FilterStateful, Egress: p.Egress}
}

// inferred is a value that was learned, and how, or why it was not.
type inferred[T any] struct {
	value T
	ok    bool
	how   string
}

func is[T any](v T, how string, args ...any) inferred[T] {
	return inferred[T]{v, true, fmt.Sprintf(how, args...)}
}

func unknown[T any](how string, args ...any) inferred[T] {
	return inferred[T]{how: fmt.Sprintf(how, args...)}
}

// take stores a known value and returns it for the finding, or nil.
func take[T any](to *T, t inferred[T]) any {
	if !t.ok {
		return nil
	}
	*to = t.value
	return t.value
}

// calls returns the call-backs of one kind that were made, or why there are none.
func (o Observations) calls(target Target, udp bool) (made []Call, err string) {
	err = "no call-back arrived"
	for _, c := range o.Calls {
		switch {
		case c.Target != target || c.UDP != udp:
		case c.Err != "":
			err = "no call-back: " + c.Err
		default:
			made = append(made, c)
		}
	}
	return made, err
}

func (o Observations) inbound() inferred[overlay.Inbound] {
	fresh, err := o.calls(Fresh, false)
	if len(fresh) == 0 {
		return unknown[overlay.Inbound]("%s", err)
	}
	c := fresh[0]
	if c.Arrived {
		return is(overlay.InboundOpen, "a connection from %v to port %d, which had never sent anything, came in", c.From.Addr(), c.Port)
	}
	refused := fmt.Sprintf("a connection from %v to a port that listens did not come in (%s)", c.From.Addr(), c.Outcome)
	if c.Outcome == Connected {
		refused = fmt.Sprintf("a connection from %v was accepted, but not by the port's listener", c.From.Addr())
	}
	ranged, err := o.calls(InRange, false)
	switch {
	case o.Ports == (overlay.Ports{}):
		return is(overlay.InboundNone, "%s; no port range is named that could be tried", refused)
	case len(ranged) == 0:
		return unknown[overlay.Inbound]("%s; ports %v: %s", refused, o.Ports, err)
	}
	var in, out []string
	for _, c := range ranged {
		if c.Arrived {
			in = append(in, fmt.Sprint(c.Port))
		} else {
			out = append(out, fmt.Sprint(c.Port))
		}
	}
	switch {
	case len(out) == 0:
		return is(overlay.InboundPorts, "connections to ports %s of %v came in, and %s", strings.Join(in, ", "), o.Ports, refused)
	case len(in) == 0:
		return is(overlay.InboundNone, "%s, nor did those to ports %s of %v", refused, strings.Join(out, ", "), o.Ports)
	}
	return unknown[overlay.Inbound]("of ports %v, connections to %s came in and those to %s did not", o.Ports, strings.Join(in, ", "), strings.Join(out, ", "))
}

func (o Observations) refusal() inferred[overlay.Refusal] {
	fresh, err := o.calls(Fresh, false)
	if len(fresh) == 0 {
		return unknown[overlay.Refusal]("%s", err)
	}
	switch c := fresh[0]; {
	case c.Arrived:
		return unknown[overlay.Refusal]("nothing was refused")
	case c.Outcome == Reset:
		return is(overlay.RefuseReset, "a SYN from %v was answered with a reset", c.From.Addr())
	case c.Outcome == Unreachable:
		return is(overlay.RefuseReset, "a SYN from %v was answered with an ICMP error", c.From.Addr())
	case c.Outcome == Silent:
		return is(overlay.RefuseDrop, "a SYN from %v was not answered", c.From.Addr())
	default:
		return unknown[overlay.Refusal]("a device other than the port's listener accepted the connection from %v", c.From.Addr())
	}
}

func (o Observations) filter(nat translation, inbound overlay.Inbound) inferred[overlay.Filter] {
	fresh, err := o.calls(Fresh, false)
	switch {
	case nat.measured && nat.translates:
		return is(overlay.FilterStateful, "a NAT tracks connections by its nature; what else filters cannot be determined behind it")
	case len(fresh) == 0:
		return unknown[overlay.Filter]("%s", err)
	case inbound == overlay.InboundOpen:
		return is(overlay.FilterNone, "a connection to a port that had never sent anything came in")
	}
	if udp := o.udp(); !udp.value {
		return o.filterByTCP()
	}
	datagrams, err := o.calls(Fresh, true)
	if len(datagrams) == 0 {
		return unknown[overlay.Filter]("%s", err)
	}
	if c := datagrams[0]; c.Arrived {
		return is(overlay.FilterStateless, "it refuses a SYN from %v, but an unsolicited datagram arrived", c.From.Addr())
	}
	return is(overlay.FilterStateful, "answers to datagrams come in, and an unsolicited one from %v did not; whether invalid packets are dropped, too, cannot be determined", datagrams[0].From.Addr())
}

// filterByTCP determines the filter where datagrams cannot.
func (o Observations) filterByTCP() inferred[overlay.Filter] {
	const refuses = "it refuses a SYN from outside"
	c := o.Cross
	switch {
	case c == nil:
		return unknown[overlay.Filter](refuses + "; without UDP, stateless and stateful ones look alike")
	case c.Err != "":
		return unknown[overlay.Filter](refuses+"; without UDP, only a SYN that follows one of this host's tells stateless and stateful ones apart: %s", c.Err)
	case c.Connected:
		return is(overlay.FilterStateful, refuses+", but one from %v came in after this host had sent one there; whether invalid packets are dropped, too, cannot be determined", c.From)
	}
	return is(overlay.FilterStateless, refuses+", also one from %v after this host had sent one there: a SYN of its own opens no way", c.From)
}

// translation is the NAT behaviour that the views show.
type translation struct {
	measured   bool
	translates bool
	mapping    inferred[overlay.NATBehaviour]
	keeps      inferred[bool]
}

// nat determines what a NAT does to UDP, or to TCP. Where no reflector answers over TCP, the
// result for UDP is used for both.
func (o Observations) nat(udp bool) translation {
	protocol, views := "TCP", answered(o.TCP)
	if udp || len(views) == 0 && len(answered(o.UDP)) > 0 {
		protocol, views = "UDP", answered(o.UDP)
	}
	if len(views) == 0 {
		none := "no reflector said over " + protocol + " from where it was asked"
		return translation{mapping: unknown[overlay.NATBehaviour]("%s", none), keeps: unknown[bool]("%s", none)}
	}
	if !slices.ContainsFunc(views, func(v View) bool { return v.Seen != v.Local }) {
		how := fmt.Sprintf("%s saw the %s socket's own address and port", hosts(views), protocol)
		return translation{measured: true, mapping: is(overlay.NATNone, "%s", how), keeps: is(false, "nothing is translated")}
	}
	return translation{measured: true, translates: true, mapping: mapping(protocol, views), keeps: keepsPort(protocol, views)}
}

func answered(views []View) []View {
	return slices.DeleteFunc(slices.Clone(views), func(v View) bool { return !v.Seen.IsValid() })
}

// hosts returns the names of some views' reflectors.
func hosts(views []View) string {
	var names []string
	for _, v := range views {
		if name := v.To.Addr().String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " and ")
}

// keepsPort uses the first view of each socket: a NAT that preserves ports where it can may be
// unable to for a second destination.
func keepsPort(protocol string, views []View) inferred[bool] {
	first := map[[2]uint16]View{} // by local port and socket number
	for _, v := range views {
		key := [2]uint16{v.Local.Port(), uint16(v.Socket)}
		if _, ok := first[key]; !ok {
			first[key] = v
		}
	}
	for _, v := range first {
		if v.Seen.Port() != v.Local.Port() {
			return is(false, "%s port %d was seen as %d", protocol, v.Local.Port(), v.Seen.Port())
		}
	}
	return is(true, "the ports of %d %s sockets were seen unchanged", len(first), protocol)
}

// mapping compares what different reflectors saw of each socket, in the terms of RFC 4787,
// section 4.1.
func mapping(protocol string, views []View) inferred[overlay.NATBehaviour] {
	same, other := false, ""
	samePort := true // of two ports of one host
	compared := false
	for i, a := range views {
		for _, b := range views[i+1:] {
			if a.Socket != b.Socket || a.To == b.To {
				continue
			}
			equal := a.Seen == b.Seen
			switch sameHost := a.To.Addr() == b.To.Addr(); {
			case sameHost:
				compared = true
				samePort = samePort && equal
			case equal:
				same = true
			default:
				other = fmt.Sprintf("%s: %v was seen as %v by %v and as %v by %v", protocol, a.Local, a.Seen, a.To, b.Seen, b.To)
			}
		}
	}
	switch {
	case other != "" && compared && samePort:
		return is(overlay.AddressDependent, "%s, but alike by two ports of one host", other)
	case other != "" && compared:
		return is(overlay.AddressAndPortDependent, "%s, and not alike by two ports of one host", other)
	case other != "":
		return is(overlay.AddressDependent, "%s; whether it depends on the port, too, was not compared", other)
	case !samePort:
		return is(overlay.AddressAndPortDependent, "%s: two ports of one host saw one socket differently", protocol)
	case same:
		return is(overlay.EndpointIndependent, "%s: %s saw the same outside address and port of one socket", protocol, hosts(views))
	}
	return unknown[overlay.NATBehaviour]("%s: fewer than two reflectors of different addresses saw the same socket", protocol)
}

// natFiltering determines which hosts could reach the mapping of a UDP socket, or of a TCP socket,
// that had asked one reflector only (RFC 4787, section 5; RFC 5382, section 4.3). Where it is
// unknown for TCP, UDP's result is used for both.
func (o Observations) natFiltering(nat translation, udp bool) inferred[overlay.NATBehaviour] {
	switch {
	case !nat.measured:
		return unknown[overlay.NATBehaviour]("%s", nat.mapping.how)
	case !nat.translates:
		return is(overlay.NATNone, "nothing is translated")
	}
	t := filtering(o, udp)
	if other := filtering(o, true); !t.ok && other.ok {
		return other
	}
	return t
}

func filtering(o Observations, udp bool) inferred[overlay.NATBehaviour] {
	what := "connection"
	if udp {
		what = "datagram"
	}
	made, err := o.calls(Answered, udp)
	var first, stranger *Call
	for i, c := range made {
		if c.First {
			first = &made[i]
		} else {
			stranger = &made[i]
		}
	}
	switch {
	case stranger != nil && stranger.Arrived:
		return is(overlay.EndpointIndependent, "a %s from %v, which the socket had not written to, reached its mapping", what, stranger.From.Addr())
	case first != nil && stranger != nil && first.Arrived:
		return is(overlay.AddressDependent, "a %s from another port of %v, which the socket had written to, reached its mapping, and one from %v did not", what, first.From.Addr(), stranger.From.Addr())
	case first != nil && !first.Arrived:
		return is(overlay.AddressAndPortDependent, "a %s from another port of %v, which the socket had written to, did not reach its mapping", what, first.From.Addr())
	}
	return unknown[overlay.NATBehaviour]("%s", err)
}

// stripped returns which TCP options no connection to a reflector has although both ends offer
// them. Considering all reflectors covers one whose administrator disabled an option.
func (o Observations) stripped() inferred[string] {
	var all TCPOptions
	var told []View
	for _, v := range answered(o.TCP) {
		if v.Options == nil {
			continue
		}
		told = append(told, v)
		all.Scale, all.SACK, all.Timestamps = all.Scale || v.Options.Scale, all.SACK || v.Options.SACK, all.Timestamps || v.Options.Timestamps
		all.Segment = max(all.Segment, v.Options.Segment)
	}
	if len(told) == 0 {
		return unknown[string]("no reflector was reached over TCP, or the system does not say which options are in use")
	}
	var missing []string
	for _, option := range []struct {
		name string
		has  bool
	}{{"window-scale", all.Scale}, {"sack", all.SACK}, {"timestamps", all.Timestamps}} {
		if !option.has {
			missing = append(missing, option.name)
		}
	}
	if len(missing) == 0 {
		return is(none, "connections to %s have window scaling, SACK and timestamps, and segments of %d bytes", hosts(told), all.Segment)
	}
	return is(strings.Join(missing, " "), "no connection to %s has %s, which both ends offer: a device on the path removes it (segments have %d bytes)", hosts(told), strings.Join(missing, " or "), all.Segment)
}

// httpsPort is the port that sites with restricted egress let out.
const httpsPort = 443

func (o Observations) egress() inferred[overlay.Egress] {
	reached := answered(o.TCP)
	var failed []View
	for _, v := range o.TCP {
		if !v.Seen.IsValid() {
			failed = append(failed, v)
		}
	}
	elsewhere := func(v View) bool { return v.To.Port() != httpsPort }
	if i := slices.IndexFunc(reached, elsewhere); i >= 0 {
		return is(overlay.EgressAny, "reached %v", reached[i].To)
	}
	if i := slices.IndexFunc(reached, func(v View) bool { return v.TLS }); i >= 0 && !slices.ContainsFunc(reached, func(v View) bool { return !v.TLS }) {
		return is(overlay.EgressTLS443, "reached %v inside of TLS, and a plain connection there got no answer", reached[i].To)
	}
	if len(reached) > 0 {
		// The same host on another port, to exclude a failure of the host.
		for _, v := range failed {
			if elsewhere(v) && slices.ContainsFunc(reached, func(r View) bool { return r.To.Addr() == v.To.Addr() }) {
				return is(overlay.Egress443, "reached %v on port 443 but not on port %d (%s)", v.To.Addr(), v.To.Port(), v.Err)
			}
		}
		return unknown[overlay.Egress]("reached %v, and there is no reflector on another port to try", reached[0].To)
	}
	switch {
	case o.Proxy != nil && o.Proxy.Seen.IsValid() && o.Proxy.TLS:
		return is(overlay.EgressHTTPProxyTLS, "no reflector was reached but through the HTTP proxy inside of TLS")
	case o.Proxy != nil && o.Proxy.Seen.IsValid():
		return is(overlay.EgressHTTPProxy, "no reflector was reached but through the HTTP proxy")
	case len(answered(o.IPv6)) > 0:
		return o.egressSix()
	case len(failed) == 0:
		return unknown[overlay.Egress]("there is no reflector to try")
	}
	how := fmt.Sprintf("none of %s was reached (%s)", hosts(failed), failed[0].Err)
	if o.Proxy != nil {
		how += "; through the HTTP proxy: " + o.Proxy.Err
	}
	switch { // a session that lives outweighs silence
	case o.Session && o.Proxy != nil:
		return is(overlay.EgressHTTPProxyTLS, "%s; but this host's session with the broker goes through that", how)
	case o.Session:
		return unknown[overlay.Egress]("%s; but this host has a session with the broker", how)
	}
	return is(overlay.EgressNone, "%s", how)
}

// egressSix determines the egress of a site that reached reflectors over IPv6 at first, and
// otherwise none.
func (o Observations) egressSix() inferred[overlay.Egress] {
	reached := answered(o.IPv6)
	for _, v := range reached {
		if v.To.Port() != httpsPort {
			return is(overlay.EgressAny, "reached %v over IPv6, and nothing otherwise", v.To)
		}
	}
	return unknown[overlay.Egress]("reached %v over IPv6 and nothing otherwise, and no other port was tried", reached[0].To)
}

func (o Observations) udp() inferred[bool] {
	got := answered(o.UDP)
	switch {
	case len(got) > 0:
		return is(true, "%s answered over UDP", hosts(got))
	case len(o.UDP) == 0:
		return unknown[bool]("there is no STUN server to ask")
	}
	return is(false, "no answer over UDP from %s", hosts(o.UDP))
}
