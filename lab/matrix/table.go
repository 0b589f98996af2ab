package matrix

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/overlay"
)

// table holds the cells of a run for display: a row for each asker and a column for each target.
type table struct {
	title   string
	presets []string
	cells   map[Pair]*Cell
}

func newTable(o Options, pairs int) *table {
	who := "privileged helpers"
	if o.Unprivileged {
		who = "helpers without privileges"
	}
	if o.IPv6 {
		who += ", IPv6 alone"
	}
	if o.Measured {
		who += ", nothing declared"
	}
	return &table{
		title: fmt.Sprintf("%d pairs of %d kinds of site, %g ms round trip, %s",
			pairs, len(o.Presets), float64(o.RTT.Microseconds())/1000, who),
		presets: o.Presets, cells: map[Pair]*Cell{},
	}
}

func (t *table) add(c Cell) { t.cells[Pair{c.From, c.To}] = &c }

// at returns a cell, or nil if the pair has not been connected yet.
func (t *table) at(from, to string) *Cell { return t.cells[Pair{from, to}] }

// each calls f with every cell, row by row.
func (t *table) each(f func(row, column int, c *Cell)) {
	for i, from := range t.presets {
		for j, to := range t.presets {
			if c := t.at(from, to); c != nil {
				f(i, j, c)
			}
		}
	}
}

// verdict names the cells with faults, or returns nil.
func (t *table) verdict() error {
	var faults []string
	t.each(func(_, _ int, c *Cell) {
		if f := c.Fault(); f != "" {
			faults = append(faults, fmt.Sprintf("%s -> %s: %s", c.From, c.To, f))
		}
	})
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d pairs are not as they should be:\n  %s", len(faults), len(t.cells), strings.Join(faults, "\n  "))
}

// A legend is the presentation of a technique.
type legend struct {
	name  string
	mark  string // one letter, for text
	color string // #rrggbb; distinguishable with red-green colour blindness
	count int
	ms    float64 // median set-up
}

// wrong is the technique name of a cell with a fault.
const wrong = "not as it should be"

var legends = []legend{
	{name: overlay.Direct.String(), mark: "D", color: "#1f8449"},
	{name: overlay.PortRange.String(), mark: "P", color: "#94cf5e"},
	{name: overlay.Reversed.String(), mark: "R", color: "#8fd0f0"},
	{name: overlay.SimultaneousOpen.String(), mark: "S", color: "#2f6fb7"},
	{name: overlay.Traversing.String(), mark: "T", color: "#8458b3"},
	{name: overlay.HolePunching.String(), mark: "H", color: "#f2b53d"},
	{name: overlay.Relay.String(), mark: "-", color: "#d3d6da"},
	{name: wrong, mark: "!", color: "#d1343f"},
}

// legendOf returns the legend of a cell.
func legendOf(c *Cell) legend {
	name := c.Technique
	if c.Fault() != "" {
		name = wrong
	}
	i := slices.IndexFunc(legends, func(l legend) bool { return l.name == name })
	return legends[max(i, 0)] // a technique without a legend is a fault, too
}

// summary returns the legends that occur, with counts and medians.
func (t *table) summary() []legend {
	times := map[string][]float64{}
	t.each(func(_, _ int, c *Cell) {
		l := legendOf(c)
		times[l.name] = append(times[l.name], c.SetupMS)
	})
	var all []legend
	for _, l := range legends {
		if l.count = len(times[l.name]); l.count > 0 {
			l.ms = bench.Median(times[l.name])
			all = append(all, l)
		}
	}
	return all
}

// caption states how often a legend occurs, and how long set-up took.
func (l legend) caption() string {
	noun := "pairs"
	if l.count == 1 {
		noun = "pair"
	}
	return fmt.Sprintf("%d %s, %.0f ms (median)", l.count, noun, l.ms)
}

// totals sums up the whole grid in a line.
func (t *table) totals() string {
	var connected, possible, got, again int
	var strangers uint64
	t.each(func(_, _ int, c *Cell) {
		if c.Connected {
			connected++
		}
		if c.DirectPossible {
			possible++
			if c.Connected && !c.relayed() {
				got++
			}
		}
		if c.Tries > 1 {
			again++
		}
		strangers += c.ThirdPartyPackets
	})
	return fmt.Sprintf("%d of %d pairs connected; a direct path exists for %d, and %d have one; %d needed more than one try; %d packets to third parties%s",
		connected, len(t.cells), possible, got, again, strangers, t.measuredTotals())
}

// measuredTotals describes for a measured run how good the plans were and how long the first
// message took; "" for another run.
func (t *table) measuredTotals() string {
	var first []float64
	planned := 0
	t.each(func(_, _ int, c *Cell) {
		if c.planned() {
			planned++
		}
		if c.FirstMS > 0 {
			first = append(first, c.FirstMS)
		}
	})
	if len(first) == 0 {
		return ""
	}
	slices.Sort(first)
	return fmt.Sprintf("; %d planned as measurements of the firewalls say; the first message took %.0f ms (median), %.0f (p99), %.0f (most)",
		planned, bench.Median(first), first[(len(first)*99+99)/100-1], first[len(first)-1])
}

// text prints the grid: a letter for each cell, columns numbered like the rows.
func (t *table) text(w io.Writer) error {
	width := 0
	for _, p := range t.presets {
		width = max(width, len(p))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s; rows ask, columns are asked for\n\n%*s", t.title, width+3, "")
	for j := range t.presets {
		fmt.Fprintf(&b, " %2d", j+1)
	}
	for i, from := range t.presets {
		fmt.Fprintf(&b, "\n%2d %-*s", i+1, width, from)
		for _, to := range t.presets {
			mark := " "
			if c := t.at(from, to); c != nil {
				mark = legendOf(c).mark
			}
			fmt.Fprintf(&b, "  %s", mark)
		}
	}
	b.WriteString("\n\n")
	for _, l := range t.summary() {
		fmt.Fprintf(&b, "%s  %-20s %s\n", l.mark, l.name, l.caption())
	}
	fmt.Fprintln(&b, t.totals())
	_, err := io.WriteString(w, b.String())
	return err
}
