package traverse

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

func TestChooseSaysWhy(t *testing.T) {
	silent := overlay.SiteProfile{Site: "silent", Filter: overlay.FilterStateful, Privileged: true}
	change := func(f func(*overlay.SiteProfile)) overlay.SiteProfile {
		p := silent
		p.Site = "other"
		f(&p)
		return p
	}
	for _, tc := range []struct {
		asker, target overlay.SiteProfile
		want          Level // 0: none
		reason        string
	}{
		{silent, change(func(p *overlay.SiteProfile) { p.Filter = overlay.FilterNone }), Trav, "other lets every segment in"},
		{silent, change(func(p *overlay.SiteProfile) { p.Filter = overlay.FilterStateless }), Trav, "other refuses bare SYNs only"},
		{silent, silent, TravEcho, "wants to see a SYN go out first"},
		{change(func(p *overlay.SiteProfile) { p.Refusal = overlay.RefuseReset }), silent, TravAck, "picks connections up from their middle"},
		{silent, change(func(p *overlay.SiteProfile) { p.Filter = overlay.FilterStrict }), TravEcho, "wants to see a SYN go out first"},
		{silent, change(func(p *overlay.SiteProfile) {
			p.NAT = overlay.NAT{Mapping: overlay.EndpointIndependent, Filtering: overlay.AddressDependent}
		}), TravEcho, "wants to see a SYN"},
		{silent, change(func(p *overlay.SiteProfile) { p.Refusal = overlay.RefuseReset }), 0, "other answers the asker's SYN with a reset"},
		{silent, change(func(p *overlay.SiteProfile) { p.Privileged = false }), 0, "the helpers of other have no CAP_NET_RAW"},
		{change(func(p *overlay.SiteProfile) { p.Egress = overlay.Egress443 }), silent, 0, "other lets out only some ports (egress is 443)"},
		{change(func(p *overlay.SiteProfile) { p.NAT.Mapping = overlay.AddressDependent }), silent, 0, "which the carried SYN cannot name"},
		{silent, change(func(p *overlay.SiteProfile) { p.NAT.Mapping = overlay.AddressDependent }), 0, "the asker cannot dial the right one"},
	} {
		level, reason, ok := Choose(tc.asker, tc.target)
		if level != tc.want || ok != (tc.want != 0) || !strings.Contains(reason, tc.reason) {
			t.Errorf("%+v to %+v: %v, %q, %v", tc.asker, tc.target, level, reason, ok)
		}
	}
}

// talk returns a conversation in which the kernel has answered, and its answer.
func talk(t *testing.T, level Level, now time.Time) (*conversation, Segment, []Segment) {
	t.Helper()
	c, err := newConversation(level, linuxSYN(t), client, server)
	if err != nil {
		t.Fatal(err)
	}
	synack := Segment{Src: server, Dst: client, Seq: 1000, Ack: c.syn.Seq + 1, Flags: flagSYN | flagACK}
	return c, synack, c.step(now, synack, true)
}

func flags(segments []Segment) (f []uint8) {
	for _, s := range segments {
		f = append(f, s.Flags)
	}
	return f
}

func TestConversationEcho(t *testing.T) {
	now := time.Unix(1000, 0)
	c, synack, sent := talk(t, TravEcho, now)
	if len(sent) != 2 || sent[1].Flags != flagSYN|flagACK || sent[0].Flags != flagSYN || sent[0].Seq != 1000 || sent[0].Dst != client {
		t.Fatalf("echo: %+v", sent)
	}
	answer := Segment{Src: client, Dst: server, Seq: c.syn.Seq, Ack: 1001, Flags: flagSYN | flagACK}
	for _, tc := range []struct {
		what     string
		after    time.Duration
		s        Segment
		outgoing bool
		want     []uint8
	}{
		{"the kernel's answer again", 10 * time.Millisecond, synack, true, nil},
		{"our own echo", 0, echo(synack), true, nil},
		{"the client's SYN again", 15 * time.Millisecond, c.syn, false, []uint8{flagSYN | flagACK}},
		{"and again", 15 * time.Millisecond, c.syn, false, nil},
		{"another SYN from there", 0, Segment{Src: client, Dst: server, Seq: 5, Flags: flagSYN}, false, nil},
		{"the client's SYN/ACK", 20 * time.Millisecond, answer, false, []uint8{flagACK}},
		{"and again", 20 * time.Millisecond, answer, false, nil},
		{"one that acknowledges something else", 0, Segment{Src: client, Dst: server, Seq: c.syn.Seq, Ack: 5, Flags: flagSYN | flagACK}, false, nil},
		{"the kernel's timer ran out", time.Second, synack, true, []uint8{flagSYN, flagSYN | flagACK}},
		{"another listener", 0, Segment{Src: server, Dst: client, Seq: 2000, Ack: c.syn.Seq + 1, Flags: flagSYN | flagACK}, true, []uint8{flagSYN, flagSYN | flagACK}},
	} {
		now = now.Add(tc.after)
		if got := flags(c.step(now, tc.s, tc.outgoing)); string(got) != string(tc.want) {
			t.Errorf("%s: sent %#x, want %#x", tc.what, got, tc.want)
		}
	}
}

