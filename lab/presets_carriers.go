package lab

import "strings"

// carriers are kinds that a site's provider makes of it.
var carriers = []preset{
	{ // the gateway's rules are judged first, and a NAT is all that the world sees
		name: "cgnat-over-stateful", forward: stateful,
		outer: &provider{host: "cgn", rules: preset{forward: stateful, nat: masquerade}},
	},
	{name: "nat-tcp-symmetric-udp-eim", forward: stateful, nat: natByProtocol},
	{ // a connection is held to windows of 64 KiB where both ends notice, and to less where one does not
		name: "wscale-stripped", forward: stateful, mangle: strips("window"),
	},
	{name: "ipv6-only", forward: stateful, ipv6: true, only6: true},
	{name: "options-stripped", forward: stateful, mangle: strips("window", "sack-perm", "timestamp")},
}

// strips takes options out of what the gateway forwards, sends and receives.
func strips(options ...string) string {
	rule := ""
	for _, o := range options {
		rule += " reset tcp option " + o
	}
	return "table inet mangle {\n" +
		" chain post { type filter hook postrouting priority mangle\n " + rule + "\n }\n" +
		" chain in { type filter hook input priority mangle\n " + rule + "\n }\n}\n"
}

// natByProtocol gives each TCP connection a random port of its own, and a UDP socket
// one towards everybody.
var natByProtocol = strings.Replace(masquerade, "oifname WAN masquerade", `oifname WAN meta l4proto tcp masquerade random,fully-random
  oifname WAN masquerade`, 1)
