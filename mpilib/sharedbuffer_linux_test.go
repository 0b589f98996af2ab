package mpilib

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib/internal/plan"
)

// seasoned has made so many calls that its ranks share a shared buffer, if they can.
func seasoned(ctx context.Context, c *Comm) error {
	for range plan.SharedBufferAfter + 1 {
		if err := Barrier(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func sharedBufferOf(c *Comm) *plan.SharedBuffer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.plans.Last().SharedBuffer()
}

// Ranks of one node share a shared buffer after some calls, and go on with it through later plans; the
// debug mode is for messages.
func TestSharedBufferIsUsed(t *testing.T) {
	t.Setenv(EnvDebug, "")
	TestWorld(t, 3, func(ctx context.Context, c *Comm) error {
		if err := seasoned(ctx, c); err != nil {
			return err
		}
		first := sharedBufferOf(c)
		if first == nil {
			return errors.New("there is no shared buffer")
		}
		for range plan.FirstComparison {
			if err := Barrier(ctx, c); err != nil {
				return err
			}
		}
		if sharedBufferOf(c) != first {
			return errors.New("the next plan has another shared buffer")
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if err := seasoned(ctx, d); err != nil {
			return err
		}
		if sharedBufferOf(d) == nil || sharedBufferOf(d) == first {
			return errors.New("the duplicate has no shared buffer of its own")
		}
		return nil
	})
}

// Where one rank has no shared memory, none has a shared buffer.
func TestNoSharedBuffer(t *testing.T) {
	for name, opt := range map[string]Option{
		"unshared":       func(cfg *config) { cfg.unshared = cfg.place.Rank == 1 },
		"on other nodes": WithPlaces(layouts[3].place),
	} {
		t.Run(name, func(t *testing.T) {
			TestWorld(t, 4, func(ctx context.Context, c *Comm) error {
				if err := seasoned(ctx, c); err != nil {
					return err
				}
				if sharedBufferOf(c) != nil {
					return errors.New("there is a shared buffer")
				}
				return Barrier(ctx, c)
			}, opt)
		})
	}
}

// What waits on a shared buffer for a rank that dies fails with its failure, on every rank, and so does
// what is called later.
func TestSharedBufferFailure(t *testing.T) {
	t.Setenv(EnvDebug, "")
	buf := func() []int { return make([]int, 4) }
	for name, call := range map[string]func(context.Context, *Comm) error{
		"Barrier": Barrier,
		"Bcast":   func(ctx context.Context, c *Comm) error { return Bcast(ctx, c, buf(), 1) },
		"Reduce":  func(ctx context.Context, c *Comm) error { return Reduce(ctx, c, buf(), buf(), Sum[int], 1) },
		"Allreduce": func(ctx context.Context, c *Comm) error {
			return Allreduce(ctx, c, make([]int, 1<<16), make([]int, 1<<16), Sum[int])
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			TestWorld(t, 4, func(ctx context.Context, c *Comm) error {
				const dead = 2
				if err := seasoned(ctx, c); err != nil {
					return err
				}
				var err error
				for i := 0; err == nil; i++ {
					if err = call(ctx, c); c.Rank() == dead && i == 10 {
						die(c)
						return err
					}
				}
				fault := isFailure(name, err, dead)
				c.Agree(ctx, 0) // nobody leaves before all know
				return errors.Join(fault, isFailure("Bcast", Bcast(ctx, c, buf(), c.Rank()), dead))
			})
		})
	}
}

// Who waits on a shared buffer is told that its communicator is revoked.
func TestSharedBufferRevoked(t *testing.T) {
	t.Setenv(EnvDebug, "")
	TestWorld(t, 3, func(ctx context.Context, c *Comm) error {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if err := seasoned(ctx, d); err != nil {
			return err
		}
		if c.Rank() == 0 {
			return d.Revoke()
		}
		if err := Barrier(ctx, d); !errors.Is(err, ErrRevoked) {
			return fmt.Errorf("Barrier: %w", err)
		}
		return nil
	})
}

// A rank that gives up a call, or whose arguments are wrong, leaves the others neither waiting nor
// out of step.
func TestSharedBufferGivenUp(t *testing.T) {
	t.Setenv(EnvDebug, "")
	given := newGate(1)
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		if err := seasoned(ctx, c); err != nil {
			return err
		}
		if c.Rank() == 1 {
			over, cancel := context.WithCancel(ctx)
			cancel()
			err := Barrier(over, c)
			given.come()
			if !errors.Is(err, context.Canceled) {
				return fmt.Errorf("the barrier that nobody else entered: %w", err)
			}
			if err := Alltoall(ctx, c, make([]int, 3), make([]int, 3)); !errors.Is(err, ErrCount) {
				return fmt.Errorf("3 elements for 2 ranks: %w", err)
			}
		} else {
			if err := given.wait(ctx); err != nil {
				return err
			}
			if err := Barrier(ctx, c); err != nil {
				return fmt.Errorf("the barrier that the other had entered: %w", err)
			}
			if err := Alltoall(ctx, c, make([]int, 4), make([]int, 4)); !errors.Is(err, plan.ErrGivenUp) {
				return fmt.Errorf("a call that the other has not made: %w", err)
			}
		}
		got := []int{0}
		if err := Allreduce(ctx, c, []int{c.Rank() + 1}, got, Sum[int]); err != nil || got[0] != 3 {
			return fmt.Errorf("Allreduce gives %d: %w", got[0], err)
		}
		return expect(Bcast(ctx, c, make([]int, 1+c.Rank()), 0), []error{nil, ErrCount}[c.Rank()])
	})
}
