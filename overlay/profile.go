package overlay

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// SiteProfile says what a site's firewall, NAT and routes let through, as its admin declares it or
// as probes measured it. Two profiles are all a broker needs to decide how two sites connect.
type SiteProfile struct {
	Site    SiteID  `json:"site" yaml:"-"`
	Inbound Inbound `json:"inbound" yaml:"inbound"`
	Ports   Ports   `json:"ports,omitzero" yaml:"ports,omitempty"` // with InboundPorts
	Filter  Filter  `json:"filter" yaml:"filter"`
	Refusal Refusal `json:"refusal" yaml:"refusal"`
	NAT     NAT     `json:"nat" yaml:"nat"` // of TCP, and of UDP unless NATUDP says otherwise
	Egress  Egress  `json:"egress" yaml:"egress"`
	UDP     bool    `json:"udp" yaml:"udp"` // datagrams pass outward and their answers come back

	// NATUDP is what the NAT does to UDP where that differs from NAT; zero: no difference.
	// Carrier-grade NATs often map each TCP connection to a port of its own and a UDP socket to a
	// single one. Read it by DatagramNAT.
	NATUDP NAT `json:"nat_udp,omitzero" yaml:"nat_udp,omitempty"`

	// UDPRate is the throughput of datagrams in bits per second; 0: not known to be less than that
	// of TCP.
	UDPRate uint64 `json:"udp_rate,omitempty" yaml:"udp_rate,omitempty"`

	// MTU is the largest IP packet in bytes that passes to other sites; 0: not known to be less
	// than that of the hosts' own interfaces. It matters where larger packets are dropped silently
	// on the way (RFC 2923, section 2.1).
	MTU uint16 `json:"mtu,omitempty" yaml:"mtu,omitempty"`

	// IdleTCP and IdleUDP are how many seconds the site's filter or NAT keeps the state of an idle
	// TCP connection or UDP mapping; 0: not measured.
	IdleTCP uint32 `json:"idle_tcp,omitempty" yaml:"idle_tcp,omitempty"`
	IdleUDP uint32 `json:"idle_udp,omitempty" yaml:"idle_udp,omitempty"`

	// IPv6 says that nodes, or with GatewayOnly the gateway, have in addition to the IPv4 that all
	// other fields describe addresses that other sites' IPv6 hosts can reach: not translated, and
	// filtered as IPv6Rules says.
	IPv6 bool `json:"ipv6,omitempty" yaml:"ipv6,omitempty"`

	// IPv6Rules is what the site's firewall does to IPv6, where the site also has IPv4. Read it by
	// OverIPv6.
	IPv6Rules IPv6Rules `json:"ipv6_rules,omitzero" yaml:"ipv6_rules,omitempty"`

	// IPv6Only says that the site has no IPv4 route out, so that other sites are reached over IPv6,
	// or through a proxy that has both. Inbound, Ports, Filter, Refusal, Egress and UDP are about
	// IPv6 then. Read it by OverIPv6.
	IPv6Only bool `json:"ipv6_only,omitempty" yaml:"ipv6_only,omitempty"`

	// GatewayOnly says that compute nodes have no route out at all: the frontal
	// carries their data, and every other field describes the gateway.
	GatewayOnly bool `json:"gateway_only" yaml:"gateway_only"`

	// Privileged says that every helper of the site holds CAP_NET_RAW.
	Privileged bool `json:"privileged" yaml:"privileged"`

	// HighPortsOnly says that those daemons of the site that open links, its helpers or with
	// GatewayOnly its frontal, may not bind port 443: they have no CAP_NET_BIND_SERVICE, and
	// net.ipv4.ip_unprivileged_port_start is above it.
	HighPortsOnly bool `json:"high_ports_only,omitempty" yaml:"high_ports_only,omitempty"`

	// Sessions is about how many connections of one node the NAT before the site had let through
	// when it let no new one through, while those that existed went on; 0: not seen lately. It is
	// observed while links are made, and neither declared nor measured.
	Sessions uint32 `json:"sessions,omitempty" yaml:"-"`

	// SeenAt is the IPv4 address at which reflectors see the site's nodes, or with GatewayOnly its gateway; not
	// valid: several, or not measured.
	SeenAt netip.Addr `json:"seen_at,omitzero" yaml:"-"`

	// Private are the private networks in which the site's daemons look for processes of other sites, by the
	// settings of its frontal. Without PrivateGiven it is not known in which they do.
	Private      []netip.Prefix `json:"private,omitempty" yaml:"-"`
	PrivateGiven bool           `json:"private_given,omitempty" yaml:"-"`

	// Networks are where other sites reach this one's nodes or gateway, in addition to the address
	// from which its frontal connects to the broker. An address elsewhere is not accepted as the
	// site's. A frontal adds addresses at which it sees nodes itself.
	Networks []netip.Prefix `json:"networks,omitempty" yaml:"networks,omitempty"`

	// Forbidden lists the techniques that the admin does not allow.
	Forbidden []Technique `json:"forbidden,omitempty" yaml:"forbidden,omitempty"`
}

