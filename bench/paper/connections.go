package paper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/apps"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/gridjob"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The round trips of table 1, by plain MPI. The proxy is in Orsay.
const (
	orsayRennes    = 10300 * time.Microsecond
	orsayBordeaux  = 7800 * time.Microsecond
	rennesBordeaux = 8 * time.Millisecond
	withinSite     = 100 * time.Microsecond
)

// proxyHost is that of the grid's proxy.
const proxyHost = "public/proxy"

// places is where sites are whose name begins so.
var places = map[string]map[string]time.Duration{
	"orsay":    {"orsay": withinSite, "bordeaux": orsayBordeaux, "rennes": orsayRennes},
	"bordeaux": {"orsay": orsayBordeaux, "rennes": rennesBordeaux},
	"rennes":   {"orsay": orsayRennes, "bordeaux": rennesBordeaux},
}

// A firewall makes the pairs of its sites use one technique.
type firewall struct {
	name, suffix, preset string
	technique            overlay.Technique
}

// closed is the suffix of sites that the proxy alone can connect.
const closed = "-closed"

var firewalls = []firewall{
	{"direct", "", "open", overlay.Direct},
	{"traversing", "-filter", "syn-drop", overlay.Traversing},
	{"relayed", closed, "stateful", overlay.Relay},
}

// connectionSites returns sites of the cities with each firewall. Rate limits each site's link.
func connectionSites(rate int64, cities ...string) lab.Spec {
	var spec lab.Spec
	for _, f := range firewalls {
		for _, city := range cities {
			spec.Sites = append(spec.Sites, lab.Site{Name: city + f.suffix, Preset: f.preset, Nodes: lab.Nodes(1), Uplink: rate})
		}
	}
	distance := func(a, b string, rtt time.Duration) {
		spec.WAN.Pairs = append(spec.WAN.Pairs, lab.Between(a, b, rtt))
	}
	for _, f := range firewalls {
		for i, a := range cities {
			distance(a+f.suffix, proxyHost, places[a]["orsay"])
			for _, b := range cities[:i] {
				distance(a+f.suffix, b+f.suffix, places[a][b])
			}
		}
	}
	spec.WAN.Default = wan.Shape{Delay: rennesBordeaux / 2}
	return spec
}

