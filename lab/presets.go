package lab

import (
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/overlay"
)

// The range that the preset port-range leaves open, for TCP and UDP.
const (
	FirstOpenPort = 20000
	LastOpenPort  = 20999
)

// noRoute is the prefix of a preset whose nodes have no route out.
const noRoute = "no-route/"

// A preset is one kind of gateway, as data: the rules in the language of nft,
// from which ruleset makes the complete text and loadRules the kernel's form.
//
// LAN, WAN, EXT and OWN (the gateway's addresses there), HOST (the first node), PROXY and
// PROXY6 (the site's CONNECT proxy) and LIFE (of a UDP mapping) stand for the
// values of a site.
type preset struct {
	name    string
	accepts bool     // the chains' policy is accept; without it they drop
	forward []string // the forward chain
	// answers leaves the gateway's own input open: it answers unsolicited packets with a reset or
	// "port unreachable".
	answers bool
	nat     string            // a whole table, or ""
	mangle  string            // another one that changes headers, or ""
	sysctl  map[string]string // below /proc/sys/net, in the gateway
	proxy   bool              // the lab runs a CONNECT proxy for the site
	onlyTLS bool              // that proxy ends tunnels that do not begin with TLS
	split   bool              // the lab runs a splitProxy on the gateway
	// overlaps gives the LANs of all such sites the same addresses.
	overlaps bool
	// second gives the site a second uplink, wan1, of another provider, and its hosts a second IPv4
	// address each from that provider (RFC 7157, section 2).
	second bool
	// back makes packets to the site arrive by the second uplink though it sends by the first;
	// hosts have no second address.
	back  bool
	ipv6  bool      // hosts have IPv6 too, never translated and filtered by the same rules
	only6 bool      // with ipv6: no host of the site has a route out over IPv4
	outer *provider // router between the gateway and the internet, or nil
	// profile describes the rules to a broker; Site and GatewayOnly are filled in by Profile.
	profile overlay.SiteProfile
}

// Rules that presets share.
var (
	stateful = []string{
		`ct state established,related accept`,
		`iifname LAN oifname WAN accept`,
	}
	strict = slices.Concat([]string{`ct state invalid drop`}, stateful)
	reject = []string{
		`iifname WAN meta l4proto tcp reject with tcp reset`,
		`iifname WAN reject with icmpx admin-prohibited`,
	}
)

const (
	bareSYN    = `iifname WAN tcp flags & (fin|syn|rst|ack) == syn `
	masquerade = `table ip nat {
 chain post { type nat hook postrouting priority srcnat
  oifname WAN masquerade
 }
}
`
)

// Profiles that presets share. Every process in a lab may open raw sockets, hence Privileged.
var (
	closedProfile = overlay.SiteProfile{Filter: overlay.FilterStateful, UDP: true, Privileged: true}
	natProfile    = with(closedProfile, func(p *overlay.SiteProfile) {
		p.NAT = overlay.NAT{Mapping: overlay.EndpointIndependent, Filtering: overlay.AddressAndPortDependent, KeepsPort: true}
	})
)

func with(p overlay.SiteProfile, change func(*overlay.SiteProfile)) overlay.SiteProfile {
	change(&p)
	return p
}

// presets lists every kind of gateway.
var presets = slices.Concat(common, further)

// unforeseen are kinds of gateways that the techniques were not designed for, as users met them.
// They consist of rules only, without a profile: a broker knows of them only what the sites
// measure. Presets omits them.
var unforeseen = slices.Concat(addressing, carriers, poor, inspecting, narrow, multihomed)