// FewSessions is the most Sessions that the nodes of a site use up together, before any of them has a connection that its
// relays can share. A gateway that carries for them has one.
const FewSessions = 2

// MaxNetworks is the maximum number of networks in a profile.
const MaxNetworks = 64

// Declares reports whether the address is in one of the site's networks.
func (p SiteProfile) Declares(ip netip.Addr) bool {
	return slices.ContainsFunc(p.Networks, func(n netip.Prefix) bool { return n.Contains(ip.Unmap()) })
}

// DatagramNAT returns what the site's NAT does to UDP.
func (p SiteProfile) DatagramNAT() NAT {
	if p.NATUDP.Translates() {
		return p.NATUDP
	}
	return p.NAT
}

// OverIPv6 returns the profile of the site over IPv6. There is no translation. Where nothing is
// known of the filter, it counts as a stateful one that lets no connection and no datagram in.
func (p SiteProfile) OverIPv6() SiteProfile {
	six := SiteProfile{
		Site: p.Site, Filter: FilterStateful, Egress: p.Egress, IPv6: p.IPv6, IPv6Only: p.IPv6Only, IPv6Rules: p.IPv6Rules,
		UDPRate: p.UDPRate, GatewayOnly: p.GatewayOnly, Privileged: p.Privileged, HighPortsOnly: p.HighPortsOnly, Networks: p.Networks, Forbidden: p.Forbidden,
	}
	switch r := p.IPv6Rules; {
	case p.IPv6Only:
		six.Inbound, six.Ports, six.Filter, six.Refusal, six.UDP = p.Inbound, p.Ports, p.Filter, p.Refusal, p.UDP
	case r.Measured:
		six.Inbound, six.Filter, six.Refusal, six.Egress, six.UDP = r.Inbound, r.Filter, r.Refusal, r.Egress, r.UDP
	}
	return six
}

// DeclaresIPv6 reports whether some of the site's networks are of IPv6.
func (p SiteProfile) DeclaresIPv6() bool {
	return slices.ContainsFunc(p.Networks, func(n netip.Prefix) bool { return n.Addr().Is6() })
}

// Forbids reports whether the site's admin forbids t.
func (p SiteProfile) Forbids(t Technique) bool { return slices.Contains(p.Forbidden, t) }

// Idle returns how long the site's filter or NAT certainly keeps the state of an idle carrier by
// path; 0: unknown, or the carrier does not leave the site. It also holds where a gateway carries
// or a relay joins: end-to-end traffic crosses the site's own edge.
func (p SiteProfile) Idle(path Path) time.Duration {
	seconds := p.IdleTCP
	switch {
	case path.Technique == 0 || path.Peer.Site == p.Site:
		return 0
	case path.Technique == HolePunching:
		seconds = p.IdleUDP
	}
	return time.Duration(seconds) * time.Second
}

