// Package gridjob starts the ranks of a job at nodes of a grid that runs in a lab, as a user with a
// shell at each would: by `isthmus run`. It knows neither what the ranks do nor how they are
// controlled. Its only state is the file with the job's key.
package gridjob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
)

// Up builds sites, and grid.Public, and starts an Isthmus there. self is the command line of this
// program, which runs the daemons after the argument isthmus (isthmus-lab). The process must have
// gone through lab.Enter. down ends everything.
func Up(ctx context.Context, spec lab.Spec, self []string) (g *grid.Grid, down func() error, err error) {
	return UpWith(ctx, spec, self, grid.Config{})
}

// UpWith is Up with a configuration of the grid, which does not say how its daemons are run.
func UpWith(ctx context.Context, spec lab.Spec, self []string, c grid.Config) (g *grid.Grid, down func() error, err error) {
	c.Binary = func(daemon string) []string { return with(self, "isthmus", daemon) }
	return grid.Up(ctx, spec, c)
}

// A Job describes the processes to start and their nodes.
type Job struct {
	Grid  *grid.Grid
	Self  []string // command line of isthmus-lab, which has run after the argument isthmus
	Name  string
	Nodes []string // of each rank, "site/node"
	Argv  []string // of each rank
	Env   []string // in addition to this process's own
}

// Launchers returns a launcher for each run of consecutive ranks at one node, that of rank 0 first;
// none is started. forget removes the job's key when all have ended.
func (j Job) Launchers(ctx context.Context) (all []*lab.Cmd, forget func() error, err error) {
	key, err := jobkey.New(j.Name)
	if err != nil {
		return nil, nil, err
	}
	file, err := os.CreateTemp(lab.Dir(), j.Name+"-*.key")
	if err != nil {
		return nil, nil, err
	}
	_, err = file.WriteString(key.String())
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, nil, errors.Join(err, os.Remove(file.Name()))
	}
	for first := 0; first < len(j.Nodes); {
		node, last := j.Nodes[first], first
		for last+1 < len(j.Nodes) && j.Nodes[last+1] == node {
			last++
		}
		argv := with(j.Self, "isthmus", "run", "--key", file.Name(), "--size", fmt.Sprint(len(j.Nodes)), "--ranks", fmt.Sprintf("%d-%d", first, last),
			"--helper", j.Grid.Socket(node), "--label", "", "--")
		argv = append(argv, j.Argv...)
		cmd := j.Grid.Lab.Host(node).Command(ctx, argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), j.Env...)
		all = append(all, cmd)
		first = last + 1
	}
	return all, func() error { return os.Remove(file.Name()) }, nil
}

// Run runs the ranks, and returns what the launcher of rank 0 printed when all have ended well.
func (j Job) Run(ctx context.Context) (printed []byte, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	launchers, forget, err := j.Launchers(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, forget()) }()
	out, said, errs := make([]bytes.Buffer, len(launchers)), make([]bytes.Buffer, len(launchers)), make([]error, len(launchers))
	var running sync.WaitGroup
	for i, cmd := range launchers {
		cmd.Stdout, cmd.Stderr = &out[i], &said[i]
		running.Go(func() {
			if err := cmd.Run(); err != nil {
				errs[i] = fmt.Errorf("%s: the ranks of launcher %d: %w: %s", j.Name, i, err, said[i].Bytes())
				cancel()
			}
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return out[0].Bytes(), nil
}

// with returns a command line with more arguments, without changing argv.
func with(argv []string, words ...string) []string {
	return append(argv[:len(argv):len(argv)], words...)
}
