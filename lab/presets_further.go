package lab

import (
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// A provider is a router between a site's gateway and the internet that the site does not control.
// It treats the gateway's own packets as all others.
type provider struct {
	host    string // its host name in the site
	rules   preset // its firewall and NAT; lan0 is the wire to the gateway
	mtu     int    // MTU in bytes of its link to the internet in each direction; larger packets are dropped silently; 0 is 1500
	udpRate int64  // bit/s of datagrams in each direction; 0 is no limit
	udpLife time.Duration
	shared  bool // all sites of the preset share this router, which belongs to the first of them
}

// The profiles of the further presets.
var (
	smallProfile = with(closedProfile, func(p *overlay.SiteProfile) { p.MTU = 1400 })
	slowProfile  = with(closedProfile, func(p *overlay.SiteProfile) { p.UDPRate = 1_000_000 })
	noUDPProfile = with(closedProfile, func(p *overlay.SiteProfile) { p.Filter, p.UDP = overlay.FilterStateless, false })
	// The 60 seconds are absolute: using a mapping does not prolong its life.
	doubleProfile    = with(natProfile, func(p *overlay.SiteProfile) { p.IdleUDP = 60 })
	natSixProfile    = with(natProfile, func(p *overlay.SiteProfile) { p.IPv6, p.IPv6Rules = true, statefulSix })
	symmetricProfile = with(natProfile, func(p *overlay.SiteProfile) {
		p.NAT.Mapping, p.NAT.KeepsPort = overlay.AddressAndPortDependent, false
	})
	symmetricSixProfile = with(symmetricProfile, func(p *overlay.SiteProfile) { p.IPv6, p.IPv6Rules = true, statefulSix })

	statefulSix = overlay.IPv6Rules{Measured: true, Filter: overlay.FilterStateful, UDP: true}
)

// symmetric translates each connection to a random port of its own.
var symmetric = strings.Replace(masquerade, "masquerade", "masquerade random,fully-random", 1)

// further are rarer kinds: problems behind a firewall, and IPv6.
var further = []preset{
	{ // a black hole of path MTU discovery, RFC 2923 section 2.1
		name: "mtu-1400", forward: stateful, profile: smallProfile,
		outer: &provider{host: "isp", mtu: int(smallProfile.MTU), rules: preset{accepts: true}},
	},
	{ // the gateway forgets later than the carrier, so that the carrier's life counts
		name: "nat-double", forward: stateful, nat: masquerade, profile: doubleProfile,
		sysctl: patientUDP,
		outer: &provider{
			host: "cgn", udpLife: time.Duration(doubleProfile.IdleUDP) * time.Second,
			rules: preset{forward: stateful, nat: natMortal, sysctl: patientUDP},
		},
	},
	{
		name: "udp-slow", forward: stateful, profile: slowProfile,
		outer: &provider{
			host: "isp", udpRate: int64(slowProfile.UDPRate),
			rules: preset{accepts: true, forward: []string{`meta l4proto udp meta priority set 1:1`}},
		},
	},
	{name: "nat-ipv6", forward: stateful, nat: masquerade, ipv6: true, profile: natSixProfile},
	{name: "nat-symmetric-ipv6", forward: stateful, nat: symmetric, ipv6: true, profile: symmetricSixProfile},
	{
		name: "syn-drop-no-udp", accepts: true,
		forward: slices.Concat([]string{bareSYN + `drop`}, []string{
			`iifname WAN meta l4proto udp drop`,
			`iifname LAN oifname WAN meta l4proto udp drop`,
		}),
		profile: noUDPProfile,
	},
}

// patientUDP keeps conntrack's own timeouts longer than any life of a mapping.
var patientUDP = map[string]string{
	"netfilter/nf_conntrack_timestamp":          "1", // for the reaper
	"netfilter/nf_conntrack_udp_timeout":        "300",
	"netfilter/nf_conntrack_udp_timeout_stream": "300",
}

// natMortal is a carrier's NAT whose UDP mappings end LIFE after their first packet, used or not:
// live holds the mappings (add, unlike update, renews nothing) and the reaper ends the connections
// that the kernel would still translate. After the end of a mapping the same inside address and
// port get another outside port, as with a carrier that reassigns ports; the first mapping keeps
// its port. Only if nothing was ever answered may a mapping be renewed with its old port.
const natMortal = `table ip nat {
 map live { type ipv4_addr . inet_service : ipv4_addr . inet_service; flags timeout,dynamic; size 65535; timeout LIFE; }
 set seen { type ipv4_addr . inet_service; flags timeout,dynamic; size 65535; timeout 1h; }
 chain post { type nat hook postrouting priority srcnat
  oifname WAN meta l4proto udp snat ip to ip saddr . udp sport map @live
  oifname WAN meta l4proto udp ip saddr . udp sport @seen masquerade random,fully-random
  oifname WAN masquerade
 }
 chain learn { type filter hook postrouting priority srcnat + 50
  oifname WAN meta l4proto udp ct direction original ct state new add @live { ct original ip saddr . ct original proto-src timeout LIFE : ip saddr . udp sport }
  oifname WAN meta l4proto udp ct direction original ct state new add @seen { ct original ip saddr . ct original proto-src timeout 1h }
 }
}
`
