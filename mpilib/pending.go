package mpilib

import (
	"context"
	"fmt"
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
			return none, p.comm.called(p.name, fmt.Errorf("not complete: %w", ctx.Err()))
		}
	}
	return p.result, p.comm.called(p.name, p.err)
}

// Test reports whether the call is complete, and if so Wait's result.
func (p *Pending[T]) Test() (result T, done bool, err error) {
	if w := p.comm.world; w.replicated() {
		found, err := w.indices(context.Background(), pointPending, func() ([]int, error) {
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
