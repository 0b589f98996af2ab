package scale

import (
	"time"

	"github.com/isthmus-grid/isthmus/bench"
)

// use is a process's use of system resources.
type use struct {
	rss         float64 // bytes that are in memory
	descriptors int
	pipes       int // of descriptors, two for each pipe
}

// proxyFigures are the measurements of a proxy.
type proxyFigures struct {
	before, idle, busy use
	socketsIdle        float64 // bytes of the kernel's socket buffers, of all processes
	socketsBusy        float64
	linkBytes          []float64 // bytes of each link
	took               time.Duration
}

// The maximum memory of a link, and the allowed inequality of the links' shares.
const (
	linkMemory = 64 << 10
	fairness   = 0.95
)

func (f *proxyFigures) rows(o Options) []bench.Row {
	links := float64(o.Links)
	sum := 0.0
	for _, n := range f.linkBytes {
		sum += n
	}
	row := func(figure, unit string, value float64) bench.Row {
		return bench.Row{Bench: "scale", Figure: figure, Unit: unit, Value: value, Params: map[string]any{
			"daemon": "proxy", "links": o.Links, "rate": o.Rate.String(), "seconds": o.For.Seconds(),
		}}
	}
	return []bench.Row{
		row("fairness", "Jain", bench.Jain(f.linkBytes)).AtLeast(fairness),
		row("least_share", "of mean", bench.Quantile(f.linkBytes, 0)*links/sum),
		row("throughput", "Mbit/s", sum*8/f.took.Seconds()/1e6),
		row("memory_idle", "B/link", (f.idle.rss-f.before.rss)/links).AtMost(linkMemory),
		row("memory_busy", "B/link", (f.busy.rss-f.before.rss)/links).AtMost(linkMemory),
		row("kernel_sockets_idle", "B/link", f.socketsIdle/links),
		row("kernel_sockets_busy", "B/link", f.socketsBusy/links),
		row("pipes_busy", "pipes", float64(f.busy.pipes)/2),
		row("descriptors_idle", "per link", float64(f.idle.descriptors-f.before.descriptors)/links),
		row("descriptors_busy", "per link", float64(f.busy.descriptors-f.before.descriptors)/links),
	}
}

// frontalFigures are the measurements of a frontal.
type frontalFigures struct {
	before, after use
	joined        time.Duration // until all helpers had joined
	registered    time.Duration // from then until all processes were known
	dials         []float64     // ms, between processes of different nodes
}

func (f *frontalFigures) rows(o Options) []bench.Row {
	row := func(figure, unit string, value float64) bench.Row {
		return bench.Row{Bench: "scale", Figure: figure, Unit: unit, Value: value, Params: map[string]any{
			"daemon": "frontal", "helpers": o.Helpers, "processes": o.Processes,
		}}
	}
	return []bench.Row{
		row("helpers_joined", "s", f.joined.Seconds()),
		row("processes_registered", "s", f.registered.Seconds()),
		row("memory", "MiB", f.after.rss/(1<<20)),
		row("memory_helper", "KiB/helper", (f.after.rss-f.before.rss)/float64(o.Helpers)/1024),
		row("descriptors", "open", float64(f.after.descriptors)),
		row("dial_p50", "ms", bench.Median(f.dials)),
		row("dial_max", "ms", bench.Quantile(f.dials, 1)),
	}
}
