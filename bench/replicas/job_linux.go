package replicas

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab/wan/star"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// Timeouts.
const (
	joinBound  = 2 * time.Minute  // of a job's start
	orderBound = 10 * time.Minute // of an order: many times the duration of the slowest kernel
)

// A job is ranks with or without replicas, process i of which is at host first+i.
type job struct {
	ranks, replicas int
	primary         bool
	first           int
}

// A group is jobs that carry out the same orders at once.
type group struct{ all []*runner.Process }

// start starts the processes of jobs, which listen at ports from port on, and waits until all have joined.
func (r *run) start(ctx context.Context, port int, jobs ...job) (_ *group, err error) {
	g := new(group)
	defer func() {
		if err != nil {
			err = errors.Join(err, g.stop())
		}
	}()
	for i, j := range jobs {
		key, err := jobkey.New("bench")
		if err != nil {
			return nil, err
		}
		at := role{port: uint16(port + i), ranks: j.ranks, replicas: j.replicas, primary: j.primary}
		for q := range j.ranks * j.replicas {
			at.addr = append(at.addr, star.Addr(j.first+q))
		}
		for q := range at.addr {
			at.number = q
			p, err := runner.Start(ctx, r.hosts.Hosts[j.first+q], runner.Command{
				Args: append(r.Self[:len(r.Self):len(r.Self)], at.String()),
				Env:  []string{mpilib.EnvJobKey + "=" + key.String()}, Apart: true,
			})
			if err != nil {
				return nil, err
			}
			g.all = append(g.all, p)
		}
	}
	for _, p := range g.all {
		line, err := p.Line(joinBound)
		if err == nil && line != "ready" {
			err = fmt.Errorf("%v: said %q instead of being ready", p, line)
		}
		if err != nil {
			return nil, err
		}
	}
	return g, nil
}

// do makes all jobs carry out an order, and returns how many seconds passed until all processes had.
func (g *group) do(order string) (seconds float64, sent traffic, err error) {
	start := time.Now()
	for _, p := range g.all {
		if err := p.Tell(order); err != nil {
			return 0, sent, err
		}
	}
	for _, p := range g.all {
		var t traffic
		if err := p.Hear(orderBound, "ok", &t.sends, &t.data, &t.acks, &t.dataBytes, &t.acrossBytes); err != nil {
			return 0, sent, err
		}
		sent.add(t)
	}
	return time.Since(start).Seconds(), sent, nil
}

// stop ends the jobs: the end of its input tells each process.
func (g *group) stop() (err error) {
	for _, p := range g.all {
		p.CloseInput()
	}
	for _, p := range g.all {
		err = errors.Join(err, p.Stop())
	}
	return err
}
