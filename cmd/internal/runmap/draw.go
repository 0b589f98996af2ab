package runmap

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/printable"
)

// Write writes the map as text.
func (m *Map) Write(w io.Writer) error {
	var out strings.Builder
	m.drawPlaces(&out)
	m.drawPaths(&out)
	m.drawUnknown(&out)
	_, err := io.WriteString(w, out.String())
	return err
}

// siteOf returns the names of a process's site and node for display.
func (m *Map) siteOf(p Process) (site, node string) {
	name, known := m.node[p]
	site, node, named := strings.Cut(name, "/")
	switch {
	case !known:
		return "unknown", "unknown"
	case !named:
		return "this machine", ""
	}
	return site, node
}

func (m *Map) drawPlaces(out *strings.Builder) {
	replicas := ""
	if len(m.processes) > m.size {
		replicas = ", in replicas; 0/1 is replica 1 of rank 0"
	}
	fmt.Fprintf(out, "\nwhere the %d ranks ran%s\n", m.size, replicas)
	sites := map[string]map[string][]Process{}
	for _, p := range m.processes {
		if _, known := m.node[p]; !known {
			continue
		}
		site, node := m.siteOf(p)
		if sites[site] == nil {
			sites[site] = map[string][]Process{}
		}
		sites[site][node] = append(sites[site][node], p)
	}
	table := printable.NewTable(out)
	for _, site := range slices.Sorted(maps.Keys(sites)) {
		for _, node := range slices.Sorted(maps.Keys(sites[site])) {
			table.Row("  "+site, node, "ranks "+ranges(sites[site][node]))
		}
	}
	table.Flush()
	if unknown := m.unknown(); len(unknown) > 0 {
		fmt.Fprintf(out, "  unknown: ranks %s; no local rank exchanged messages with them\n", ranges(unknown))
	}
}

// unknown lists the processes whose location is unknown here.
func (m *Map) unknown() (list []Process) {
	for _, p := range m.processes {
		if _, known := m.node[p]; !known {
			list = append(list, p)
		}
	}
	return list
}

// way holds what the links of one line of the table have in common.
type way struct{ from, to, technique string }

func (m *Map) drawPaths(out *strings.Builder) {
	lines := map[way][]report{}
	for _, l := range m.links {
		from, _ := m.siteOf(l.from())
		to, _ := m.siteOf(l.to())
		at := way{from, to, techniqueOf(l)}
		lines[at] = append(lines[at], l)
	}
	if len(lines) == 0 {
		out.WriteString("\nranks exchanged no messages\n")
		return
	}
	out.WriteString("\npaths used, as seen by the ranks that ran here\n")
	table := printable.NewTable(out)
	table.Row("  from", "to", "technique", "links", "RTT ms", "MB/s", "messages out, in", "MB out, in")
	order := slices.SortedStableFunc(maps.Keys(lines), func(a, b way) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.technique, b.technique))
	})
	for _, at := range order {
		links := lines[at]
		table.Row("  "+at.from, at.to, at.technique, len(links),
			span(links, "%.2f", func(l report) float64 { return l.RTTMS }),
			span(links, "%.0f", func(l report) float64 { return l.Bandwidth / 1e6 }),
			fmt.Sprintf("%d, %d", sum(links, func(l report) uint64 { return l.MessagesSent }),
				sum(links, func(l report) uint64 { return l.MessagesReceived })),
			megabytes(sum(links, func(l report) uint64 { return l.BytesSent }))+", "+
				megabytes(sum(links, func(l report) uint64 { return l.BytesReceived })))
	}
	table.Flush()
	for _, at := range order {
		for _, limit := range limitsOf(lines[at]) {
			fmt.Fprintf(out, "  %s, shared with all other traffic under that rule\n", printable.Line(at.from+" to "+at.to+", "+at.technique+": "+limit))
		}
	}
	out.WriteString("  MB/s is the rate of links while more data was waiting to be sent; unknown where that was never so for long enough.\n")
}

// limitsOf returns the limits that proxies and gateways apply to the links, which the helpers wrote
// into the reasons for their techniques.
func limitsOf(links []report) []string {
	found := map[string]bool{}
	for _, l := range links {
		for _, part := range strings.Split(l.Reason, "; ") {
			if strings.HasPrefix(part, control.HeldToPrefix) {
				found[part] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func (m *Map) drawUnknown(out *strings.Builder) {
	if len(m.mute) > 0 {
		fmt.Fprintf(out, "\nranks %s left no report, so their paths are missing: they exited without Finalize, or do not use this library\n", ranges(m.mute))
	}
	if m.count < m.size {
		fmt.Fprintf(out, "\nThis covers ranks %d-%d; the launchers of the other ranks show theirs.\n", m.first, m.first+m.count-1)
	}
}

// techniqueOf describes a link's path: "relay through p1, 4 carriers, encrypted".
func techniqueOf(l report) string {
	s := l.Technique
	if l.Proxy != "" {
		s += " through " + l.Proxy
	}
	if l.Via != "" {
		s += ", via " + l.Via
	}
	if l.Carriers > 1 {
		s += fmt.Sprintf(", %d carriers", l.Carriers)
	}
	if l.Cipher != "" {
		s += ", encrypted"
	}
	return s
}

// span returns the smallest and the largest known value of the links: "1.20 - 3.40".
func span(links []report, format string, of func(report) float64) string {
	var known []float64
	for _, l := range links {
		if v := of(l); v > 0 {
			known = append(known, v)
		}
	}
	if len(known) == 0 {
		return "unknown"
	}
	low, high := fmt.Sprintf(format, slices.Min(known)), fmt.Sprintf(format, slices.Max(known))
	if low == high {
		return low
	}
	return low + " - " + high
}

func sum(links []report, of func(report) uint64) (n uint64) {
	for _, l := range links {
		n += of(l)
	}
	return n
}

func megabytes(n uint64) string {
	switch {
	case n == 0:
		return "0"
	case n < 10e3:
		return "<0.01"
	}
	return fmt.Sprintf("%.2f", float64(n)/1e6)
}

// ranges formats a sorted list of processes as "0-3 7 0-3/1": the last are replicas 1 of ranks 0 to 3.
func ranges(list []Process) string {
	var words []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == (Process{list[j].Rank + 1, list[i].Replica}) {
			j++
		}
		word := fmt.Sprint(list[i].Rank)
		if j > i {
			word = fmt.Sprintf("%d-%d", list[i].Rank, list[j].Rank)
		}
		if c := list[i].Replica; c > 0 {
			word += fmt.Sprintf("/%d", c)
		}
		words = append(words, word)
		i = j + 1
	}
	return strings.Join(words, " ")
}
