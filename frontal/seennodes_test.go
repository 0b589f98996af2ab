package frontal

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/overlay"
)

// TestSeenNodes: a node is reached outside the declared networks where the frontal sees it, and nowhere else.
func TestSeenNodes(t *testing.T) {
	networks := func(texts ...string) (p overlay.SiteProfile) {
		for _, text := range texts {
			p.Networks = append(p.Networks, netip.MustParsePrefix(text))
		}
		return p
	}
	hidden := networks("198.51.100.0/28")
	hidden.GatewayOnly = true
	for name, tc := range map[string]struct {
		declared     overlay.SiteProfile
		public, from string
		want         bool
	}{
		"it has moved":                   {networks("198.51.100.0/28"), "203.0.113.9", "203.0.113.9", true},
		"mapped":                         {networks("198.51.100.0/28"), "203.0.113.9", "::ffff:203.0.113.9", true},
		"another's address":              {networks("198.51.100.0/28"), "203.0.113.9", "203.0.113.8", false},
		"seen on the inside":             {networks("198.51.100.0/28"), "203.0.113.9", "10.1.0.9", false},
		"within the networks":            {networks("203.0.113.0/24"), "203.0.113.9", "203.0.113.9", false},
		"nothing is declared":            {networks(), "203.0.113.9", "203.0.113.9", false},
		"another version of IP":          {networks("2001:db8::/64"), "203.0.113.9", "203.0.113.9", false},
		"loopback":                       {networks("198.51.100.0/28"), "127.0.0.1", "127.0.0.1", false},
		"IPv6":                           {networks("2001:db8::/64"), "2001:db8:1::9", "2001:db8:1::9", true},
		"private, where public are":      {networks("198.51.100.0/28"), "10.1.0.9", "10.1.0.9", false},
		"private, where private are":     {networks("10.64.1.0/24"), "10.64.2.9", "10.64.2.9", true},
		"its gateway is to be dialled":   {hidden, "203.0.113.9", "203.0.113.9", false},
		"the node's own, on the inside":  {networks("198.51.100.0/28"), "10.1.0.9", "10.1.0.8", false},
		"a public one where private are": {networks("10.64.1.0/24"), "203.0.113.9", "203.0.113.9", false},
	} {
		var n seenNodes
		public, from := netip.MustParseAddr(tc.public), netip.MustParseAddr(tc.from)
		may, isNew := n.note(tc.declared, "n1", public, from, func() []string { return nil })
		if may != tc.want || isNew != tc.want {
			t.Errorf("%s: %v, new: %v", name, may, isNew)
		}
		if got := n.with(tc.declared); got.Declares(public) != (tc.want || tc.declared.Declares(public)) {
			t.Errorf("%s: the broker is told %v", name, got.Networks)
		}
	}
}

// TestSeenNodesMove: an address is that of the node that was seen there last, as long as it is seen there, and there are no
// more than a broker takes.
func TestSeenNodesMove(t *testing.T) {
	var n seenNodes
	p := overlay.SiteProfile{Networks: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/28")}}
	at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}) }
	var connected []string
	note := func(node string, public, from int) (bool, bool) {
		return n.note(p, node, at(public), at(from), func() []string { return connected })
	}
	for i, step := range []struct {
		node         string
		public, from int
		may, isNew   bool
	}{
		{"a", 1, 1, true, true},
		{"a", 1, 1, true, false},
		{"b", 1, 2, false, false}, // that is where a is
		{"a", 3, 3, true, true},
		{"a", 1, 3, false, false}, // not any more
		{"a", 3, 3, true, true},
	} {
		if may, isNew := note(step.node, step.public, step.from); may != step.may || isNew != step.isNew {
			t.Errorf("step %d: %v, new: %v", i, may, isNew)
		}
	}
	if got := n.with(p).Networks; !slices.Equal(got, []netip.Prefix{p.Networks[0], netip.PrefixFrom(at(3), 32)}) {
		t.Errorf("the broker is told %v", got)
	}
	for i := range overlay.MaxNetworks - 2 {
		connected = append(connected, fmt.Sprint(i))
		if may, _ := note(fmt.Sprint(i), 100+i, 100+i); !may {
			t.Errorf("node %d is not taken", i)
		}
	}
	connected = append(connected, "a")
	if may, _ := note("late", 200, 200); may || len(n.with(p).Networks) != overlay.MaxNetworks {
		t.Errorf("one too many: %v, %d networks", may, len(n.with(p).Networks))
	}
	connected = connected[1:]
	if may, _ := note("late", 200, 200); !may || n.with(p).Check() != nil {
		t.Error("a node that has left keeps its place")
	}
	var none seenNodes
	if got := none.with(p).Networks; !slices.Equal(got, p.Networks) {
		t.Errorf("without any: %v", got)
	}
}

// TestMovedNode: the frontal tells the broker where it sees a node that has moved, before it registers a process there, and
// refuses what it does not see.
func TestMovedNode(t *testing.T) {
	r := newRig(t, func(c *Config) {
		declared := daemon.Defaults[Config]()
		c.Profile, c.DataListen, c.PublicListen, c.Measure = declared.Profile, declared.DataListen, declared.PublicListen, 0
		c.Profile.Inbound = Given(overlay.InboundOpen)
		c.Profile.Networks = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/28")}
	})
	id := control.Identity{Role: control.RoleHelper, Site: "sitea", Name: "a1"}
	at, other := netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("203.0.113.8")
	for _, tc := range []struct {
		public, from netip.Addr
		want         bool
	}{{other, at, false}, {netip.MustParseAddr("198.51.100.9"), at, true}, {at, at, true}} {
		if got := isReachedAt(r.f, id, tc.public, tc.from); got != tc.want {
			t.Errorf("%v, whose session comes from %v: %v", tc.public, tc.from, got)
		}
	}
	joins := r.broker.joinsSoFar()
	if last := joins[len(joins)-1].Profile.Networks; len(joins) != 2 || !slices.Equal(last, []string{"198.51.100.0/28", "203.0.113.9/32"}) {
		t.Errorf("%d joins, the last with %v", len(joins), last)
	}
}
