package lab

import (
	"slices"
	"strings"
)

// poor are kinds that allow connections but carry their data badly.
var poor = []preset{
	{ // 320 kb/s in each direction, without a queue: the excess is dropped
		name:    "policed-udp",
		forward: slices.Concat([]string{`meta l4proto udp limit rate over 40 kbytes/second burst 20 kbytes drop`}, stateful),
	},
	{name: "udp-dies", forward: stateful, mangle: mortal},
	{ // and forgotten connections are not picked up again
		name: "idle-20s", forward: stateful,
		sysctl: map[string]string{
			"netfilter/nf_conntrack_tcp_timeout_established": "20",
			"netfilter/nf_conntrack_udp_timeout":             "20",
			"netfilter/nf_conntrack_udp_timeout_stream":      "20",
			"netfilter/nf_conntrack_tcp_loose":               "0",
		},
	},
	{ // of the whole site
		name: "nat-64-sessions", nat: masquerade,
		forward: slices.Concat([]string{`oifname WAN ct state new ct count over 64 drop`}, stateful),
	},
	{ // a block of ports, which its provider gave the site: as many connections to one destination
		name: "nat-64-ports", forward: stateful,
		nat: strings.Replace(masquerade, "  oifname WAN masquerade", `  oifname WAN meta l4proto tcp masquerade to :20000-20063
  oifname WAN meta l4proto udp masquerade to :20000-20063
  oifname WAN masquerade`, 1),
	},
	{ // ends a connection when that has carried so much
		name:    "flows-1mb",
		forward: slices.Concat([]string{`ct bytes over 1000000 reject with tcp reset`}, stateful),
		sysctl:  map[string]string{"netfilter/nf_conntrack_acct": "1"},
	},
	{
		name: "syn-rate-5",
		forward: slices.Concat([]string{
			`tcp flags & (fin|syn|rst|ack) == syn limit rate over 5/second burst 5 packets drop`,
		}, stateful),
	},
}

// mortal drops the datagrams of a flow from 12 s after its first, used or not: add, unlike update,
// renews nothing. A new socket has a new flow.
const mortal = `table ip mortal {
 set live { type ipv4_addr . inet_service; flags timeout,dynamic; size 65535; timeout 12s; }
 chain pass { type filter hook forward priority mangle
  meta l4proto udp ct state new add @live { ct original ip saddr . ct original proto-src timeout 12s }
  meta l4proto udp ct original ip saddr . ct original proto-src @live accept
  meta l4proto udp drop
 }
}
`
