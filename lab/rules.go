package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// ruleVars are a site's values for the words in a preset's rules, and other properties of the site
// that affect them.
type ruleVars struct {
	ext, host, proxy netip.Addr
	own              netip.Addr // of a gateway, on the LAN
	proxy6           netip.Addr // valid where the site has IPv6
	life             time.Duration
	hidden           bool // nodes have no route: the forward chain passes nothing
	ipv6             bool // the gateway has IPv6
	silent           bool // ICMP errors about large packets are suppressed
	second           bool // there is a second uplink, to which the rules apply as well
}

// Rules of a gateway that belong to no preset.
var (
	// discovery lets a gateway with IPv6 find its neighbours, which ARP does in IPv4 unfiltered. A
	// large packet is reported by an error that is "related", so that it passes where connections
	// are tracked.
	discovery = []string{
		`icmpv6 type nd-neighbor-solicit accept`,
		`icmpv6 type nd-neighbor-advert accept`,
	}
	silence = []string{
		`icmp type destination-unreachable icmp code frag-needed drop`,
		`icmpv6 type packet-too-big drop`,
	}
)

// ruleset returns the complete rules of a gateway as text that nft(8) can load, too. The gateway
// itself has the same access as its site: the rules of the forward chain for packets from the LAN
// apply to packets that it sends, and those for packets from the WAN to packets that it receives.
func (p preset) ruleset(v ruleVars) string {
	forward, policy := p.forward, "drop"
	if p.accepts {
		policy = "accept"
	}
	if v.ipv6 {
		forward = alsoSix(forward)
	}
	var first, near []string // of all chains, and of those of the gateway's own packets
	if v.silent {
		first = silence
	}
	if v.ipv6 && !p.accepts {
		near = discovery
	}
	input := slices.Concat(first, near, p.local(forward, "iifname LAN ", "oifname WAN ", "iifname"))
	output := slices.Concat(first, near, p.local(forward, "iifname WAN ", "iifname LAN ", "oifname"))
	inputPolicy := policy
	switch {
	case p.answers && v.hidden: // open would give the gateway more access than its site has
		input = append(input, reject...)
	case p.answers:
		input, inputPolicy = nil, "accept"
	}
	forward, forwardPolicy := slices.Concat(first, forward), policy
	if v.hidden {
		forward, forwardPolicy = nil, "drop"
	}
	var b strings.Builder
	b.WriteString("table inet fw {\n")
	chain(&b, "input", inputPolicy, input)
	chain(&b, "output", policy, output)
	chain(&b, "forward", forwardPolicy, forward)
	b.WriteString("}\n" + p.nat + p.mangle)
	return v.words().Replace(b.String())
}

// words replaces the words by the site's values.
func (v ruleVars) words() *strings.Replacer {
	wan := `"wan0"`
	if v.second {
		wan = `"wan*"`
	}
	return strings.NewReplacer("LAN", `"lan0"`, "WAN", wan, "EXT", v.ext.String(), "HOST", v.host.String(),
		"OWN", v.own.String(), "PROXY6", v.proxy6.String(), "PROXY", v.proxy.String(), "LIFE", fmt.Sprintf("%dms", v.life.Milliseconds()))
}

// alsoSix adds the same rules for IPv6 to rules for IPv4 addresses.
func alsoSix(rules []string) []string {
	var all []string
	for _, r := range rules {
		all = append(all, r)
		if strings.Contains(r, "ip daddr PROXY ") {
			all = append(all, strings.Replace(r, "ip daddr PROXY ", "ip6 daddr PROXY6 ", 1))
		}
	}
	return all
}

// local converts the forward chain into one for the gateway's own packets: it omits rules that
// contain other, which concern the opposite direction, and the words of drop, which the chain's
// hook implies; packets from or to the gateway itself or its LAN (by iface, iifname or oifname) are
// not filtered.
func (p preset) local(forward []string, other, drop, iface string) []string {
	var rules []string
	if !p.accepts {
		rules = append(rules, iface+` "lo" accept`, iface+` LAN accept`)
	}
	for _, rule := range forward {
		if !strings.Contains(rule, other) {
			rules = append(rules, strings.Replace(rule, drop, "", 1))
		}
	}
	return rules
}

func chain(b *strings.Builder, hook, policy string, rules []string) {
	fmt.Fprintf(b, " chain %s { type filter hook %s priority filter; policy %s\n", hook, hook, policy)
	for _, r := range rules {
		fmt.Fprintf(b, "  %s\n", r)
	}
	b.WriteString(" }\n")
}