// Check returns what is contradictory in the profile, or nil.
func (p SiteProfile) Check() error {
	if p.Inbound == InboundPorts {
		if err := p.Ports.Check(); err != nil {
			return fmt.Errorf("inbound is %v: %w", p.Inbound, err)
		}
	} else if p.Ports != (Ports{}) {
		return fmt.Errorf("ports %v are given, but inbound is %v; set inbound: ports", p.Ports, p.Inbound)
	}
	if n := len(p.Networks); n > MaxNetworks {
		return fmt.Errorf("%d networks are given, at most %d are allowed", n, MaxNetworks)
	}
	for _, n := range p.Networks {
		if !n.IsValid() || n.Bits() < 8 {
			return fmt.Errorf("network %v: want ADDRESS/BITS with 8 bits at least; no site is all of the internet", n)
		}
	}
	if err := p.NAT.check("nat"); err != nil {
		return err
	}
	if p.NATUDP != (NAT{}) && !p.NAT.Translates() {
		return fmt.Errorf("nat_udp mapping is %v but nat mapping is %v: a NAT for UDP alone is not known here", p.NATUDP.Mapping, p.NAT.Mapping)
	}
	if p.IPv6Rules.Inbound == InboundPorts {
		return fmt.Errorf("ipv6_rules inbound is %v: a range of ports is known for IPv4 only; say %v or %v", p.IPv6Rules.Inbound, InboundNone, InboundOpen)
	}
	if !p.IPv6Rules.Measured && p.IPv6Rules != (IPv6Rules{}) {
		return errors.New("ipv6_rules are given, and not said to be known")
	}
	return p.NATUDP.check("nat_udp")
}

func (n NAT) check(field string) error {
	if n.Translates() != (n.Filtering != NATNone) {
		return fmt.Errorf("%s mapping is %v but filtering is %v: give both or neither", field, n.Mapping, n.Filtering)
	}
	return nil
}

// IPv6Rules is what a site's firewall does to IPv6, in the terms of the fields of SiteProfile that
// have the same names. Inbound is not InboundPorts.
type IPv6Rules struct {
	Measured bool    `json:"measured" yaml:"-"` // measured or declared; the other fields are zero otherwise
	Inbound  Inbound `json:"inbound" yaml:"inbound"`
	Filter   Filter  `json:"filter" yaml:"filter"`
	Refusal  Refusal `json:"refusal" yaml:"refusal"`
	Egress   Egress  `json:"egress" yaml:"egress"`
	UDP      bool    `json:"udp" yaml:"udp"`
}

// Ports is a closed range of TCP ports.
type Ports struct {
	First uint16 `json:"first" yaml:"first"`
	Last  uint16 `json:"last" yaml:"last"`
}

// Contains reports whether port lies in the range.
func (r Ports) Contains(port uint16) bool { return r.First <= port && port <= r.Last }

// Check returns what is wrong with the range, or nil.
func (r Ports) Check() error {
	if r.First == 0 || r.Last < r.First {
		return fmt.Errorf("port range %v: want first >= 1 and last >= first", r)
	}
	return nil
}

// String returns "first-last".
func (r Ports) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Inbound is which connections from other sites reach a listener.
type Inbound uint8

// The kinds of inbound rule. The zero value is the closed one.
const (
	InboundNone  Inbound = iota // none
	InboundPorts                // those to SiteProfile.Ports
	InboundOpen                 // all
)

// Filter is how the site's packet filter judges an inbound segment.
type Filter uint8

// The kinds of filter.
const (
	FilterNone      Filter = iota // no filter
	FilterStateless               // by its flags alone: a bare SYN is refused
	FilterStateful                // by whether it belongs to a tracked connection
	FilterStrict                  // stateful, and segments that the tracker considers INVALID are dropped in both directions
)

// Refusal is what the filter does with a segment it refuses.
type Refusal uint8

// The kinds of refusal.
const (
	RefuseDrop  Refusal = iota // nothing is sent back
	RefuseReset                // a TCP reset or an ICMP error is sent back
)

// NATBehaviour is a mapping or filtering behaviour in the terms of RFC 4787, sections 4.1 and 5.
type NATBehaviour uint8

// The behaviours.
const (
	NATNone                 NATBehaviour = iota // no translation
	EndpointIndependent                         // RFC 4787: for any destination
	AddressDependent                            // RFC 4787: per destination address
	AddressAndPortDependent                     // RFC 4787: per destination address and port
)

