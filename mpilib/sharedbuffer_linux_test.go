package mpilib

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/mpilib/internal/plan"
)

// seasoned makes enough calls for the ranks to have a shared buffer, if they can.
func seasoned(ctx context.Context, c *Comm) error {
	for range plan.SharedBufferAfter + 1 {
		if err := Barrier(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func sharedBufferOf(c *Comm) *plan.SharedBuffer {
	return c.core.Plan().SharedBuffer()
}

// Ranks of one node share a shared buffer after some calls, and keep it through later plans; the
// debug mode uses messages.
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

// If one rank has no shared memory, no rank has a shared buffer.
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

// When a rank dies, calls that wait for it on a shared buffer fail with ErrProcFailed on every
// rank, and so do later calls.
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
			ready := newGate(4) // a rank that needs nothing of the others could die while they are in the last Barrier
			TestWorld(t, 4, func(ctx context.Context, c *Comm) error {
				const dead = 2
				if err := seasoned(ctx, c); err != nil {
					return err
				}
				ready.come()
				if err := ready.wait(ctx); err != nil {
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
				c.Agree(ctx, 0) // none leaves before all know
				return errors.Join(fault, isFailure("Bcast", Bcast(ctx, c, buf(), c.Rank()), dead))
			})
		})
	}
}

// A rank that waits on a shared buffer gets an error when its communicator is revoked.
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

// If a rank cancels a call or gives invalid arguments, the other ranks do not wait for it, and
// later calls work.
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

// withForced sets the forced algorithms in the environment of one rank, or of all ranks for -1.
func withForced(list string, rank int) Option {
	return func(cfg *config) {
		lookup := cfg.lookup
		cfg.lookup = func(key string) (string, bool) {
			if key == EnvColl && (rank < 0 || cfg.place.Rank == rank) {
				return list, true
			}
			return lookup(key)
		}
	}
}

// withExplain makes rank 0 print its choices of algorithms.
func withExplain(out *bytes.Buffer) Option {
	return func(cfg *config) {
		if cfg.place.Rank == 0 {
			cfg.explain = out
		}
	}
}

// Every algorithm over shared memory carries out its collective correctly when it is forced, from
// the next call on.
func TestEveryAlgorithmOverSharedMemory(t *testing.T) {
	t.Setenv(EnvDebug, "")
	var out bytes.Buffer
	var want []string
	TestWorld(t, 4, func(ctx context.Context, c *Comm) error {
		for _, collective := range collectives.Operations() {
			for _, a := range collectives.Algorithms(collective) {
				if !a.Needs.Has(collectives.SharedMemory) {
					continue
				}
				if err := everyDeedWith(ctx, c, collective, a); err != nil {
					return err
				}
				if sharedBufferOf(c) == nil {
					return fmt.Errorf("%s is forced to %s, and there is no shared buffer", collective, a.Name)
				}
				if c.Rank() == 0 {
					want = append(want, fmt.Sprintf("isthmus coll: world: %s of ", collective))
				}
			}
		}
		return nil
	}, withExplain(&out))
	lines := strings.Split(out.String(), "\n")
	for _, prefix := range want {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix) && strings.HasSuffix(l, ": shared-buffer") }) {
			t.Errorf("no line of %q says that shared-buffer was used", prefix)
		}
	}
	if len(want) != 13 {
		t.Errorf("%d collectives have an algorithm over shared memory", len(want))
	}
}

// If the environment or a hint forces an algorithm over shared memory, the first call uses it, also
// on communicators created from others.
func TestSharedMemoryIsForced(t *testing.T) {
	t.Setenv(EnvDebug, "")
	const list = "allreduce=shared-buffer"
	oneNode := WithPlaces(func(int) (site, node string) { return "s", "n" })
	for name, opts := range map[string][]Option{
		"environment":           {withForced(list, -1)},
		"environment of rank 0": {withForced(list, 0), oneNode},
	} {
		var out bytes.Buffer
		t.Run(name, func(t *testing.T) {
			TestWorld(t, 3, func(ctx context.Context, c *Comm) error {
				once := func(c *Comm) error {
					got := []int{0}
					if err := Allreduce(ctx, c, []int{c.Rank()}, got, Sum[int]); err != nil || got[0] != 3 {
						return fmt.Errorf("%s: Allreduce gives %d: %w", c.Name(), got[0], err)
					}
					if sharedBufferOf(c) == nil {
						return fmt.Errorf("%s has no shared buffer", c.Name())
					}
					return nil
				}
				if err := once(c); err != nil {
					return err
				}
				d, err := c.Dup(ctx)
				if err != nil {
					return err
				}
				d.SetName("duplicate")
				return once(d)
			}, append(opts, withExplain(&out))...)
		})
		for _, comm := range []string{"world", "duplicate"} {
			if line := fmt.Sprintf("isthmus coll: %s: allreduce of 8 bytes, root 0: shared-buffer\n", comm); !strings.Contains(out.String(), line) {
				t.Errorf("%s: it tells %q, without %q", name, out.String(), line)
			}
		}
	}
	TestWorld(t, 3, func(ctx context.Context, c *Comm) error {
		info, err := NewInfo(HintColl, list)
		if err != nil {
			return err
		}
		d, err := c.DupWithInfo(ctx, info)
		if err != nil {
			return err
		}
		if err := Barrier(ctx, d); err != nil {
			return err
		}
		if sharedBufferOf(d) == nil || sharedBufferOf(c) != nil {
			return fmt.Errorf("shared buffers: %v with the hint, %v without", sharedBufferOf(d), sharedBufferOf(c))
		}
		return nil
	}, oneNode)
}

// If an algorithm over shared memory is forced for ranks on several nodes, the call fails on every
// rank and says why. Other calls, and calls of ranks of one node, succeed.
func TestSharedMemoryIsRefused(t *testing.T) {
	t.Setenv(EnvDebug, "")
	TestWorld(t, 4, func(ctx context.Context, c *Comm) error {
		err := Allreduce(ctx, c, []int{1}, []int{0}, Sum[int])
		const want = "allreduce: what is forced, shared-buffer needs ranks that are all on one node, and these are on several"
		if !errors.Is(err, collectives.ErrSharedMemory) || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("an allreduce of ranks on two nodes: %w", err)
		}
		if err := Barrier(ctx, c); err != nil {
			return err
		}
		node, err := c.Split(ctx, c.Rank()%2, 0)
		if err != nil {
			return err
		}
		got := []int{0}
		if err := Allreduce(ctx, node, []int{1}, got, Sum[int]); err != nil || got[0] != 2 {
			return fmt.Errorf("Allreduce on a node gives %d: %w", got[0], err)
		}
		if sharedBufferOf(node) == nil {
			return errors.New("the ranks of a node have no shared buffer")
		}
		return nil
	}, WithPlaces(layouts[4].place), withForced("allreduce=shared-buffer", 0))
}
