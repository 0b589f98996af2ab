package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/points"
)

// Pending is a nonblocking call that creates an object. Safe for concurrent use.
type Pending[T any] struct {
	comm   *Comm
	name   string
	done   chan struct{}
	result T     // valid once done is closed
	err    error // valid once done is closed
}

// inBackground runs f in a goroutine that Finalize waits for; f ends with ctx
// and, since its transfers then fail, with the world.
func inBackground[T any](ctx context.Context, c *Comm, name string, f func(context.Context) (T, error)) *Pending[T] {
	p := &Pending[T]{comm: c, name: name, done: make(chan struct{})}
	c.core.Occupy(1)
	started := c.world.calls.Start(func() {
		defer close(p.done)
		defer c.core.Occupy(-1)
		p.result, p.err = f(ctx)
	})
	if !started {
		c.core.Occupy(-1)
		p.err = ErrFinalized
		close(p.done)
	}
	return p
}

// Wait returns the result of the call, or its error, once it is complete. If ctx is done before, it
// returns ctx's error and the call continues; Wait may be called again.
func (p *Pending[T]) Wait(ctx context.Context) (T, error) {
	select {
	case <-p.done:
	default:
		select {
		case <-p.done:
		case <-ctx.Done():
			var none T
			return none, p.comm.called(p.name, engine.Expired(p.comm.world.engine, fmt.Errorf("not complete: %w", ctx.Err())))
		}
	}
	return p.result, p.comm.called(p.name, p.err)
}

// Test reports whether the call is complete, and if so Wait's result.
func (p *Pending[T]) Test() (result T, done bool, err error) {
	if w := p.comm.world; w.replicated() {
		found, err := points.Indices(w.engine, points.Pending, func() ([]int, error) {
			select {
			case <-p.done:
				return []int{0}, nil
			default:
				return nil, nil
			}
		})
		if err != nil || len(found) == 0 {
			return result, false, err
		}
		result, err = p.Wait(context.Background())
		return result, true, err
	}
	select {
	case <-p.done:
		result, err = p.Wait(context.Background())
		return result, true, err
	default:
		return result, false, nil
	}
}

// Request returns a Request of the call, to be waited for together with others, after which take has got the result.
func (p *Pending[T]) Request(take func(T, error)) *Request {
	q, complete := grequest(p.comm, p.name)
	end := func() { <-p.done; take(p.result, p.err); complete(emptyStatus, p.err) }
	if !p.comm.world.calls.Start(end) {
		end() // after Finalize, no call is pending
	}
	return q
}