func TestConversationOfSimplerLevels(t *testing.T) {
	for level, want := range map[Level][]uint8{Trav: {flagSYN}, TravAck: {flagACK, flagSYN}, TravEcho: {flagSYN}} {
		c, _, sent := talk(t, level, time.Unix(1000, 0))
		if got := flags(c.start()); string(got) != string(want) {
			t.Errorf("%v starts with %#x, want %#x", level, got, want)
		}
		if level != TravEcho && (len(sent) != 0 || len(c.step(time.Unix(1001, 0), c.syn, false)) != 0) {
			t.Errorf("%v adds something", level)
		}
		if !c.answered {
			t.Errorf("%v: the answer went unnoticed", level)
		}
	}
}

// Only a bare SYN, from another host, to a listener here, is injected.
func TestConversationRefuses(t *testing.T) {
	syn := linuxSYN(t)
	withFlags := func(f uint8) Segment { s := syn; s.Flags = f; return s }
	at := netip.MustParseAddrPort
	for _, tc := range []struct {
		level          Level
		syn            Segment
		source, target netip.AddrPort
		class          error
	}{
		{Trav, withFlags(flagSYN | flagACK), client, server, overlay.ErrForbidden},
		{Trav, withFlags(flagRST), client, server, overlay.ErrForbidden},
		{Trav, withFlags(flagSYN | flagFIN), client, server, overlay.ErrForbidden},
		{Trav, syn, at("127.0.0.1:1"), server, overlay.ErrForbidden},
		{Trav, syn, at("169.254.1.1:1"), server, overlay.ErrForbidden},
		{Trav, syn, at("224.0.0.1:1"), server, overlay.ErrForbidden},
		{Trav, syn, at("255.255.255.255:1"), server, overlay.ErrForbidden},
		{Trav, syn, at("0.0.0.0:1"), server, overlay.ErrForbidden},
		{Trav, syn, at("100.64.1.2:0"), server, overlay.ErrForbidden},
		{Trav, syn, client, at("127.0.0.1:80"), overlay.ErrForbidden},
		{Trav, syn, client, at("10.2.0.11:0"), overlay.ErrForbidden},
		{Trav, syn, at("10.2.0.11:7"), server, overlay.ErrForbidden}, // from itself
		{Trav, syn, at("[2001:db8::1]:1"), server, overlay.ErrUnreachable},
		{Trav, syn, client, server6, overlay.ErrUnreachable},
		{Trav, syn, netip.AddrPort{}, server, overlay.ErrUnreachable},
		{Trav, syn, client6, server6, overlay.ErrForbidden}, // a SYN over IPv4
		{Trav, syn.Rewrite(client6, server6), client, server, overlay.ErrForbidden},
		{Trav, syn.Rewrite(client6, server6), at("[::1]:1"), server6, overlay.ErrForbidden},
		{Trav, syn.Rewrite(client6, server6), at("[fe80::1]:1"), server6, overlay.ErrForbidden},
		{Trav, syn.Rewrite(client6, server6), at("[ff02::1]:1"), server6, overlay.ErrForbidden},
		{Trav, syn.Rewrite(client6, server6), client6, at("[::]:1"), overlay.ErrForbidden},
		{Trav, syn.Rewrite(client6, server6), server6, server6, overlay.ErrForbidden},
	} {
		if c, err := newConversation(tc.level, tc.syn, tc.source, tc.target); !errors.Is(err, tc.class) {
			t.Errorf("%+v: %+v, %v", tc, c, err)
		}
	}
	if _, err := newConversation(7, syn, client, server); err == nil || !strings.Contains(err.Error(), "unknown level(7)") {
		t.Error(err)
	}
	if _, err := newConversation(Trav, syn.Rewrite(client6, server6), client6, server6); err != nil {
		t.Errorf("over IPv6: %v", err)
	}
	ecn, err := newConversation(TravEcho, withFlags(flagSYN|flagECE|flagCWR), client, server)
	if err != nil || ecn.syn.Flags != flagSYN {
		t.Errorf("%+v, %v", ecn, err)
	}
}
