package matrix

import (
	"maps"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/lab/oracle"
	"github.com/isthmus-grid/isthmus/overlay"
)

// good returns a cell without a fault.
func good(t *testing.T, from, to string, taken overlay.Technique) Cell {
	t.Helper()
	known, err := oracle.Between(from, to)
	if err != nil {
		t.Fatal(err)
	}
	c := newCell(Pair{from, to}, known)
	c.Connected, c.Technique, c.Predicted, c.SetupMS, c.Tries = true, taken.String(), taken.String(), 20, 1
	for _, tech := range overlay.Techniques() {
		c.Reasons[tech.String()] = "the site of " + to + " says so"
	}
	if taken == overlay.Relay {
		c.ProxyBytes = 2*volume + 800
	}
	return c
}

func TestFault(t *testing.T) {
	direct := good(t, "stateful", "open", overlay.Direct)
	met := good(t, "stateful", "nat", overlay.SimultaneousOpen)
	relayed := good(t, "nat-symmetric", "nat", overlay.Relay)
	left := relayed // a policed path was given up for the relay in mid-transfer
	left.measured, left.First, left.ProxyBytes = true, "hole-punching", volume
	for _, c := range []Cell{direct, met, relayed, left} {
		if f := c.Fault(); f != "" {
			t.Errorf("%s to %s: %s", c.From, c.To, f)
		}
	}
	for _, tc := range []struct {
		of     Cell
		change func(*Cell)
		want   string
	}{
		{direct, func(c *Cell) { c.Connected, c.Error = false, "no route" }, "not connected: no route"},
		{met, func(c *Cell) {
			c.Connected, c.Error, c.heard = false, "too late", map[string]string{"traversing": "reset", "relay": "full"}
		}, "not connected: too late (reported to the broker: relay: full; traversing: reset)"},
		{direct, func(c *Cell) { c.Error = "the log is gone" }, "connected, but: the log is gone"},
		{direct, func(c *Cell) { c.ProxyBytes = 1 }, "1 bytes went to the proxy"},
		{direct, func(c *Cell) {
			c.addStrangers(map[path]uint64{{"a", "x"}: 1})
			c.addStrangers(map[path]uint64{{"a", "x"}: 1, {"b", "y"}: 3})
		}, "5 packets to third parties (2 a -> x, 3 b -> y)"},
		{direct, func(c *Cell) { delete(c.Reasons, "traversing") }, "no reason for or against traversing"},
		{direct, func(c *Cell) { c.Technique, c.Predicted = "tunnel", "tunnel" }, `unknown technique "tunnel"`},
		{met, func(c *Cell) {
			c.Technique, c.ProxyBytes, c.Tries = "relay", 2*volume, 3
			c.heard = map[string]string{"simultaneous-open": "timed out"}
		}, "connected by relay in 3 tries, predicted was simultaneous-open (reported to the broker: simultaneous-open: timed out); by relay although these work: simultaneous-open, traversing, hole-punching"},
		{met, func(c *Cell) { c.Technique, c.Predicted, c.ProxyBytes = "relay", "relay", 2*volume }, "although these work"},
		{met, func(c *Cell) { c.Technique = "hole-punching" }, "predicted was simultaneous-open"},
		{relayed, func(c *Cell) { c.ProxyBytes = volume }, "only 200000 bytes went to the proxy"},
		{relayed, func(c *Cell) { c.ProxyBytes, c.measured, c.First = volume, true, "relay" }, "only 200000 bytes went to the proxy"},
		{relayed, func(c *Cell) { c.ProxyBytes, c.measured, c.First = 0, true, "hole-punching" }, "only 0 bytes went to the proxy"},
		{relayed, func(c *Cell) { c.Technique, c.Predicted, c.ProxyBytes = "hole-punching", "hole-punching", 0 }, "which measurements say cannot work"},
	} {
		c := tc.of
		c.Reasons = maps.Clone(c.Reasons)
		tc.change(&c)
		if f := c.Fault(); !strings.Contains(f, tc.want) {
			t.Errorf("%s to %s: fault %q, want %q", c.From, c.To, f, tc.want)
		}
	}
}

// Without privileges a pair that only carried SYNs connect has no direct path; where a
// NAT of IPv4 is in the way, there is one over IPv6.
func TestKnown(t *testing.T) {
	carried, symmetric := Pair{"syn-drop-no-udp", "syn-drop-no-udp"}, Pair{"nat-symmetric-ipv6", "no-route/nat-symmetric-ipv6"}
	for _, tc := range []struct {
		of     Options
		pair   Pair
		direct bool
	}{
		{Options{}, carried, true},
		{Options{Unprivileged: true}, carried, false},
		{Options{IPv6: true}, carried, true},
		{Options{IPv6: true, Unprivileged: true}, carried, false},
		{Options{}, Pair{"nat-symmetric-ipv6", "nat-symmetric"}, false},
		{Options{}, symmetric, true},
		{Options{IPv6: true}, symmetric, true},
	} {
		known, err := tc.of.facts(tc.pair)
		if err != nil || newCell(tc.pair, known).DirectPossible != tc.direct {
			t.Errorf("%v, unprivileged %v, IPv6 %v: %v, %v", tc.pair, tc.of.Unprivileged, tc.of.IPv6, known.Works, err)
		}
	}
	if _, err := (Options{}).facts(Pair{"open", "moat"}); err == nil {
		t.Error("a preset that nobody measured passes")
	}
}
