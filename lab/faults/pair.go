package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/lab/grid"
)

// A pair is the two processes of a link, seen from outside.
type pair struct {
	ends [2]*process
}

// A process is one of them.
type process struct {
	name   string
	cmd    *lab.Cmd
	in     io.WriteCloser
	orders *json.Encoder
	stderr bytes.Buffer
	read   sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	latest  report
	line    timeline
	final   *final
	err     error         // why there will be no final
	changed chan struct{} // closed and replaced with every report
}

// startPair starts a pair of a new job.
func startPair(ctx context.Context, g *grid.Grid, command []string, idle bool, rest time.Duration) (*pair, error) {
	key, err := jobkey.New("break")
	if err != nil {
		return nil, err
	}
	p := new(pair)
	seed := rand.Uint64()
	for rank, node := range []string{sender: askerNode, receiver: targetNode} {
		e := &process{name: fmt.Sprintf("rank %d at %s", rank, node), changed: make(chan struct{})}
		p.ends[rank] = e
		r := role{Socket: g.Socket(node), Key: key.String(), Rank: uint32(rank), Seed: seed, Idle: idle, Pause: rest}
		if err := e.start(ctx, g.Lab.Host(node), command, r); err != nil {
			p.ends[rank] = nil
			return nil, errors.Join(err, p.kill())
		}
	}
	return p, nil
}

func (e *process) start(ctx context.Context, at *lab.Host, command []string, r role) (err error) {
	e.cmd = at.Command(ctx, command[0], command[1:]...)
	e.cmd.Stderr = &e.stderr
	if e.in, err = e.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := e.cmd.Start(); err != nil {
		return err
	}
	e.orders = json.NewEncoder(e.in)
	e.read.Go(func() { e.listen(out) })
	return e.order(order{Start: &r})
}

func (e *process) order(o order) error {
	if err := e.orders.Encode(o); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return nil
}

// listen reads the process's reports until it ends.
func (e *process) listen(out io.Reader) {
	d := json.NewDecoder(out)
	for {
		var r report
		err := d.Decode(&r)
		e.mu.Lock()
		if err != nil {
			if e.err == nil && e.final == nil {
				e.err = fmt.Errorf("%s: it ended early", e.name)
			}
		} else {
			e.take(r)
		}
		close(e.changed)
		e.changed = make(chan struct{})
		e.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// take records a report. The caller must hold mu.
func (e *process) take(r report) {
	e.line.samples = append(e.line.samples, sampleOf(e.latest, r))
	e.line.gaps = append(e.line.gaps, r.Gaps...)
	e.latest = r
	if r.Final != nil {
		e.final = r.Final
	}
	if r.Error != "" {
		e.err = fmt.Errorf("%s: %s", e.name, r.Error)
	}
}

// until waits until ok, which is called with mu held, returns true, or the process fails.
func (e *process) until(ctx context.Context, what string, ok func(*process) bool) error {
	for {
		e.mu.Lock()
		done, err, changed := ok(e), e.err, e.changed
		e.mu.Unlock()
		switch {
		case err != nil:
			return err
		case done:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: waited until %s: %w", e.name, what, context.Cause(ctx))
		case <-changed:
		}
	}
}

// linked waits until both have the link.
func (p *pair) linked(ctx context.Context) error {
	for _, e := range p.ends {
		if err := e.until(ctx, "it has a link", func(e *process) bool { return e.latest.Linked }); err != nil {
			return err
		}
	}
	return nil
}

// timeline returns what the receiver has reported so far.
func (p *pair) timeline() timeline {
	e := p.ends[receiver]
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.line
}

// finish ends the stream and the processes, and returns their results.
func (p *pair) finish(ctx context.Context) (sent, got *final, err error) {
	if err := p.ends[sender].order(order{End: true}); err != nil {
		return nil, nil, err
	}
	for _, e := range p.ends {
		if err := e.until(ctx, "the stream has ended", func(e *process) bool { return e.final != nil }); err != nil {
			return nil, nil, err
		}
	}
	return p.ends[sender].final, p.ends[receiver].final, nil
}

// leave bounds the end of a finished process.
const leave = 10 * time.Second

// kill ends the processes, which may have ended by themselves. Its error is what they wrote to the
// standard error.
func (p *pair) kill() error {
	var errs []error
	for _, e := range p.ends {
		if e == nil {
			continue
		}
		e.in.Close() // without orders it ends
		hung := time.AfterFunc(leave, func() { e.cmd.Process.Kill() })
		e.read.Wait()
		e.cmd.Wait()
		if !hung.Stop() {
			errs = append(errs, fmt.Errorf("%s did not end within %v", e.name, leave))
		}
		if e.stderr.Len() > 0 {
			errs = append(errs, fmt.Errorf("%s wrote: %s", e.name, bytes.TrimSpace(e.stderr.Bytes())))
		}
	}
	return errors.Join(errs...)
}
