//go:build !race

package mpilib

import (
	"context"
	"math"
	"runtime"
	"testing"
)

// Transfers, blocking or not, allocate nothing: the Requests of nonblocking ones come from slabs,
// and their handles go back to the engine. Two ranks of one process do the same number of
// transfers; the allocations of both are counted.
func TestTransfersAllocateNothing(t *testing.T) {
	t.Setenv(EnvDebug, "") // the debug mode allocates
	t.Setenv(EnvTrace, "")
	const window, rounds = 64, 200
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		peer := 1 - c.Rank()
		out, in, back := make([]int32, 4), make([]int32, 4), make([]int32, 1)
		var started [window]*Request
		var statuses [window]Status
		pass := func() error { // synchronizes the two ranks
			if c.Rank() == 0 {
				if err := Send(ctx, c, back, peer, 1); err != nil {
					return err
				}
			}
			if _, err := Recv(ctx, c, back, peer, 1); err != nil || c.Rank() == 0 {
				return err
			}
			return Send(ctx, c, back, peer, 1)
		}
		for _, round := range []struct {
			name string
			most float64 // of both ranks together
			do   func() error
		}{
			{"blocking", 0, pass},
			{"nonblocking", 2 * (window/slabRequests + 1), func() error {
				if c.Rank() == 1 { // no message is unexpected, which would have to be buffered
					if err := pass(); err != nil {
						return err
					}
				}
				for i := range started {
					if c.Rank() == 0 {
						started[i] = Irecv(c, in, peer, 2)
					} else {
						started[i] = Isend(c, out, peer, 2)
					}
				}
				if c.Rank() == 0 {
					if err := pass(); err != nil {
						return err
					}
				}
				for i, r := range started {
					if _, _, err := r.Test(); err != nil {
						return err
					}
					if i%2 == 0 {
						if _, err := r.Wait(ctx); err != nil {
							return err
						}
					}
				}
				if err := WaitallInto(ctx, statuses[:], started[:]...); err != nil {
					return err
				}
				return pass()
			}},
		} {
			for range rounds { // afterwards the memory for reuse exists
				if err := round.do(); err != nil {
					return err
				}
			}
			var failed error
			again := func() {
				if failed == nil {
					failed = round.do()
				}
			}
			if n := fewestAllocs(c, rounds, again); n > round.most {
				t.Errorf("%s: %v allocations in a round, want at most %v", round.name, n, round.most)
			}
			if failed != nil {
				return failed
			}
		}
		return nil
	})
}

// Repeated blocking collective calls allocate memory for their arguments only.
func TestCollectivesAllocateLittle(t *testing.T) {
	t.Setenv(EnvDebug, "")
	t.Setenv(EnvTrace, "")
	TestWorld(t, 2, func(ctx context.Context, c *Comm) error {
		in, out := make([]float64, 4), make([]float64, 4)
		for _, call := range []struct {
			name string
			most float64 // of both ranks together
			do   func() error
		}{
			{"barrier", 1, func() error { return Barrier(ctx, c) }},
			{"bcast", 5, func() error { return Bcast(ctx, c, in, 0) }},
			{"allreduce", 12, func() error { return Allreduce(ctx, c, in, out, Sum) }},
		} {
			var failed error
			do := func() {
				if err := call.do(); err != nil && failed == nil {
					failed = err
				}
			}
			const before, rounds = 100, 500
			for range before {
				do()
			}
			if n := fewestAllocs(c, rounds, do); n > call.most {
				t.Errorf("%s: %v allocations, want %v at most", call.name, n, call.most)
			}
			if failed != nil {
				return failed
			}
		}
		return nil
	})
}

// fewestAllocs returns, at rank 0, the number of allocations of all ranks in one concurrent round,
// and 0 at others. A wait that sleeps allocates, and so do the mesh's ticks, which on a busy machine is
// most rounds: it is the least of many single rounds.
func fewestAllocs(c *Comm, rounds int, do func()) float64 {
	fewest := uint64(math.MaxUint64)
	var before, after runtime.MemStats
	for range rounds {
		if c.Rank() != 0 {
			do()
			fewest = 0
			continue
		}
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		fewest = min(fewest, after.Mallocs-before.Mallocs)
	}
	return float64(fewest)
}
