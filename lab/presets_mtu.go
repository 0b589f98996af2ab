package lab

// narrow are kinds whose path has a smaller MTU than its ends know of, without ICMP errors for
// packets that are too large (RFC 2923, section 2.1). Lab.Narrow makes one appear while a test
// runs.
var narrow = []preset{
	{
		name: "mtu-1300-blackhole", forward: stateful,
		outer: &provider{host: "isp", mtu: 1300, rules: preset{accepts: true}},
	},
	{ // less than QUIC needs
		name: "mtu-1000-blackhole", forward: stateful,
		outer: &provider{host: "isp", mtu: 1000, rules: preset{accepts: true}},
	},
}
