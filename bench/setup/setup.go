// Package setup is `isthmus-lab bench setup`: how long a link takes, for each technique, when
// helpers and frontals have just been started (cold) and when the two nodes were linked before
// (warm), in multiples of the round trip of a bare TCP connect in the same minute. It counts from
// the dial, once until the dialler holds a connection to the other end and once until both ends
// have authenticated.
package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Options of a run.
type Options struct {
	RTT    time.Duration // between any two endpoints; more than 0
	Repeat int           // 1 or more
	Binary func(daemon string) []string
	JSON   bool
	Out    io.Writer
	Err    io.Writer // progress
}

// The maximum durations of a set-up: a number of round trips and a little for a warm one, what a
// person does not notice for a cold one.
const (
	warmTrips = 2
	allowance = 10 * time.Millisecond
	coldBound = 300 * time.Millisecond
)

// way is one technique between two kinds of site.
type way struct {
	technique overlay.Technique
	from, to  string // sites
}

// The sites of the bench are named after their presets.
var (
	sites = []lab.Site{
		{Name: "open-1", Preset: "open", Nodes: []string{"n1"}},
		{Name: "open-2", Preset: "open", Nodes: []string{"n1"}},
		{Name: "range", Preset: "port-range", Nodes: []string{"n1"}},
		{Name: "closed-1", Preset: "stateful", Nodes: []string{"n1"}},
		{Name: "closed-2", Preset: "stateful", Nodes: []string{"n1"}},
		{Name: "filter-1", Preset: "syn-drop", Nodes: []string{"n1"}},
		{Name: "filter-2", Preset: "syn-drop", Nodes: []string{"n1"}},
		{Name: "plain-1", Preset: "syn-drop", Nodes: []string{"n1"}}, // without privileges
		{Name: "plain-2", Preset: "syn-drop", Nodes: []string{"n1"}},
		{Name: "private", Preset: "stateful", Nodes: []string{"n1"}},           // forbids techniques that need both ends
		{Name: "hidden", Preset: "no-route/egress-443", Nodes: []string{"n1"}}, // the same
		{Name: "inland", Preset: "no-route/stateful", Nodes: []string{"n1"}},
	}
	ways = []way{
		{overlay.Direct, "open-1", "open-2"},
		{overlay.PortRange, "closed-1", "range"},
		{overlay.Reversed, "open-1", "closed-2"},
		{overlay.SimultaneousOpen, "closed-1", "closed-2"},
		{overlay.Traversing, "filter-1", "filter-2"},
		{overlay.HolePunching, "plain-1", "plain-2"},
		{overlay.Relay, "private", "closed-2"},
		{overlay.SimultaneousOpen, "inland", "closed-2"}, // via the asker's gateway
		{overlay.Relay, "hidden", "closed-2"},            // the same
	}
)

