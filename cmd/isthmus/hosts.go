package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/cmd/internal/ask"
	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/printable"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/launch/submit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// hostsCommand is "isthmus hosts".
func hostsCommand() *cli.Command {
	return &cli.Command{
		Name:  "hosts",
		Usage: "list the grid's nodes, nearest first, what they offer and what is free",
		Description: "The order is that in which isthmus run books hosts, and does not change with measurement noise: sites by their distance\n" +
			"from this node, and the hosts of a site by name. Hosts of unknown latency and hosts that accept no jobs come last.",
		Flags: []cli.Flag{
			helperFlag(),
			&cli.DurationFlag{Name: "wait", Value: 3 * time.Second, Usage: "how long to wait until the latency of every node that accepts jobs is known"},
			&cli.BoolFlag{Name: "json", Usage: "print one object per line and node"},
			cmdline.VerboseFlag(),
		},
		Action: func(c *cli.Context) error {
			grid, err := gridOf(c)
			if err != nil {
				return err
			}
			defer grid.Close()
			list, err := listHosts(c.Context, grid, c.Duration("wait"))
			if err != nil {
				return ask.HelperFailed(c, "hosts", err)
			}
			if list.Stale != "" {
				grid.Stale(list.Stale)
			}
			free := freeJobs(c.Context, grid, list.Hosts)
			if c.Bool("json") {
				return hostsJSON(c.App.Writer, list.Hosts, free)
			}
			return cmdline.Coloured(c.App.Writer, func(w io.Writer) error { return hostsTable(w, list.Hosts, free) })
		},
	}
}

// hostsAgain is the interval between two queries while latencies are measured.
const hostsAgain = 100 * time.Millisecond

// listHosts queries a helper, repeatedly until it knows the distance of every node or the wait is
// over.
func listHosts(ctx context.Context, grid *submit.Grid, wait time.Duration) (*nodepb.HostsResponse, error) {
	for end := time.Now().Add(wait); ; {
		list, err := grid.List(ctx)
		if err != nil || measured(list.Hosts) || time.Now().After(end) {
			return list, err
		}
		if err := sleep.For(ctx, hostsAgain); err != nil {
			return nil, err
		}
	}
}

// measured reports whether the latency of every host that takes jobs is known.
func measured(hosts []*nodepb.Host) bool {
	for _, h := range hosts {
		if h.State == offer.Up.String() && h.Jobs > 0 && h.LatencyNs == 0 && !h.Unanswered {
			return false
		}
	}
	return true
}

// freeTime bounds the wait for the nodes to say how many jobs they have.
const freeTime = 1500 * time.Millisecond

// freeJobs returns how many more jobs each node has room for. Nodes that accept none, or do not answer,
// are not in it.
func freeJobs(ctx context.Context, grid *submit.Grid, hosts []*nodepb.Host) map[string]int {
	ctx, cancel := context.WithTimeout(ctx, freeTime)
	defer cancel()
	var nodes []overlay.NodeID
	for _, h := range hosts {
		if n, err := overlay.ParseNodeID(h.Node); err == nil && h.Jobs > 0 && h.State == offer.Up.String() && !h.Unanswered {
			nodes = append(nodes, n)
		}
	}
	held := grid.Reservations(ctx, nodes)
	free := make(map[string]int, len(held))
	for _, h := range hosts {
		if n, err := overlay.ParseNodeID(h.Node); err == nil {
			if taken, answered := held[n]; answered {
				free[h.Node] = max(0, int(h.Jobs)-taken)
			}
		}
	}
	return free
}

func hostsTable(w io.Writer, hosts []*nodepb.Host, free map[string]int) error {
	table := printable.NewTable(w)
	table.Row("host", "state", "silent", "latency", "free", "jobs", "processes", "memory", "cores", "power")
	for _, h := range hosts {
		silent, latency, processes, memory, cores, power := "-", "-", strconv.Itoa(int(h.Processes)), "any", "any", "-"
		if h.SilentMs > 0 {
			silent = (time.Duration(h.SilentMs) * time.Millisecond).Round(time.Second).String()
		}
		if h.LatencyNs > 0 {
			latency = fmt.Sprintf("%.2f ms", float64(h.LatencyNs)/1e6)
		}
		if h.Memory > 0 {
			memory = fmt.Sprintf("%.1f GiB", float64(h.Memory)/(1<<30))
		}
		if h.Cpu > 0 {
			cores = strconv.FormatFloat(float64(h.Cpu)/1000, 'f', -1, 64)
		}
		if h.Power > 0 {
			power = strconv.Itoa(int(h.Power))
		}
		room := "-"
		if n, known := free[h.Node]; known {
			room = strconv.Itoa(n)
		}
		if h.Jobs == 0 {
			processes, memory, cores = "-", "-", "-"
		}
		table.Row(h.Node, h.State, silent, latency, room, h.Jobs, processes, memory, cores, power)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, h := range hosts {
		if h.Note != "" {
			fmt.Fprintf(w, "%s: %s\n", printable.Line(h.Node), printable.Line(h.Note))
		}
	}
	return nil
}

// hostLine is a host as --json prints it.
type hostLine struct {
	Host      string  `json:"host"`
	State     string  `json:"state"`                // up, away or unknown
	SilentS   float64 `json:"silent_s,omitempty"`   // since it was last known to be up
	LatencyMS float64 `json:"latency_ms,omitempty"` // round trip; absent: not measured
	Free      *int    `json:"free_jobs,omitempty"`  // how many more jobs it has room for now; absent: it does not say
	Jobs      uint32  `json:"jobs"`                 // at a time; 0: none
	Processes uint32  `json:"processes"`            // of one job
	Memory    uint64  `json:"memory"`               // bytes for all jobs; 0: not limited
	Cores     float64 `json:"cores"`                // for all jobs; 0: not limited
	Power     uint32  `json:"power,omitempty"`      // of all cores, in millions of multiplications and additions a second; absent: unknown
	Note      string  `json:"note,omitempty"`       // for people: what is wrong with it all the same
}

func hostsJSON(w io.Writer, hosts []*nodepb.Host, free map[string]int) error {
	out := json.NewEncoder(w)
	for _, h := range hosts {
		line := hostLine{h.Node, h.State, float64(h.SilentMs) / 1e3, float64(h.LatencyNs) / 1e6, nil, h.Jobs, h.Processes, h.Memory, float64(h.Cpu) / 1e3, h.Power, h.Note}
		if n, known := free[h.Node]; known {
			line.Free = &n
		}
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
