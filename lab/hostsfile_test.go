package lab

import (
	"strings"
	"testing"
)

// sixSites returns a lab of two sites with IPv6, one without, and a public host.
func sixSites() Spec {
	return Spec{Sites: []Site{
		{Name: "a", Preset: "nat-ipv6", Nodes: Nodes(1)},
		{Name: "b", Preset: "nat-symmetric-ipv6", Nodes: Nodes(1)},
		{Name: "c", Preset: "stateful", Nodes: Nodes(1)},
		{Name: "pub", Preset: Public, Nodes: []string{"x"}},
	}}
}

func TestHostsFileNamesBoth(t *testing.T) {
	text := makePlan(sixSites()).hostsFile()
	for _, want := range []string{"10.1.0.11 n1.a\n2001:db8:1::b n1.a\n", "10.3.0.11 n1.c\n203.0.113.2 x.pub\n2001:db8:ffff::2 x.pub\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}
