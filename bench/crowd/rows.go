package crowd

import (
	"maps"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/overlay"
)

// spare is the number of signalling requests that a node of the asking site may use besides one for each
// link: its first rank tries the techniques, with one signalling request for each technique that needs
// one, and once more the relay for a rank that did not wait any longer.
const spare = 5

// rows turns a crowd into figures. Times have no target: they depend on the machine that runs all
// the daemons and ranks.
func (c *crowd) rows(o Options, cache string) []bench.Row {
	params := map[string]any{
		"cache": cache, "from": o.From, "to": o.To, "ranks": o.Ranks, "nodes": o.Nodes,
		"rtt_ms": float64(o.RTT.Microseconds()) / 1000,
	}
	row := func(figure, unit string, value float64, more ...any) bench.Row {
		p := maps.Clone(params)
		for i := 0; i < len(more); i += 2 {
			p[more[i].(string)] = more[i+1]
		}
		return bench.Row{Bench: "crowd", Figure: figure, Params: p, Value: value, Unit: unit}
	}
	rows := []bench.Row{
		row("all_up", "ms", float64(c.allUp.Microseconds())/1000),
		row("setup_p50", "ms", bench.Median(c.setups)),
		row("setup_max", "ms", bench.Quantile(c.setups, 1)),
		row("decisions", "plans", float64(c.after.decisions)).AtMost(1),
		row("resolve_calls", "calls", float64(c.after.Resolves-c.before.Resolves)),
		row("resolve_questions", "questions", float64(c.after.Questions-c.before.Questions)),
		row("signalling", "calls", float64(c.signalled())).AtMost(float64(o.Ranks + spare*o.Nodes)),
	}
	for _, t := range overlay.Techniques() {
		if n := c.signalledBy(t); n > 0 {
			rows = append(rows, row("signalling_by", "calls", float64(n), "technique", t.String()))
		}
	}
	for _, t := range overlay.Techniques() {
		if n := c.links[t]; n > 0 {
			rows = append(rows, row("links_by", "links", float64(n), "technique", t.String()))
		}
	}
	return rows
}

// signalledBy returns the number of signalling requests by technique t.
func (c *crowd) signalledBy(t overlay.Technique) uint64 {
	return c.after.Signalling[t].Asked - c.before.Signalling[t].Asked
}

// signalled returns the number of all signalling requests.
func (c *crowd) signalled() (n uint64) {
	for _, t := range overlay.Techniques() {
		n += c.signalledBy(t)
	}
	return n
}
