package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Rule is one line to request from a firewall's admin.
type Rule struct {
	Source      string `json:"source"`      // this host; "any" for an inbound rule
	Destination string `json:"destination"` // address or host name
	Port        string `json:"port"`
	Protocol    string `json:"protocol"`  // TCP, UDP or ICMP, whose Port is a type and code
	Direction   string `json:"direction"` // outbound, inbound or inside (within the site)
	Reason      string `json:"reason"`
	Required    bool   `json:"required"` // nothing works without it; otherwise it permits better paths
	Seen        string `json:"seen"`     // passes, blocked or unknown: this run's observation
}

// What a run observed about a rule.
const (
	passes  = "passes"
	blocked = "blocked"
	unknown = "unknown"
)

// FirewallRequest lists the rules that this host needs, required ones first, with this run's
// observation of each. It omits rules for replies: every rule here is for the packet that begins a
// connection or an exchange.
func FirewallRequest(o Observations) []Rule {
	var all []Rule
	source := o.source()
	for _, s := range o.Services {
		all = append(all, controlRule(o, s, source))
	}
	if o.Helper && o.profile().GatewayOnly {
		return all // everything else leaves by the gateway
	}
	for _, v := range o.Reflectors {
		r := Rule{Source: source, Destination: v.At.Addr().String(), Port: fmt.Sprint(v.At.Port()), Protocol: "TCP", Direction: "outbound",
			Reason: "relayed links, and learning this host's outside address", Required: v.At.Port() == 443, Seen: unknown}
		if v.At.Port() != 443 {
			continue // the rule for its UDP port is below
		}
		if v.Via != "" {
			r.Source, r.Reason = "the HTTP proxy "+v.Via, "relayed links, by CONNECT"
		}
		r.Seen = seen(v.Connect.Outcome, v.Connect.Outcome == Connected && (v.Via == "" || v.Tunnel.Open))
		all = append(all, r)
	}
	for _, s := range o.UDP.Servers {
		r := Rule{Source: source, Destination: s.Addr().String(), Port: fmt.Sprint(s.Port()), Protocol: "UDP", Direction: "outbound",
			Reason: "learning this host's outside address for hole punching (STUN, RFC 8489)", Seen: blocked}
		if _, ok := o.UDP.Seen[s]; ok {
			r.Seen = passes
		}
		if o.Path != nil && o.Path.To == s && rateLimitFinding(o, *o.Path).Class == UDPSlow {
			r.Reason += "; it passes at a low rate, please without a limit"
		}
		all = append(all, r)
	}
	all = append(all, betterPaths(o, source)...)
	if a := o.ownIPv6(); a.IsValid() {
		all = append(all, overIPv6(a.String())...)
	}
	all = append(all, tooLarge(o, source)...)
	slices.SortStableFunc(all, func(a, b Rule) int {
		switch {
		case a.Required == b.Required:
			return 0
		case a.Required:
			return -1
		}
		return 1
	})
	return slices.Compact(all)
}

// controlRule returns the rule for the connection to the daemon above.
func controlRule(o Observations, s Service, source string) Rule {
	address, direction := s.Address, "outbound"
	reason := "control connection of the site's gateway to the broker"
	if o.Helper {
		direction, reason = "inside", "control connection of the node to its gateway"
	}
	if s.Via != "" {
		address, reason = s.Via, reason+", by CONNECT to "+s.Address
	}
	host, port, ok := strings.Cut(address, ":")
	if i := strings.LastIndexByte(address, ':'); ok && i >= 0 {
		host, port = strings.Trim(address[:i], "[]"), address[i+1:]
	}
	return Rule{Source: source, Destination: host, Port: port, Protocol: "TCP", Direction: direction, Reason: reason, Required: true,
		Seen: seen(s.Connect.Outcome, s.TLS.Done)}
}

// betterPaths returns rules that no link needs and that make some links direct.
func betterPaths(o Observations, source string) []Rule {
	all := []Rule{
		{Source: source, Destination: "the peers' sites", Port: "1024-65535", Protocol: "TCP", Direction: "outbound",
			Reason: "direct links, dialled from here, by simultaneous open or by traversing TCP", Seen: unknown},
		{Source: source, Destination: "the peers' sites", Port: "1024-65535", Protocol: "UDP", Direction: "outbound",
			Reason: "direct links by hole punching (QUIC)", Seen: unknown},
	}
	port := "a range of your choice, about 100 per node (profile.ports)"
	in := Rule{Source: "the peers' sites", Destination: source, Protocol: "TCP", Direction: "inbound", Reason: "direct links, dialled from other sites", Seen: unknown}
	if p := o.profile(); p.Ports.First > 0 {
		port = p.Ports.String()
	}
	in.Port = port
	if o.Inbound.Tried {
		in.Seen = seen(o.Inbound.Outcome, o.Inbound.Arrived)
	}
	if len(translated(o)) > 0 {
		in.Reason += "; each NAT on the way has to forward them too"
	}
	return append(all, in)
}

// overIPv6 returns the part of betterPaths that applies over IPv6, of which only the path out to
// the grid's own hosts was tried.
func overIPv6(source string) []Rule {
	return []Rule{
		{Source: source, Destination: "the peers' sites (IPv6)", Port: "1024-65535", Protocol: "TCP", Direction: "outbound",
			Reason: "direct links by simultaneous open, past IPv4's NATs", Seen: unknown},
		{Source: source, Destination: "the peers' sites (IPv6)", Port: "1024-65535", Protocol: "UDP", Direction: "outbound",
			Reason: "direct links by hole punching (QUIC), past IPv4's NATs", Seen: unknown},
	}
}

// tooLarge returns the rule that ends a path MTU black hole, if there is one.
func tooLarge(o Observations, source string) []Rule {
	for _, f := range packets(o) {
		if f.Class == MTU {
			return []Rule{{Source: "any router", Destination: source, Port: "type 3 code 4", Protocol: "ICMP", Direction: "inbound",
				Reason: "path MTU discovery (RFC 1191): large packets vanish, and no such message came", Required: f.Status == Failed, Seen: unknown}}
		}
	}
	return nil
}

func seen(o Outcome, whole bool) string {
	switch {
	case whole:
		return passes
	case o == NotTried:
		return unknown
	}
	return blocked
}

// source returns the address from which this host connects, or a placeholder.
func (o Observations) source() string {
	var from netip.Addr
	for _, v := range o.Reflectors {
		if v.Via == "" && v.Connect.From.IsValid() {
			from = v.Connect.From.Addr()
		}
	}
	for _, s := range o.Services {
		if !from.IsValid() && s.Connect.From.IsValid() {
			from = s.Connect.From.Addr()
		}
	}
	switch {
	case from.IsValid():
		return from.String()
	case o.Helper:
		return "this node"
	}
	return "this gateway"
}
