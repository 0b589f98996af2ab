// Package overlap is `isthmus-lab bench overlap`: by how much a computation takes longer while a
// large message that its process has begun to send crosses the WAN. Two processes, at two sites
// that accept no incoming connections, of a whole grid in a lab; the sender computes alone, sends
// alone and does both at once, in turn.
package overlap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/gridjob"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

// Options of a run.
type Options struct {
	Size   int           // bytes of the message
	RTT    time.Duration // between the sites
	Repeat int           // how often each of the three is done
	Self   []string      // command line of this program, followed by "bench overlap --part"
	JSON   bool
	Out    io.Writer
}

// Check returns an error for invalid options, or nil.
func (o Options) Check() error {
	switch {
	case o.Size < 1 || o.Size > 1<<30:
		return fmt.Errorf("a message of %d bytes; want 1 to 1 GiB", o.Size)
	case o.Repeat < 1:
		return fmt.Errorf("%d repetitions; want one at least", o.Repeat)
	}
	return nil
}

// maxCost is the maximum ratio by which a concurrent send may slow a computation.
const maxCost = 1.05

// patience bounds the ranks.
const patience = 5 * time.Minute

// Run builds the sites, makes two ranks measure, and prints the rows. It must run in a process that
// went through lab.Enter. Missing the target is not an error.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.Check(); err != nil {
		return err
	}
	g, down, err := gridjob.Up(ctx, lab.Spec{
		WAN: lab.WAN{Default: wan.Shape{Delay: o.RTT / 2}},
		Sites: []lab.Site{
			{Name: "here", Preset: "stateful", Nodes: lab.Nodes(1)},
			{Name: "there", Preset: "stateful", Nodes: lab.Nodes(1)},
		},
	}, o.Self)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	times, err := o.job(ctx, g)
	if err != nil {
		return err
	}
	return bench.Write(o.Out, o.JSON, o.rows(times)...)
}

// job runs the two ranks and returns what the sender measured.
func (o Options) job(ctx context.Context, g *grid.Grid) (t times, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("the ranks were not done after %v", patience))
	defer cancel()
	out, err := gridjob.Job{
		Grid: g, Self: o.Self, Name: "overlap", Nodes: []string{"here/n1", "there/n1"},
		Argv: append(o.Self[:len(o.Self):len(o.Self)], "bench", "overlap", "--part", "--repeat", fmt.Sprint(o.Repeat), "--size", fmt.Sprint(o.Size)),
	}.Run(ctx)
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(out, &t); err != nil {
		return t, fmt.Errorf("the sender said %q: %w", out, err)
	}
	return t, nil
}

// rows turns times into figures. The cost is the median over the turns, each of which is compared
// with the computation just before it.
func (o Options) rows(t times) []bench.Row {
	params := map[string]any{"size": o.Size, "rtt_ms": float64(o.RTT.Microseconds()) / 1000, "technique": t.Technique, "cipher": t.Cipher}
	ratios := make([]float64, len(t.Both))
	for i := range ratios {
		ratios[i] = t.Both[i] / t.Alone[i]
	}
	both := bench.Row{Bench: "overlap", Figure: "isend_compute_wait", Params: params, Value: bench.Median(t.Both), Unit: "ms",
		Against: "compute", Ratio: bench.Median(ratios)}
	return []bench.Row{
		{Bench: "overlap", Figure: "compute", Params: params, Value: bench.Median(t.Alone), Unit: "ms"},
		{Bench: "overlap", Figure: "send", Params: params, Value: bench.Median(t.Send), Unit: "ms"},
		{Bench: "overlap", Figure: "send_cpu", Params: params, Value: bench.Median(t.SendCPU), Unit: "ms"},
		both.AtMost(maxCost),
	}
}
