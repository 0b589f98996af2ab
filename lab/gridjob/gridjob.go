// Package gridjob starts the ranks of a job at nodes of a grid that runs in a lab, as a
// user would who has a shell at each: by `isthmus run`. It knows neither what the ranks
// do nor how they are spoken to. It keeps no state but the file with the job's key.
package gridjob

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
)

// Public is the site that a world has beside those that it is asked for, with the
// broker and a proxy.
var Public = lab.Site{Name: "public", Preset: lab.Public, Nodes: []string{"broker", "proxy"}}

// Up builds sites, and Public, and starts an Isthmus there. self is the command line of
// this program, which has the daemons behind the word isthmus (isthmus-lab). The process went through
// lab.Enter. down ends all.
func Up(ctx context.Context, spec lab.Spec, self []string) (g *grid.Grid, down func() error, err error) {
	spec.Sites = append([]lab.Site{Public}, spec.Sites...)
	l, err := lab.Up(ctx, spec)
	if err != nil {
		return nil, nil, err
	}
	g, err = grid.Start(ctx, l, grid.Config{
		Binary: func(daemon string) []string { return with(self, "isthmus", daemon) },
		Broker: "public/broker", Proxies: []string{"public/proxy"},
	})
	if err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return g, func() error { return errors.Join(g.Close(), l.Close()) }, nil
}

// A Job is what to start where.
type Job struct {
	Grid  *grid.Grid
	Self  []string // command line of isthmus-lab, which has run behind the word isthmus
	Name  string
	Nodes []string // of each rank, "site/node"
	Argv  []string // of each rank
	Env   []string // beside this process's own
}

// Launchers returns a launcher for each row of ranks that are neighbours at one node, that
// of rank 0 first; none is started. forget removes the job's key, when all have ended.
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

// with returns a command line with more words, and leaves the first as it is.
func with(argv []string, words ...string) []string {
	return append(argv[:len(argv):len(argv)], words...)
}