// NAT describes the site's address translation.
type NAT struct {
	Mapping   NATBehaviour `json:"mapping" yaml:"mapping"`
	Filtering NATBehaviour `json:"filtering" yaml:"filtering"`
	KeepsPort bool         `json:"keeps_port,omitempty" yaml:"keeps_port,omitempty"` // RFC 4787 port preservation
}

// Translates reports whether there is a NAT.
func (n NAT) Translates() bool { return n.Mapping != NATNone }

// Egress is which connections leave the site.
type Egress uint8

// The kinds of egress rule. The zero value lets everything out.
const (
	EgressAny       Egress = iota // all
	Egress443                     // those to TCP port 443
	EgressHTTPProxy               // only through the site's HTTP CONNECT proxy, to port 443
	EgressNone                    // none

	// Sites that inspect the beginning of connections, and drop those that are not TLS.
	EgressTLS443       // those to TCP port 443 that begin as TLS
	EgressHTTPProxyTLS // only through the site's HTTP CONNECT proxy, to port 443, and only TLS inside
)

var (
	inboundNames = []string{"none", "ports", "open"}
	filterNames  = []string{"none", "stateless", "stateful", "strict"}
	refusalNames = []string{"drop", "reset"}
	natNames     = []string{"none", "endpoint-independent", "address-dependent", "address-and-port-dependent"}
	egressNames  = []string{"any", "443", "http-proxy", "none", "tls-443", "http-proxy-tls"}
)

// enumText and parseEnum implement the text forms of the small enumerations above: a value is its
// index in names.
func enumText(names []string, v uint8) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("unknown(%d)", v)
}

func parseEnum(what string, names []string, text []byte) (uint8, error) {
	if i := slices.Index(names, string(text)); i >= 0 {
		return uint8(i), nil
	}
	return 0, fmt.Errorf("unknown %s %q; known are %q", what, text, names)
}

// String returns the text form.
func (v Inbound) String() string { return enumText(inboundNames, uint8(v)) }

// MarshalText implements encoding.TextMarshaler.
func (v Inbound) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Inbound) UnmarshalText(b []byte) error {
	i, err := parseEnum("inbound", inboundNames, b)
	*v = Inbound(i)
	return err
}

// String returns the text form.
func (v Filter) String() string { return enumText(filterNames, uint8(v)) }

// MarshalText implements encoding.TextMarshaler.
func (v Filter) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Filter) UnmarshalText(b []byte) error {
	i, err := parseEnum("filter", filterNames, b)
	*v = Filter(i)
	return err
}

// String returns the text form.
func (v Refusal) String() string { return enumText(refusalNames, uint8(v)) }

// MarshalText implements encoding.TextMarshaler.
func (v Refusal) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Refusal) UnmarshalText(b []byte) error {
	i, err := parseEnum("refusal", refusalNames, b)
	*v = Refusal(i)
	return err
}

// String returns the text form.
func (v NATBehaviour) String() string { return enumText(natNames, uint8(v)) }

// MarshalText implements encoding.TextMarshaler.
func (v NATBehaviour) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *NATBehaviour) UnmarshalText(b []byte) error {
	i, err := parseEnum("NAT behaviour", natNames, b)
	*v = NATBehaviour(i)
	return err
}

// ThroughHTTPProxy reports whether connections leave only through the site's HTTP
// proxy.
func (v Egress) ThroughHTTPProxy() bool { return v == EgressHTTPProxy || v == EgressHTTPProxyTLS }

// OnlyTLS reports whether a connection must begin as TLS to leave.
func (v Egress) OnlyTLS() bool { return v == EgressTLS443 || v == EgressHTTPProxyTLS }

// String returns the text form.
func (v Egress) String() string { return enumText(egressNames, uint8(v)) }

// MarshalText implements encoding.TextMarshaler.
func (v Egress) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Egress) UnmarshalText(b []byte) error {
	i, err := parseEnum("egress", egressNames, b)
	*v = Egress(i)
	return err
}
