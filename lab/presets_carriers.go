package lab

import (
	"slices"
	"strings"
)

// carriers are kinds that result from a site's provider.
var carriers = []preset{
	{ // the gateway's rules apply first, and others see only a NAT
		name: "cgnat-over-stateful", forward: stateful,
		outer: &provider{host: "cgn", rules: preset{forward: stateful, nat: masquerade}},
	},
	{name: "nat-tcp-symmetric-udp-eim", forward: stateful, nat: natByProtocol},
	{ // a connection is limited to windows of 64 KiB if both ends notice, and to less if one does not
		name: "wscale-stripped", forward: stateful, mangle: strips("window"),
	},
	{name: "ipv6-only", forward: stateful, ipv6: true, only6: true},
	{name: "ipv6-stateful-nat-symmetric", forward: stateful, nat: symmetric, ipv6: true},
	{ // the rules for IPv4 are as closed as usual
		name: "ipv6-open-nat", forward: slices.Concat([]string{`iifname WAN meta nfproto ipv6 accept`}, stateful), nat: masquerade, ipv6: true,
	},
	{name: "split-tcp", forward: stateful, nat: splitTCP, split: true},
	{name: "options-stripped", forward: stateful, mangle: strips("window", "sack-perm", "timestamp")},
}

// splitPort is where a splitProxy listens.
const splitPort = 3129

// splitTCP leads the TCP connections of nodes to the gateway's splitProxy, except those to the gateway itself.
const splitTCP = `table ip nat {
 chain pre { type nat hook prerouting priority dstnat
  iifname LAN ip daddr OWN accept
  iifname LAN ip daddr EXT accept
  iifname LAN meta l4proto tcp dnat to OWN:3129
 }
 chain post { type nat hook postrouting priority srcnat
  oifname WAN masquerade
 }
}
`

// strips returns rules that remove options from what the gateway forwards, sends and receives.
func strips(options ...string) string {
	rule := ""
	for _, o := range options {
		rule += " reset tcp option " + o
	}
	return "table inet mangle {\n" +
		" chain post { type filter hook postrouting priority mangle\n " + rule + "\n }\n" +
		" chain in { type filter hook input priority mangle\n " + rule + "\n }\n}\n"
}

// natByProtocol gives each TCP connection a random port of its own, and a UDP socket one port
// towards all destinations.
var natByProtocol = strings.Replace(masquerade, "oifname WAN masquerade", `oifname WAN meta l4proto tcp masquerade random,fully-random
  oifname WAN masquerade`, 1)
