package lab

// addressing are kinds whose addresses mislead: what looks like the other site's
// leads to one's own.
var addressing = []preset{
	{ // all sites of the kind are customers of one NAT that sends nothing back inside
		name: "same-nat-no-hairpin", forward: stateful,
		outer: &provider{host: "cgn", shared: true, rules: preset{forward: stateful, nat: masquerade}},
	},
	{name: "overlapping-subnets", forward: stateful, nat: masquerade, overlaps: true},
}
