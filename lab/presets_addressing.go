package lab

// addressing are kinds whose addresses mislead: an address that seems to be the other site's
// belongs to the own site.
var addressing = []preset{
	{ // all sites of the kind are behind one NAT that does not hairpin
		name: "same-nat-no-hairpin", forward: stateful,
		outer: &provider{host: "cgn", shared: true, rules: preset{forward: stateful, nat: masquerade}},
	},
	{name: "overlapping-subnets", forward: stateful, nat: masquerade, overlaps: true},
}
