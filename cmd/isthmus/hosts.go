package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isthmus-grid/isthmus/cmd/internal/cmdline"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/gatepb"
	"github.com/isthmus-grid/isthmus/launch/offer"
)

// hostsCommand is "isthmus hosts".
func hostsCommand() *cli.Command {
	return &cli.Command{
		Name:  "hosts",
		Usage: "list the grid's nodes, nearest first, and their offers",
		Description: "The order is that in which isthmus run books hosts, and does not change with measurement noise: sites by their distance\n" +
			"from this node, and the hosts of a site by name. Hosts of unknown latency and hosts that accept no jobs come last.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "helper", EnvVars: []string{ranks.EnvHelper}, Usage: "`SOCKET` of this node's helper"},
			&cli.DurationFlag{Name: "wait", Value: 3 * time.Second, Usage: "how long to wait until the latency of every node that accepts jobs is known"},
			&cli.BoolFlag{Name: "json", Usage: "print one object per line and node"},
		},
		Action: func(c *cli.Context) error {
			if c.String("helper") == "" {
				return cmdline.Usage("hosts: name this node's helper with --helper or ISTHMUS_HELPER")
			}
			list, err := listHosts(c.Context, c.String("helper"), c.Duration("wait"))
			if err != nil {
				return fmt.Errorf("hosts: %w", err)
			}
			if c.Bool("json") {
				return hostsJSON(c.App.Writer, list)
			}
			return hostsTable(c.App.Writer, list)
		},
	}
}

const (
	hostsCall  = 20 * time.Second       // for one answer of the helper
	hostsAgain = 100 * time.Millisecond // between two queries while latencies are measured
)

// listHosts queries a helper, repeatedly until it knows the distance of every node or the wait is
// over.
func listHosts(ctx context.Context, helper string, wait time.Duration) ([]*gatepb.Host, error) {
	path, err := filepath.Abs(helper)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("unix://"+path+".gate", grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for end := time.Now().Add(wait); ; {
		callCtx, cancel := context.WithTimeout(ctx, hostsCall)
		list, err := gatepb.NewDeskClient(conn).Hosts(callCtx, &gatepb.HostsRequest{})
		cancel()
		if err != nil {
			return nil, fmt.Errorf("helper %s: %w", helper, control.FromStatus(err))
		}
		if measured(list.Hosts) || time.Now().After(end) {
			return list.Hosts, nil
		}
		if err := sleep.For(ctx, hostsAgain); err != nil {
			return nil, err
		}
	}
}

// measured reports whether the latency of every host that takes jobs is known.
func measured(hosts []*gatepb.Host) bool {
	for _, h := range hosts {
		if h.State == offer.Up.String() && h.Jobs > 0 && h.LatencyNs == 0 {
			return false
		}
	}
	return true
}

func hostsTable(w io.Writer, hosts []*gatepb.Host) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "host\tstate\tsilent\tlatency\tjobs\tprocesses\tmemory\tcores")
	for _, h := range hosts {
		silent, latency, processes, memory, cores := "-", "-", strconv.Itoa(int(h.Processes)), "any", "any"
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
		if h.Jobs == 0 {
			processes, memory, cores = "-", "-", "-"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", h.Node, h.State, silent, latency, h.Jobs, processes, memory, cores)
	}
	return tw.Flush()
}

// hostLine is a host as --json prints it.
type hostLine struct {
	Host      string  `json:"host"`
	State     string  `json:"state"`                // up, away or unknown
	SilentS   float64 `json:"silent_s,omitempty"`   // since it was last known to be up
	LatencyMS float64 `json:"latency_ms,omitempty"` // round trip; absent: not measured
	Jobs      uint32  `json:"jobs"`                 // at a time; 0: none
	Processes uint32  `json:"processes"`            // of one job
	Memory    uint64  `json:"memory"`               // bytes for all jobs; 0: not limited
	Cores     float64 `json:"cores"`                // for all jobs; 0: not limited
}

func hostsJSON(w io.Writer, hosts []*gatepb.Host) error {
	out := json.NewEncoder(w)
	for _, h := range hosts {
		line := hostLine{h.Node, h.State, float64(h.SilentMs) / 1e3, float64(h.LatencyNs) / 1e6, h.Jobs, h.Processes, h.Memory, float64(h.Cpu) / 1e3}
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
