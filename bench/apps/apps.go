// Package apps is `isthmus-lab bench tsqr` and `isthmus-lab bench ray2mesh`: the curves that the
// QCG-OMPI article shows of these two applications, measured on closed sites in a lab with
// emulated distance; and `isthmus-lab bench aiac`, synchronous and asynchronous iterations there. Processors have an emulated speed, so that a small machine can stand for
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
	Env    []string      // of the ranks of Example, in addition to this process's own
	JSON   bool
	Out    io.Writer // for rows
	Err    io.Writer // for progress
}

// patience is the timeout of a job.
const patience = 10 * time.Minute

// spec returns this number of sites of one node each.
func (b Bed) spec(sites int) lab.Spec {
	spec := lab.Spec{WAN: lab.WAN{Default: wan.Shape{Delay: b.RTT / 2}}}
	for i := range sites {
		spec.Sites = append(spec.Sites, lab.Site{Name: site(i), Preset: b.Preset, Nodes: lab.Nodes(1)})
	}
	return spec
}

// onSites runs f on a grid with the sites of a spec.
func (b Bed) onSites(ctx context.Context, spec lab.Spec, f func(*grid.Grid) error) error {
	return b.onGrid(ctx, spec, nil, f)
}

// onGrid is onSites with settings of the daemons.
func (b Bed) onGrid(ctx context.Context, spec lab.Spec, settings map[string]map[string]any, f func(*grid.Grid) error) (err error) {
	g, down, err := gridjob.UpWith(ctx, spec, b.Self, grid.Config{Settings: settings})
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

// Example runs an application on the nodes and returns the objects that its rank 0 printed.
func Example[T any](ctx context.Context, b Bed, g *grid.Grid, nodes []string, name string, args ...string) ([]T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%s on %d ranks was not done after %v", name, len(nodes), patience))
	defer cancel()
	argv := append(append(b.Self[:len(b.Self):len(b.Self)], "example", name, "--json"), args...)
	out, err := gridjob.Job{Grid: g, Self: b.Self, Name: name, Nodes: nodes, Argv: argv, Env: b.Env}.Run(ctx)
	if err != nil {
		return nil, err
	}
	return objects[T](name, out)
}

// submitted likewise runs an application on hosts that the grid finds for a job profile.
func submitted[T any](ctx context.Context, b Bed, g *grid.Grid, profile, name string, args ...string) ([]T, error) {
	run := append(b.Self[:len(b.Self):len(b.Self)], "isthmus", "run")
	words := append([]string{"--profile", profile, "--installed", "--wait", "30s", b.Self[0]}, b.Self[1:]...)
	lines, _, err := gridjob.Submit(ctx, g, run, site(0)+"/n1", site(0)+"/n1", append(append(words, "example", name, "--json"), args...)...)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, l := range lines {
		if l.Rank == 0 {
			fmt.Fprintln(&out, l.Text)
		}
	}
	return objects[T](name, out.Bytes())
}

// objects decodes what an application printed.
func objects[T any](name string, out []byte) (results []T, err error) {
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