// common are the usual kinds of sites, the most open first.
var common = []preset{
	{
		name: "open", accepts: true,
		profile: overlay.SiteProfile{Inbound: overlay.InboundOpen, UDP: true, Privileged: true},
	},
	{
		name: "port-range",
		forward: slices.Concat(stateful, []string{
			`iifname WAN tcp dport 20000-20999 accept`,
			`iifname WAN udp dport 20000-20999 accept`,
		}),
		profile: with(closedProfile, func(p *overlay.SiteProfile) {
			p.Inbound, p.Ports = overlay.InboundPorts, overlay.Ports{First: FirstOpenPort, Last: LastOpenPort}
		}),
	},
	{ // no rule names ct, so that no connection is tracked here
		name: "syn-drop", accepts: true,
		forward: []string{bareSYN + `drop`},
		profile: with(closedProfile, func(p *overlay.SiteProfile) { p.Filter = overlay.FilterStateless }),
	},
	{
		name: "syn-reset", accepts: true,
		forward: []string{bareSYN + `reject with tcp reset`},
		profile: with(closedProfile, func(p *overlay.SiteProfile) {
			p.Filter, p.Refusal = overlay.FilterStateless, overlay.RefuseReset
		}),
	},
	{name: "stateful", forward: stateful, profile: closedProfile},
	{
		name: "stateful-reject", forward: slices.Concat(stateful, reject),
		profile: with(closedProfile, func(p *overlay.SiteProfile) { p.Refusal = overlay.RefuseReset }),
	},
	{
		name: "stateful-strict", forward: strict,
		profile: with(closedProfile, func(p *overlay.SiteProfile) { p.Filter = overlay.FilterStrict }),
	},
	{
		name: "stateful-strict-new",
		forward: []string{
			`ct state invalid drop`,
			`ct state established,related accept`,
			`tcp flags & (fin|syn|rst|ack) != syn ct state new drop`,
			`iifname LAN oifname WAN ct state new accept`,
		},
		profile: with(closedProfile, func(p *overlay.SiteProfile) { p.Filter = overlay.FilterStrict }),
	},
	{ // without loose pick-up a connection seen from its middle is not tracked
		name: "stateful-noloose", forward: stateful,
		sysctl:  map[string]string{"netfilter/nf_conntrack_tcp_loose": "0"},
		profile: with(closedProfile, func(p *overlay.SiteProfile) { p.Filter = overlay.FilterStrict }),
	},
	{name: "nat", forward: stateful, nat: masquerade, profile: natProfile},
	{
		name: "nat-answers", forward: stateful, nat: masquerade, answers: true,
		profile: with(natProfile, func(p *overlay.SiteProfile) { p.Refusal = overlay.RefuseReset }),
	},
	{
		name: "nat-random", forward: stateful, nat: natRandom,
		profile: with(natProfile, func(p *overlay.SiteProfile) { p.NAT.KeepsPort = false }),
	},
	{
		name:    "nat-fullcone",
		forward: slices.Concat(stateful, []string{`iifname WAN ct status dnat accept`}),
		nat:     natFullCone,
		profile: with(natProfile, func(p *overlay.SiteProfile) { p.NAT.Filtering = overlay.EndpointIndependent }),
	},
	{
		name:    "nat-1to1",
		forward: slices.Concat(stateful, []string{`iifname WAN ct status dnat accept`}),
		nat: `table ip nat {
 chain pre { type nat hook prerouting priority dstnat
  iifname WAN ip daddr EXT dnat to HOST
 }
 chain post { type nat hook postrouting priority srcnat
  oifname WAN masquerade
 }
}
`,
		profile: with(natProfile, func(p *overlay.SiteProfile) {
			p.Inbound, p.NAT.Filtering = overlay.InboundOpen, overlay.EndpointIndependent
		}),
	},
	{
		name: "nat-symmetric", forward: stateful, nat: symmetric, profile: symmetricProfile,
	},
	{
		name:    "no-udp",
		forward: slices.Concat([]string{`meta l4proto udp drop`}, stateful),
		profile: with(closedProfile, func(p *overlay.SiteProfile) { p.UDP = false }),
	},
	{
		name: "egress-443",
		forward: []string{
			`ct state established,related accept`,
			`iifname LAN oifname WAN tcp dport 443 accept`,
		},
		profile: with(closedProfile, func(p *overlay.SiteProfile) { p.Egress, p.UDP = overlay.Egress443, false }),
	},
	{
		name: "http-proxy", proxy: true,
		forward: []string{
			`ct state established,related accept`,
			`iifname LAN oifname WAN ip daddr PROXY tcp dport 3128 accept`,
		},
		profile: with(closedProfile, func(p *overlay.SiteProfile) { p.Egress, p.UDP = overlay.EgressHTTPProxy, false }),
	},
}

