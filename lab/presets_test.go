package lab

import (
	"net/netip"
	"strings"
	"testing"
)

func testVars(hidden bool) ruleVars {
	return ruleVars{
		ext: netip.MustParseAddr("100.64.1.2"), host: netip.MustParseAddr("10.1.0.11"),
		proxy: netip.MustParseAddr("203.0.113.2"), hidden: hidden,
	}
}

// TestRuleset shows the complete rules of a preset's few lines.
func TestRuleset(t *testing.T) {
	for _, c := range []struct {
		preset string
		hidden bool
		want   string
	}{
		{"http-proxy", false, `table inet fw {
 chain input { type filter hook input priority filter; policy drop
  iifname "lo" accept
  iifname "lan0" accept
  ct state established,related accept
 }
 chain output { type filter hook output priority filter; policy drop
  oifname "lo" accept
  oifname "lan0" accept
  ct state established,related accept
  oifname "wan0" ip daddr 203.0.113.2 tcp dport 3128 accept
 }
 chain forward { type filter hook forward priority filter; policy drop
  ct state established,related accept
  iifname "lan0" oifname "wan0" ip daddr 203.0.113.2 tcp dport 3128 accept
 }
}
`},
		{"syn-drop", true, `table inet fw {
 chain input { type filter hook input priority filter; policy accept
  iifname "wan0" tcp flags & (fin|syn|rst|ack) == syn drop
 }
 chain output { type filter hook output priority filter; policy accept
 }
 chain forward { type filter hook forward priority filter; policy drop
 }
}
`},
		{"nat-answers", false, `table inet fw {
 chain input { type filter hook input priority filter; policy accept
 }
 chain output { type filter hook output priority filter; policy drop
  oifname "lo" accept
  oifname "lan0" accept
  ct state established,related accept
  oifname "wan0" accept
 }
 chain forward { type filter hook forward priority filter; policy drop
  ct state established,related accept
  iifname "lan0" oifname "wan0" accept
 }
}
table ip nat {
 chain post { type nat hook postrouting priority srcnat
  oifname "wan0" masquerade
 }
}
`},
	} {
		p, err := lookupPreset(c.preset)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.ruleset(testVars(c.hidden)); got != c.want {
			t.Errorf("%s hidden=%v:\n%s\nwant\n%s", c.preset, c.hidden, got, c.want)
		}
	}
}

// TestRulesetOfIPv6 shows what IPv6 adds: neighbour discovery, and rules for both of the proxy's
// addresses.
func TestRulesetOfIPv6(t *testing.T) {
	p, err := lookupPreset("http-proxy")
	if err != nil {
		t.Fatal(err)
	}
	vars := testVars(false)
	vars.ipv6, vars.proxy6 = true, netip.MustParseAddr("2001:db8:ffff::2")
	const want = `table inet fw {
 chain input { type filter hook input priority filter; policy drop
  icmpv6 type nd-neighbor-solicit accept
  icmpv6 type nd-neighbor-advert accept
  iifname "lo" accept
  iifname "lan0" accept
  ct state established,related accept
 }
 chain output { type filter hook output priority filter; policy drop
  icmpv6 type nd-neighbor-solicit accept
  icmpv6 type nd-neighbor-advert accept
  oifname "lo" accept
  oifname "lan0" accept
  ct state established,related accept
  oifname "wan0" ip daddr 203.0.113.2 tcp dport 3128 accept
  oifname "wan0" ip6 daddr 2001:db8:ffff::2 tcp dport 3128 accept
 }
 chain forward { type filter hook forward priority filter; policy drop
  ct state established,related accept
  iifname "lan0" oifname "wan0" ip daddr 203.0.113.2 tcp dport 3128 accept
  iifname "lan0" oifname "wan0" ip6 daddr 2001:db8:ffff::2 tcp dport 3128 accept
 }
}
`
	if got := p.ruleset(vars); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestStatelessKeepsNoState: one ct in any rule would track connections.
func TestStatelessKeepsNoState(t *testing.T) {
	for _, name := range []string{"open", "syn-drop", "syn-reset", "syn-drop-no-udp"} {
		p, err := lookupPreset(name)
		if err != nil {
			t.Fatal(err)
		}
		if text := p.ruleset(testVars(false)); strings.Contains(text, " ct ") || strings.Contains(text, "nat") {
			t.Errorf("%s tracks connections:\n%s", name, text)
		}
	}
}

func TestProfiles(t *testing.T) {
	for _, name := range append(Presets(), Public) {
		p, err := Profile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if p.GatewayOnly != strings.HasPrefix(name, noRoute) {
			t.Errorf("%s: gateway only is %v", name, p.GatewayOnly)
		}
	}
	if _, err := Profile("closed"); err == nil || !strings.Contains(err.Error(), `"closed"; known are open,`) {
		t.Errorf("an unknown preset: %v", err)
	}
}

func TestParseNFTErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"table inet fw {", "table fw is not closed"},
		{"}", "nothing is open here"},
		{"chain x { type filter hook input priority filter", "unexpected statement"},
		{"table inet fw {\n chain x { type filter\n }\n}", "want chain NAME"},
		{"table inet fw {\n map x { type ipv4_addr }\n}", "want map NAME"},
		{"table inet fw {\n set x { type ipv4_addr : ipv4_addr; flags timeout,dynamic; size 1; timeout 1s; }\n}", "or set and no DATA"},
		{"table inet fw {\n map x { type ipv4_addr; flags timeout,dynamic; size 1; timeout 1s; }\n}", "want map NAME"},
		{"table inet fw {\n $x\n}", `"$" in "$x" is not understood`},
	} {
		if _, err := parseNFT(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}
