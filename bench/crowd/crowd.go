// Package crowd is `isthmus-lab bench crowd`: all ranks of one site dial their counterparts at
// another at the same moment. It measures the time until every link is up, and counts the broker's
// work: the grid should decide once for the two sites, and not try every technique for every rank.
package crowd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/probe"
	"github.com/isthmus-grid/isthmus/lab/wan"
	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Options of a run.
type Options struct {
	From, To string        // presets of the two sites
	Ranks    int           // at each site; rank i dials rank Ranks+i
	Nodes    int           // at each site
	RTT      time.Duration // between any two places
	Binary   func(daemon string) []string
	JSON     bool
	Out      io.Writer
	Err      io.Writer // progress
}

const (
	askers  = "askers"
	targets = "targets"

	patience = 2 * time.Minute // timeout of one crowd
	volume   = 4096            // bytes each way over every link
)

// Check returns what is wrong with the options, or nil.
func (o Options) Check() error {
	for _, p := range []string{o.From, o.To} {
		if !slices.Contains(lab.Presets(), p) {
			return fmt.Errorf("unknown preset %q; known are %s", p, strings.Join(lab.Presets(), ", "))
		}
	}
	switch {
	case o.Nodes < 1 || o.Nodes > lab.MaxNodes:
		return fmt.Errorf("%d nodes at a site; want 1 to %d", o.Nodes, lab.MaxNodes)
	case o.Ranks < o.Nodes || o.Ranks > 5000:
		return fmt.Errorf("%d ranks at a site of %d nodes; want one for each node at least, and at most 5000", o.Ranks, o.Nodes)
	}
	return nil
}

// Run measures a crowd between sites that have no links yet, and then one of another job, and
// prints the rows. The process must have called lab.Enter. A missed target is no error, but a
// missing link is one.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.Check(); err != nil {
		return err
	}
	g, down, err := grid.Up(ctx, lab.Spec{
		WAN: lab.WAN{Default: wan.Shape{Delay: o.RTT / 2}},
		Sites: []lab.Site{
			{Name: askers, Preset: o.From, Nodes: lab.Nodes(o.Nodes)},
			{Name: targets, Preset: o.To, Nodes: lab.Nodes(o.Nodes)},
		},
	}, grid.Config{
		Binary: o.Binary,
		// Sites that measure themselves would ask the broker more than the crowd does.
		Settings: map[string]map[string]any{"frontal": {"measure": "0s"}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	var rows []bench.Row
	for _, cache := range []string{"cold", "warm"} {
		fmt.Fprintf(o.Err, "%s: %d ranks of a %s site dial %d of a %s site\n", cache, o.Ranks, o.From, o.Ranks, o.To)
		c, err := o.crowd(ctx, g)
		if err != nil {
			return fmt.Errorf("%s: %w", cache, err)
		}
		rows = append(rows, c.rows(o, cache)...)
	}
	return bench.Write(o.Out, o.JSON, rows...)
}

// crowd is the result of one crowd.
type crowd struct {
	allUp  time.Duration // from the first dial to the last link
	setups []float64     // of each link, in ms
	links  map[overlay.Technique]int
	before ledger
	after  ledger
}

// crowd joins the ranks of a job, makes them dial, and counts.
func (o Options) crowd(ctx context.Context, g *grid.Grid) (*crowd, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	ranks, err := o.join(ctx, g)
	defer func() {
		for _, r := range ranks {
			r.Leave()
		}
	}()
	if err != nil {
		return nil, err
	}
	c := &crowd{links: map[overlay.Technique]int{}}
	if c.before, err = readLedger(ctx, g); err != nil {
		return nil, err
	}
	if err := c.dial(ctx, ranks[:o.Ranks], ranks[o.Ranks:]); err != nil {
		return nil, err
	}
	c.after, err = readLedger(ctx, g)
	return c, err
}

// join registers all ranks, distributed over the nodes round-robin. It returns those that joined
// even with an error.
func (o Options) join(ctx context.Context, g *grid.Grid) ([]*probe.Rank, error) {
	key, err := jobkey.New("crowd")
	if err != nil {
		return nil, err
	}
	var ranks []*probe.Rank
	for i := range 2 * o.Ranks {
		site := askers
		if i >= o.Ranks {
			site = targets
		}
		r, err := probe.Join(ctx, g, fmt.Sprintf("%s/n%d", site, i%o.Ranks%o.Nodes+1), key, uint32(i))
		if err != nil {
			return ranks, err
		}
		ranks = append(ranks, r)
	}
	return ranks, nil
}

// dial links the i-th asker to the i-th target, all at once.
func (c *crowd) dial(ctx context.Context, from, to []*probe.Rank) error {
	type end struct {
		near, far *link.Link
		took      time.Duration
		err       error
	}
	ends := make([]end, len(from))
	var dialling sync.WaitGroup
	gate := make(chan struct{})
	for i := range ends {
		dialling.Go(func() {
			<-gate
			e := &ends[i]
			e.near, e.far, e.took, e.err = probe.Pair(ctx, from[i], to[i])
		})
	}
	start := time.Now()
	close(gate)
	dialling.Wait()
	c.allUp = time.Since(start)
	var errs []error
	for i, e := range ends {
		if e.err != nil {
			errs = append(errs, fmt.Errorf("rank %d to %d: %w", i, len(from)+i, e.err))
			continue
		}
		defer e.near.Conn.Close()
		defer e.far.Conn.Close()
		c.setups = append(c.setups, float64(e.took.Microseconds())/1000)
		c.links[e.near.Path.Technique]++
		if err := probe.Exchange(ctx, e.near, e.far, volume); err != nil {
			errs = append(errs, fmt.Errorf("rank %d and %d, linked by %v: %w", i, len(from)+i, e.near.Path, err))
		}
	}
	return errors.Join(errs...)
}

// ledger is the broker's counters since its start.
type ledger struct {
	broker.CounterStatus
	decisions int // plans for askers and targets, in that direction
}

// readLedger reads the broker's counters, and its decisions from its log.
func readLedger(ctx context.Context, g *grid.Grid) (ledger, error) {
	var l ledger
	status, err := g.Status(ctx, "broker")
	if err != nil {
		return l, err
	}
	text, err := json.Marshal(status["counters"])
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(text, &l.CounterStatus); err != nil {
		return l, fmt.Errorf("counters of the broker: %w", err)
	}
	for line := range strings.Lines(g.Daemon("broker").Log()) {
		var entry struct{ Msg, Asker, Target string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "plan decided" && entry.Asker == askers && entry.Target == targets {
			l.decisions++
		}
	}
	return l, nil
}
