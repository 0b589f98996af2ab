package mpilib

import (
	"context"
	"fmt"
	"sync/atomic"
)

// A gate opens once the given number of goroutines has reached it. Ranks of a test wait for each
// other at gates: one that fails before it blocks others no longer than their contexts last.
type gate struct {
	missing atomic.Int32
	open    chan struct{}
}

func newGate(n int32) *gate {
	g := &gate{open: make(chan struct{})}
	g.missing.Store(n)
	return g
}

func (g *gate) come() {
	if g.missing.Add(-1) == 0 {
		close(g.open)
	}
}

func (g *gate) wait(ctx context.Context) error {
	_, err := taken(ctx, g.open)
	return err
}

// taken returns the next value of c, or the zero value once it is closed.
func taken[T any](ctx context.Context, c <-chan T) (v T, err error) {
	select {
	case v = <-c:
		return v, nil
	case <-ctx.Done():
		return v, fmt.Errorf("waiting for another of the test: %w", ctx.Err())
	}
}