// onConnections runs f on such sites.
func (o Options) onConnections(ctx context.Context, spec lab.Spec, f func(*grid.Grid) error) (err error) {
	g, down, err := gridjob.UpWith(ctx, spec, o.Self, grid.Config{
		Settings: map[string]map[string]any{"frontal": {"measure": "0s"}}, // which would send packets of its own
		Profile: func(site string, p overlay.SiteProfile) overlay.SiteProfile {
			if strings.HasSuffix(site, closed) {
				p.Forbidden = []overlay.Technique{overlay.SimultaneousOpen, overlay.Traversing, overlay.HolePunching}
			}
			return p
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	return f(g)
}

// pingpong returns the median of a figure of the ping-pong between two sites, over turns of all
// techniques. The result is by technique.
func (o Options) pingpong(ctx context.Context, g *grid.Grid, a, b string, bytes, reps int, figure string) (map[string]float64, error) {
	var turns []func(context.Context) (float64, error)
	for _, f := range firewalls {
		turns = append(turns, func(ctx context.Context) (float64, error) {
			nodes := []string{a + f.suffix + "/n1", b + f.suffix + "/n1"}
			rows, err := apps.Example[bench.Row](ctx, apps.Bed{Self: o.Self}, g, nodes, "pingpong", "--max", fmt.Sprint(bytes), "--reps", fmt.Sprint(reps))
			if err != nil {
				return 0, fmt.Errorf("%s from %s to %s: %w", f.name, a, b, err)
			}
			return f.find(rows, figure, bytes)
		})
	}
	values, err := bench.Interleave(ctx, o.Repeat, turns...)
	if err != nil {
		return nil, err
	}
	of := map[string]float64{}
	for i, f := range firewalls {
		of[f.name] = bench.Median(values[i])
	}
	return of, nil
}

// find returns a figure of the ping-pong, which must have been by the firewall's technique from beginning to end.
func (f firewall) find(rows []bench.Row, figure string, bytes int) (float64, error) {
	technique := any(nil)
	v, err := find(rows, figure, func(r bench.Row) bool {
		if r.Figure != figure || r.Params["bytes"] != float64(bytes) {
			return false
		}
		technique = r.Params["technique"]
		return true
	})
	if err == nil && technique != f.technique.String() {
		return 0, fmt.Errorf("between sites with preset %s messages of %d bytes went by %v, and %s was to be measured", f.preset, bytes, technique, f.technique)
	}
	return v, err
}

const latencyTrips = 100 // of each latency

// latencies is table 1.
func (o Options) latencies(ctx context.Context) (m measured, err error) {
	spec := connectionSites(0, "orsay", "bordeaux", "rennes")
	err = o.onConnections(ctx, spec, func(g *grid.Grid) error {
		near, err := o.pingpong(ctx, g, "orsay", "bordeaux", 1, latencyTrips, "round_trip_median")
		if err != nil {
			return err
		}
		far, err := o.pingpong(ctx, g, "bordeaux", "rennes", 1, latencyTrips, "round_trip_median")
		if err != nil {
			return err
		}
		rennes, err := o.pingpong(ctx, g, "orsay", "rennes", 1, latencyTrips, "round_trip_median")
		if err != nil {
			return err
		}
		m.figures = compareLatencies(near, far, rennes)
		return nil
	})
	return m, err
}

// compareLatencies compares round trips in us: between the proxy's site and another, two others, and the proxy's and Rennes.
func compareLatencies(near, far, rennes map[string]float64) figures {
	return figures{
		"rennes": rennes["direct"] / float64(orsayRennes.Microseconds()), "rennes, near proxy": rennes["relayed"] / rennes["direct"],
		"direct": far["direct"] / float64(rennesBordeaux.Microseconds()), "traversing": far["traversing"] / far["direct"],
		"near proxy": near["relayed"] / near["direct"], "far proxy": far["relayed"] / far["direct"],
	}
}

// The rate of table 3 from Orsay to Bordeaux, and a message that takes much longer than a round trip.
const (
	wideRate     = 136_080_000
	wideMessage  = 4 << 20
	messageTrips = 3
)

// Where connections are limited by their window and not by the path: the buffers of the article's time, and a message of many.
const (
	window        = 128 << 10
	windowMessage = 1 << 20
)

// bandwidths is table 2: on paths with its rate, and on paths without one, with its window.
func (o Options) bandwidths(ctx context.Context) (m measured, err error) {
	err = o.onConnections(ctx, connectionSites(wideRate, "orsay", "bordeaux"), func(g *grid.Grid) error {
		rate, err := o.pingpong(ctx, g, "orsay", "bordeaux", wideMessage, messageTrips, "rate")
		m.figures = compareRates(rate)
		return err
	})
	if err != nil {
		return m, err
	}
	spec := connectionSites(0, "orsay", "bordeaux", "rennes")
	spec.Window = window
	err = o.onConnections(ctx, spec, func(g *grid.Grid) error {
		near, err := o.pingpong(ctx, g, "orsay", "bordeaux", windowMessage, messageTrips, "rate")
		if err != nil {
			return err
		}
		far, err := o.pingpong(ctx, g, "bordeaux", "rennes", windowMessage, messageTrips, "rate")
		maps.Copy(m.figures, compareWindows(near, far))
		return err
	})
	return m, err
}

func compareRates(rate map[string]float64) figures {
	return figures{"direct": 8 * rate["direct"] / wideRate, "traversing": rate["traversing"] / rate["direct"], "relayed": rate["relayed"] / rate["direct"]}
}

// compareWindows compares rates in bytes a second: between the proxy's site and another, and between two others.
func compareWindows(near, far map[string]float64) figures {
	return figures{
		"window": near["direct"] * orsayBordeaux.Seconds() / window, "window, traversing": near["traversing"] / near["direct"],
		"window, near proxy": near["relayed"] / near["direct"], "window, far proxy": far["direct"] / far["relayed"],
	}
}
