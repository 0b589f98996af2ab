// Package apps is `isthmus-lab bench tsqr` and `isthmus-lab bench ray2mesh`: the curves that the
// QCG-OMPI article shows of these two applications, measured on closed sites in a lab with
// emulated distance. Processors have an emulated speed, so that a small machine can stand for
// many. The applications are those of examples/, which verify their results and count their
// messages; this package starts them and makes figures of their output. It keeps no state.
package apps

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/lab/gridjob"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

// Bed is the environment in which applications run.
type Bed struct {
	RTT    time.Duration // between sites
	Preset string        // of the sites; a name of package lab
	Self   []string      // command line of this program
	JSON   bool
	Out    io.Writer // for rows
	Err    io.Writer // for progress
}

// patience is the timeout of a job.
const patience = 10 * time.Minute

// on runs f on a grid with this number of sites of one node each.
func (b Bed) on(ctx context.Context, sites int, f func(*grid.Grid) error) (err error) {
	spec := lab.Spec{WAN: lab.WAN{Default: wan.Shape{Delay: b.RTT / 2}}}
	for i := range sites {
		spec.Sites = append(spec.Sites, lab.Site{Name: site(i), Preset: b.Preset, Nodes: lab.Nodes(1)})
	}
	g, down, err := gridjob.Up(ctx, spec, b.Self)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, down()) }()
	return f(g)
}

func site(i int) string { return fmt.Sprintf("s%d", i+1) }

// spread returns the nodes of this number of ranks, distributed evenly over the first sites.
func spread(ranks, sites int) []string {
	nodes := make([]string, ranks)
	for r := range nodes {
		nodes[r] = site(r*sites/ranks) + "/n1"
	}
	return nodes
}

// example runs an application on the nodes and returns the objects that its rank 0 printed.
func example[T any](ctx context.Context, b Bed, g *grid.Grid, nodes []string, name string, args ...string) (results []T, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%s on %d ranks was not done after %v", name, len(nodes), patience))
	defer cancel()
	argv := append(append(b.Self[:len(b.Self):len(b.Self)], "example", name, "--json"), args...)
	out, err := gridjob.Job{Grid: g, Self: b.Self, Name: name, Nodes: nodes, Argv: argv}.Run(ctx)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var r T
		switch err := d.Decode(&r); {
		case errors.Is(err, io.EOF):
			return results, nil
		case err != nil:
			return nil, fmt.Errorf("%s printed something other than a result: %w", name, err)
		}
		results = append(results, r)
	}
}