// Run measures and prints the rows. It must run in a process that went through lab.Enter. Missing a
// target is not an error.
func Run(ctx context.Context, o Options) (err error) {
	g, down, err := grid.Up(ctx, lab.Spec{WAN: lab.WAN{Default: wan.Shape{Delay: o.RTT / 2}}, Sites: sites}, grid.Config{
		Binary: o.Binary,
		// Sites that measure themselves send packets of their own.
		Settings: map[string]map[string]any{"frontal": {"measure": "0s"}},
		Profile: func(site string, p overlay.SiteProfile) overlay.SiteProfile {
			switch site {
			case "plain-1", "plain-2":
				p.Privileged = false
			case "private", "hidden":
				p.Forbidden = []overlay.Technique{overlay.SimultaneousOpen, overlay.Traversing, overlay.HolePunching}
			}
			return p
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	samples := make([]sample, len(ways))
	var trips []float64
	for i := range o.Repeat {
		fmt.Fprintf(o.Err, "\rrepetition %d of %d\x1b[K", i+1, o.Repeat)
		for k, w := range ways {
			trip, err := roundTrip(ctx, g, w.from)
			if err != nil {
				return err
			}
			trips = append(trips, trip)
			if err := samples[k].measure(ctx, g, w); err != nil {
				return fmt.Errorf("%v from %s to %s: %w", w.technique, w.from, w.to, err)
			}
		}
	}
	fmt.Fprint(o.Err, "\r\x1b[K")
	return bench.Write(o.Out, o.JSON, rows(o, samples, bench.Median(trips))...)
}

// sample holds a way's times in milliseconds.
type sample struct{ cold, warm times }

type times struct{ connected, linked []float64 }

// afterwards is how long after the first link of two nodes the second one is requested: the nodes
// have then prepared for it.
const afterwards = 200 * time.Millisecond

// measure restarts the daemons of both sites, links a rank of one to a rank of the other, and then
// another rank to the same.
func (s *sample) measure(ctx context.Context, g *grid.Grid, w way) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("not done after 30 s"))
	defer cancel()
	if err := forget(ctx, g, w); err != nil {
		return err
	}
	key, err := jobkey.New("setup")
	if err != nil {
		return err
	}
	target, err := probe.Join(ctx, g, w.to+"/n1", key, 0)
	if err != nil {
		return err
	}
	defer target.Leave()
	for rank, times := range []*times{&s.cold, &s.warm} {
		asker, err := probe.Join(ctx, g, w.from+"/n1", key, uint32(rank)+1)
		if err != nil {
			return err
		}
		near, far, took, err := probe.PairTimed(ctx, asker, target)
		if err != nil {
			asker.Leave()
			return err
		}
		times.connected = append(times.connected, float64(took.Connected.Microseconds())/1000)
		times.linked = append(times.linked, float64(took.Linked.Microseconds())/1000)
		near.Conn.Close()
		far.Conn.Close()
		asker.Leave()
		if near.Path.Technique != w.technique {
			return fmt.Errorf("linked by %v", near.Path)
		}
		if err := sleep.For(ctx, afterwards); err != nil {
			return err
		}
	}
	return nil
}

// forget makes both sites forget each other.
func forget(ctx context.Context, g *grid.Grid, w way) error {
	for _, site := range []string{w.from, w.to} {
		for _, name := range []string{"frontal " + site, "helper " + site + "/n1"} {
			d := g.Daemon(name)
			if err := errors.Join(d.Stop(), d.Start(ctx)); err != nil {
				return err
			}
		}
	}
	return g.Settled(ctx)
}

// roundTrip returns how long a TCP connect from a site's gateway to the broker's host takes, in
// milliseconds.
func roundTrip(ctx context.Context, g *grid.Grid, site string) (float64, error) {
	to := netip.AddrPortFrom(g.Lab.Host("public/broker").Addr(), 443).String()
	start := time.Now()
	var c net.Conn
	c, err := g.Lab.Host(site+"/gw").Dial(ctx, "tcp", to)
	if err != nil {
		return 0, err
	}
	took := time.Since(start)
	return float64(took.Microseconds()) / 1000, c.Close()
}

func rows(o Options, samples []sample, trip float64) []bench.Row {
	var rows []bench.Row
	for k, w := range ways {
		for _, s := range []struct {
			cache, until string
			times        []float64
			bound        float64 // round trips
		}{
			{"cold", "connected", samples[k].cold.connected, 0},
			{"cold", "linked", samples[k].cold.linked, float64(coldBound.Microseconds()) / 1000 / trip},
			{"warm", "connected", samples[k].warm.connected, warmTrips + float64(allowance.Microseconds())/1000/trip},
			{"warm", "linked", samples[k].warm.linked, 0},
		} {
			m := bench.Median(s.times)
			r := bench.Row{
				Bench: "setup", Figure: w.technique.String(), Value: m, Unit: "ms",
				Against: "TCP connect", Ratio: m / trip,
				Params: map[string]any{
					"cache": s.cache, "until": s.until, "from": w.from, "to": w.to, "rtt_ms": float64(o.RTT.Microseconds()) / 1000,
					"connect_ms": trip, "repeat": o.Repeat, "spread": bench.Spread(s.times),
				},
			}
			if s.bound > 0 {
				r = r.AtMost(s.bound)
			}
			rows = append(rows, r)
		}
	}
	return rows
}
