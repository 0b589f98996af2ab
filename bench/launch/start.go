package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/gridjob"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

// StartOptions are the parameters of the start-up benchmark.
type StartOptions struct {
	Ranks  []int         // of one job each
	Repeat int           // starts of each size; one start before all others makes the links to the nodes
	Sites  int           // closed ones
	Nodes  int           // at each
	RTT    time.Duration // between sites
	Binary func(daemon string) []string
	JSON   bool
	Out    io.Writer
	Err    io.Writer // progress
}

// Check returns what is wrong with the options, or nil.
func (o StartOptions) Check() error {
	switch {
	case o.Sites < 1 || o.Sites > 20 || o.Nodes < 1 || o.Nodes > 50:
		return fmt.Errorf("%d sites of %d nodes; want 1 to 20 of 1 to 50", o.Sites, o.Nodes)
	case len(o.Ranks) == 0:
		return errors.New("no size of a job was given")
	case o.Repeat < 1:
		return fmt.Errorf("%d starts of each size; want 1 or more", o.Repeat)
	}
	for _, n := range o.Ranks {
		if n < 1 || n > 4096 {
			return fmt.Errorf("a job of %d ranks; want 1 to 4096", n)
		}
	}
	return nil
}

// target is the maximum time to start 64 ranks with round trips of 10 ms.
const target = 2 * time.Second

// Start measures jobs from the command to the start of the last process, on nodes of closed sites,
// and counts the messages. The process must have called lab.Enter.
func Start(ctx context.Context, o StartOptions) (err error) {
	if err := o.Check(); err != nil {
		return err
	}
	g, down, err := grid.Up(ctx, o.spec(), o.grid())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	if err := listed(ctx, g, o.Sites*o.Nodes); err != nil {
		return err
	}
	cold, err := o.once(ctx, g, o.Ranks[0])
	if err != nil {
		return err
	}
	rows := []bench.Row{o.row(o.Ranks[0], "all_running_cold", float64(cold.Microseconds())/1000)}
	for _, n := range o.Ranks {
		more, err := o.size(ctx, g, n)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	return bench.Write(o.Out, o.JSON, rows...)
}

func (o StartOptions) spec() lab.Spec {
	s := lab.Spec{WAN: lab.WAN{Default: wan.Shape{Delay: o.RTT / 2}}}
	for i := range o.Sites {
		s.Sites = append(s.Sites, lab.Site{Name: fmt.Sprintf("s%d", i+1), Preset: "stateful", Nodes: []string{"peers"}})
	}
	return s
}

func (o StartOptions) grid() grid.Config {
	peers := map[string][]string{}
	for i := range o.Sites {
		peers[fmt.Sprintf("s%d/peers", i+1)] = lab.Nodes(o.Nodes)
	}
	return grid.Config{
		Binary: o.Binary, Peers: peers,
		Settings: map[string]map[string]any{"helper": {"offer": map[string]any{"jobs": 1, "processes": 4096}}},
	}
}

func (o StartOptions) row(n int, figure string, ms float64) bench.Row {
	params := map[string]any{"ranks": n, "sites": o.Sites, "nodes": o.Sites * o.Nodes, "rtt_ms": float64(o.RTT.Microseconds()) / 1000}
	return bench.Row{Bench: "launch", Figure: figure, Params: params, Value: ms, Unit: "ms"}
}

// size starts jobs of one size on nodes with existing links.
func (o StartOptions) size(ctx context.Context, g *grid.Grid, n int) ([]bench.Row, error) {
	var times []float64
	for range o.Repeat {
		took, err := o.once(ctx, g, n)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(o.Err, "%d ranks run after %v\n", n, took.Round(time.Millisecond))
		times = append(times, float64(took.Microseconds())/1000)
	}
	median := o.row(n, "all_running", bench.Median(times))
	if n == 64 {
		median = median.AtMost(float64(target.Milliseconds()))
	}
	rows := []bench.Row{median, o.row(n, "all_running_max", bench.Quantile(times, 1))}
	counts, err := o.count(ctx, g, n)
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		row := o.row(n, "messages_"+step.name, float64(step.sum(counts)))
		row.Unit = "messages"
		rows = append(rows, row)
	}
	return rows, nil
}

// once launches a job whose processes print the time, and returns how long after the command the
// last process ran.
func (o StartOptions) once(ctx context.Context, g *grid.Grid, n int) (time.Duration, error) {
	start := time.Now()
	lines, _, err := gridjob.Submit(ctx, g, o.Binary("run"), "s1/n1", "s1/peers", "-n", strconv.Itoa(n), "-a", "spread", "date", "+%s%N")
	if err != nil {
		return 0, err
	}
	if len(lines) != n {
		return 0, fmt.Errorf("%d of %d ranks printed a line", len(lines), n)
	}
	var last int64
	for _, l := range lines {
		at, err := strconv.ParseInt(strings.TrimSpace(l.Text), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("rank %d says %q for the time", l.Rank, l.Text)
		}
		last = max(last, at)
	}
	return time.Unix(0, last).Sub(start), nil
}