// natFullCone keeps the port: the map remembers which host sent from it last, which is right only
// while hosts do not share a source port.
var natFullCone = perProtocol(`table ip nat {
 map m_L4 { type inet_service : ipv4_addr; flags timeout,dynamic; size 65535; timeout 5m; }
 chain learn { type filter hook postrouting priority mangle
  oifname WAN meta l4proto L4 update @m_L4 { L4 sport timeout 5m : ip saddr }
 }
 chain pre { type nat hook prerouting priority dstnat
  iifname WAN ip daddr EXT meta l4proto L4 dnat to L4 dport map @m_L4
 }
 chain post { type nat hook postrouting priority srcnat
  oifname WAN masquerade
 }
}
`)

// natRandom gives each inside address and port one random outside port, the same towards all
// destinations. The first packet is translated at random; learn comes after the translation, so its
// ip saddr and sport are the outside ones, and later connections from the same inside address and
// port find them in the map.
var natRandom = perProtocol(`table ip nat {
 map fwd_L4 { type ipv4_addr . inet_service : ipv4_addr . inet_service; flags timeout,dynamic; size 65535; timeout 5m; }
 chain post { type nat hook postrouting priority srcnat
  oifname WAN meta l4proto L4 snat ip to ip saddr . L4 sport map @fwd_L4
  oifname WAN masquerade random,fully-random
 }
 chain learn { type filter hook postrouting priority srcnat + 50
  oifname WAN meta l4proto L4 ct direction original update @fwd_L4 { ct original ip saddr . ct original proto-src timeout 5m : ip saddr . L4 sport }
 }
}
`)

// perProtocol writes each line that contains L4 once for udp and once for tcp.
func perProtocol(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "L4") {
			b.WriteString(line)
			continue
		}
		b.WriteString(strings.ReplaceAll(line, "L4", "udp"))
		b.WriteString(strings.ReplaceAll(line, "L4", "tcp"))
	}
	return b.String()
}

// Presets returns the names of all presets: the plain ones, then each with
// "no-route/" in front. It leaves out Public, which is not a gateway.
func Presets() []string {
	var names []string
	for _, p := range presets {
		names = append(names, p.name)
	}
	for _, p := range presets {
		names = append(names, noRoute+p.name)
	}
	return names
}

// Unforeseen returns the names of the kinds that are known only by measurement.
func Unforeseen() []string {
	names := make([]string, len(unforeseen))
	for i, p := range unforeseen {
		names[i] = p.name
	}
	return names
}

// lookupPreset finds a preset by its name, with or without the no-route prefix.
func lookupPreset(name string) (preset, error) {
	base := strings.TrimPrefix(name, noRoute)
	all := slices.Concat(presets, unforeseen)
	for _, p := range all {
		if p.name == base {
			return p, nil
		}
	}
	known := make([]string, len(all))
	for i, p := range all {
		known[i] = p.name
	}
	return preset{}, fmt.Errorf("unknown preset %q; known are %s, each also behind %s, and %s",
		name, strings.Join(known, ", "), noRoute, Public)
}

// Profile returns the description of a preset's rules for a broker; the caller sets Site. Public
// hosts have the profile of open.
func Profile(name string) (overlay.SiteProfile, error) {
	if name == Public {
		name = "open"
	}
	p, err := lookupPreset(name)
	if err != nil {
		return overlay.SiteProfile{}, err
	}
	p.profile.GatewayOnly = strings.HasPrefix(name, noRoute)
	p.profile.Privileged = true // also for the unforeseen kinds
	if p.profile.GatewayOnly && p.name == "nat-fullcone" {
		// The map leads to where packets for the gateway go anyway, so nothing is translated and
		// only the filter applies.
		p.profile.NAT.Filtering = overlay.AddressAndPortDependent
	}
	return p.profile, nil
}

// translates reports whether the gateway hides its LAN's IPv4 addresses.
func (p preset) translates() bool { return p.nat != "" }
