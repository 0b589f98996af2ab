package matrix

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/lab/oracle"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Cell is the outcome for one ordered pair of presets.
type Cell struct {
	From      string `json:"from"`
	To        string `json:"to"`
	Connected bool   `json:"connected"`
	Technique string `json:"technique"`
	Predicted string `json:"predicted"` // the first technique of the broker's plan

	// DirectPossible reports whether measurements of such firewalls found a path without a relay,
	// with the privileges and the version of IP of the run's daemons.
	DirectPossible bool `json:"direct_possible"`

	SetupMS float64 `json:"setup_ms"` // from the dial to the authenticated link, at the dialler

	// FirstMS and First belong to a measured run: how long the first message took, from the request
	// for a link until the other end had read it, and its technique. Technique is the link's final
	// one.
	FirstMS float64 `json:"first_ms,omitempty"`
	First   string  `json:"first,omitempty"`

	// ProxyBytes is what the proxy relayed for the pair, according to its log; ThirdPartyPackets
	// what the wide area network carried between the two sites and hosts other than each other, the
	// broker and the proxies.
	ProxyBytes        uint64 `json:"proxy_bytes"`
	ThirdPartyPackets uint64 `json:"third_party_packets"`
	ThirdParties      string `json:"third_parties,omitempty"` // whose they were

	Reasons map[string]string `json:"reasons"` // for every technique, taken or rejected
	Error   string            `json:"error"`

	// Tries counts the links that were made. Only a link that took another path than predicted is
	// made again, by new processes: on a busy machine the relay may win a race that it should lose.
	// What the broker and the frontals remember of the earlier try remains. Everything but
	// ThirdPartyPackets is of the last try.
	Tries int `json:"tries"`

	measured  bool
	facts     oracle.Pair
	heard     map[string]string // reports to the broker about failed techniques
	strangers map[path]uint64   // ThirdPartyPackets by path
}

// maxTries bounds Tries.
const maxTries = 3

// newCell returns a cell with the measured facts.
func newCell(pair Pair, known oracle.Pair) Cell {
	return Cell{From: pair.From, To: pair.To, Reasons: map[string]string{}, DirectPossible: known.Direct(), facts: known}
}

// astray reports whether the link took another path than the broker predicted. A link of a measured
// run moves to the best path.
func (c *Cell) astray() bool { return c.Connected && c.Technique != c.Predicted && !c.measured }

// planned reports whether the first technique of the broker's plan works, and is not the relay if
// there is a direct path.
func (c *Cell) planned() bool {
	var t overlay.Technique
	if t.UnmarshalText([]byte(c.Predicted)) != nil {
		return false
	}
	if t == overlay.Relay {
		return !c.DirectPossible
	}
	return c.facts.Works.Has(t) || c.facts.Unsettled.Has(t)
}

// relayed reports whether the link goes through a proxy.
func (c *Cell) relayed() bool { return c.Technique == overlay.Relay.String() }

// leastRelayed returns how many bytes a proxy has relayed for a link that ends on the relay: all of
// them, but where a measured run began on another path, which was given up for the relay.
func (c *Cell) leastRelayed() uint64 {
	if c.measured && c.First != c.Technique {
		return 1
	}
	return 2 * volume
}

// addStrangers adds packets between the two sites and third parties.
func (c *Cell) addStrangers(strangers map[path]uint64) {
	if c.strangers == nil {
		c.strangers = map[path]uint64{}
	}
	for p, n := range strangers {
		c.strangers[p] += n
		c.ThirdPartyPackets += n
	}
	c.ThirdParties = strings.TrimSpace(c.strangeness())
}

// Fault describes an error in the cell, or returns "".
func (c *Cell) Fault() string {
	var faults []string
	blame := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	blame(!c.Connected, "not connected: %s%s", c.Error, c.hearsay(slices.Sorted(maps.Keys(c.heard))...))
	blame(c.Connected && c.Error != "", "connected, but: %s", c.Error)
	blame(c.astray(), "connected by %s in %d tries, predicted was %s%s", c.Technique, c.Tries, c.Predicted, c.hearsay(c.Predicted))
	c.judgePath(blame)
	blame(!c.relayed() && c.ProxyBytes > 0 && !c.measured, "%d bytes went to the proxy", c.ProxyBytes)
	blame(c.relayed() && c.ProxyBytes < c.leastRelayed(), "only %d bytes went to the proxy", c.ProxyBytes)
	blame(c.ThirdPartyPackets > 0, "%d packets to third parties%s", c.ThirdPartyPackets, c.strangeness())
	for _, t := range overlay.Techniques() {
		blame(c.Reasons[t.String()] == "", "no reason for or against %v", t)
	}
	return strings.Join(faults, "; ")
}

// judgePath compares the path taken with the measurements.
func (c *Cell) judgePath(blame func(bool, string, ...any)) {
	if !c.Connected {
		return
	}
	if c.relayed() {
		blame(c.DirectPossible, "by %s although these work: %v", c.Technique, c.facts.Works)
		return
	}
	var t overlay.Technique
	if err := t.UnmarshalText([]byte(c.Technique)); err != nil {
		blame(true, "%v", err)
		return
	}
	blame(!c.facts.Works.Has(t) && !c.facts.Unsettled.Has(t), "by %v, which measurements say cannot work", t)
}

// strangeness names the third parties.
func (c *Cell) strangeness() string {
	var paths []string
	for p, n := range c.strangers {
		paths = append(paths, fmt.Sprintf("%d %s -> %s", n, p.from, p.to))
	}
	if len(paths) == 0 {
		return ""
	}
	slices.Sort(paths)
	return " (" + strings.Join(paths, ", ") + ")"
}

// hearsay describes the reports to the broker about failed techniques.
func (c *Cell) hearsay(of ...string) string {
	var told []string
	for _, t := range of {
		if why := c.heard[t]; why != "" {
			told = append(told, t+": "+why)
		}
	}
	if len(told) == 0 {
		return ""
	}
	return " (reported to the broker: " + strings.Join(told, "; ") + ")"
}
