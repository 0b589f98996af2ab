package lab

import (
	"strings"
	"testing"
)

// TestRuleErrors: a rule that is not understood must not load as something else.
func TestRuleErrors(t *testing.T) {
	for _, c := range []struct{ rule, want string }{
		{"ct state establishd accept", `unknown ct state "establishd"`},
		{"tcp dport 70000 accept", `"70000" is no port`},
		{"tcp sport 7 accept", `want "dport"`},
		{"tcp flags & (fin|sin) == sin drop", "unknown TCP flag"},
		{"ip daddr invalid accept", `"invalid" is no address`},
		{"meta l4proto igmp drop", `unknown protocol "igmp"`},
		{"ip6 daddr 10.1.0.1 accept", "10.1.0.1 is no address of ip6"},
		{"ip daddr 2001:db8::1 accept", "2001:db8::1 is no address of ip"},
		{"icmp type packet-too-big drop", `unknown icmp type "packet-too-big"`},
		{"meta priority set 1:g", `"g" is no class`},
		{"reject with icmpx host-unreachable", `want "icmpx admin-prohibited"`},
		{"iifname", "it ends too early"},
		{"reset tcp option mptcp", `unknown TCP option "mptcp"`},
		{"tcp dport 7 reset tcp option window", "holds for all packets of its chain"},
		{"limit rate over 5/minute burst 5 packets drop", `want "kbytes/second"`},
		{"limit rate over 5/second drop", `want "burst"`},
		{"limit rate over 5/second burst 5 kbytes drop", `want "packets"`},
		{"limit rate over 0/second burst 5 packets drop", `"0" is no number of packets`},
		{"ct count 64 drop", `want "over" before "64 drop"`},
		{"ct bytes 64 drop", `want "over" before "64 drop"`},
		{"dnat to 10.1.0.1:0x", `"0x" is no port`},
		{"masquerade to :20000", `"" is no port`},
		{"acept", `unknown word "acept"`},
		{"update @m { udp sprt timeout 5m : ip saddr }", `unknown field "udp sprt"`},
		{"update @m { udp sport timeout x : ip saddr }", "invalid duration"},
	} {
		r := ruleReader{words: nftToken.FindAllString(c.rule, -1)}
		if err := r.read(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.rule, err, c.want)
		}
	}
}
