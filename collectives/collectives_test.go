package collectives_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
)

// deadline is reached only in a deadlock.
const deadline = 2 * time.Minute

// run makes every rank call f; a rank that fails leaves the world, as a process that gives up
// would. It returns the ranks' errors.
func run(t *testing.T, w *world, comms []*memComm, f func(ctx context.Context, c collectives.Comm, rank int) error) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	errs := make([]error, len(comms))
	var ranks sync.WaitGroup
	for r, c := range comms {
		ranks.Go(func() {
			errs[r] = f(ctx, c, r)
			if n := w.unmatched(r); n != 0 {
				t.Errorf("rank %d returned with %d transfers under way", r, n)
			}
			if errs[r] != nil {
				w.leave(r)
			}
		})
	}
	ranks.Wait()
	if ctx.Err() != nil {
		t.Fatalf("deadlock: %v", errs)
	}
	return errs
}

func (w *world) comms() []*memComm {
	out := make([]*memComm, len(w.gone))
	for r := range out {
		out[r] = w.comm(r)
	}
	return out
}

func rooted(collective operation.Operation) bool {
	switch collective {
	case operation.Bcast, operation.Reduce, operation.Gather, operation.Gatherv, operation.Scatter, operation.Scatterv:
		return true
	}
	return false
}

func reduces(collective operation.Operation) bool {
	switch collective {
	case operation.Reduce, operation.Allreduce, operation.ReduceScatter, operation.ReduceScatterBlock, operation.Scan, operation.Exscan:
		return true
	}
	return false
}

func TestEveryAlgorithmAgainstTheOracle(t *testing.T) {
	for _, collective := range collectives.Operations() {
		for _, alg := range collectives.Algorithms(collective) {
			t.Run(collective.String()+"/"+alg.Name, func(t *testing.T) {
				sizes := []int{1, 2, 3, 5, 8}
				if *every {
					sizes = append(sizes, 4, 7, 12, 17)
				}
				for _, p := range sizes {
					checkAlgorithm(t, alg, p)
				}
			})
		}
	}
}

// checkAlgorithm tries roots, sizes and all operators that apply; the simulation tries more of
// them.
func checkAlgorithm(t *testing.T, alg collectives.Algorithm, p int) {
	roots, ops := 1, []collectives.Op{{}}
	if rooted(alg.Collective) {
		roots = p
	}
	if reduces(alg.Collective) {
		ops = []collectives.Op{sum32}
		if alg.Needs != collectives.Commutative {
			ops = append(ops, compose)
		}
	}
	for root := 0; root < roots; root += max(1, roots/3) {
		for _, n := range []int{0, 3, 101} {
			for _, op := range ops {
				rng := rand.New(rand.NewPCG(uint64(p*1000+n), uint64(root)))
				e := oracles[alg.Collective](rng, p, n, root, op)
				check(t, fmt.Sprintf("p=%d root=%d n=%d op=%s", p, root, n, op.Name), alg.Collective, e, runnerOf(alg, p))
			}
		}
	}
}

// runnerOf runs an algorithm among p ranks, with memory that they share if it needs that.
func runnerOf(alg collectives.Algorithm, p int) runner {
	if !alg.Needs.Has(collectives.SharedMemory) {
		return alg.Run
	}
	b := newMemSharedBuffer(p)
	return func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return alg.Run(ctx, &sharedBufferComm{memComm: c.(*memComm), b: b, piece: 8 << 10}, a)
	}
}

type runner func(context.Context, collectives.Comm, *collectives.Args) error

func check(t *testing.T, label string, collective operation.Operation, e exercise, run1 runner) {
	t.Helper()
	w := newWorld(len(e.args))
	checkIn(t, label, collective, w, w.comms(), e, run1)
}

// checkIn is check among ranks that may have made other calls before.
func checkIn(t *testing.T, label string, collective operation.Operation, w *world, comms []*memComm, e exercise, run1 runner) {
	t.Helper()
	sends := make([][]byte, len(e.args))
	for r, a := range e.args {
		sends[r] = bytes.Clone(a.Send)
	}
	errs := run(t, w, comms, func(ctx context.Context, c collectives.Comm, rank int) error {
		return run1(ctx, c, e.args[rank])
	})
	for r, a := range e.args {
		want := e.want[r]
		if idle(collective, r, a.Root) {
			want = canaries(len(want))
		}
		switch {
		case errs[r] != nil:
			t.Fatalf("%s: rank %d: %v", label, r, errs[r])
		case !bytes.Equal(a.Recv, want):
			t.Fatalf("%s: rank %d has\n%x, want\n%x", label, r, a.Recv, want)
		case !bytes.Equal(a.Send, sends[r]):
			t.Fatalf("%s: rank %d: the send buffer changed", label, r)
		}
	}
}

// calls are the functions of calls.go, by collective.
var calls = map[operation.Operation]runner{
	operation.Barrier: func(ctx context.Context, c collectives.Comm, _ *collectives.Args) error {
		return collectives.Barrier(ctx, c)
	},
	operation.Bcast: func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return collectives.Bcast(ctx, c, a.Recv, a.Root)
	},
	operation.Reduce: func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return collectives.Reduce(ctx, c, a.Send, a.Recv, a.Op, a.Root)
	},
	operation.Allreduce: func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return collectives.Allreduce(ctx, c, a.Send, a.Recv, a.Op)
	},
	operation.Gather: func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return collectives.Gather(ctx, c, a.Send, a.Recv, a.Root)
	},
	operation.Gatherv: func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return collectives.Gatherv(ctx, c, a.Send, a.Recv, a.RecvCounts, a.RecvDispls, a.Root)
	},
	operation.Allgather: func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return collectives.Allgather(ctx, c, a.Send, a.Recv)
	},
	operation.Scatter: func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return collectives.Scatter(ctx, c, a.Send, a.Recv, a.Root)
	},
	operation.Alltoall: func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return collectives.Alltoall(ctx, c, a.Send, a.Recv)
	},
	operation.Alltoallv: func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return collectives.Alltoallv(ctx, c, a.Send, a.SendCounts, a.SendDispls, a.Recv, a.RecvCounts, a.RecvDispls)
	},
	operation.Allgatherv: func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return collectives.Allgatherv(ctx, c, a.Send, a.Recv, a.RecvCounts, a.RecvDispls)
	},
	operation.Scatterv: func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return collectives.Scatterv(ctx, c, a.Send, a.SendCounts, a.SendDispls, a.Recv, a.Root)
	},
	operation.ReduceScatter: func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return collectives.ReduceScatter(ctx, c, a.Send, a.Recv, a.RecvCounts, a.Op)
	},
	operation.ReduceScatterBlock: func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return collectives.ReduceScatterBlock(ctx, c, a.Send, a.Recv, a.Op)
	},
	operation.Scan: func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return collectives.Scan(ctx, c, a.Send, a.Recv, a.Op)
	},
	operation.Exscan: func(ctx context.Context, c collectives.Comm, a *collectives.Args) error {
		return collectives.Exscan(ctx, c, a.Send, a.Recv, a.Op)
	},
}

// The functions of calls.go must pass each argument to its own place and reach
// every line of the table.
func TestCallsChooseAndRun(t *testing.T) {
	for _, collective := range collectives.Operations() {
		sizes := []int{1, 5}
		if *every {
			sizes = append(sizes, 2, 9)
		}
		for _, p := range sizes {
			for _, n := range []int{2, 20_000} {
				op := sum32
				rng := rand.New(rand.NewPCG(uint64(p), uint64(n)))
				e := oracles[collective](rng, p, n, p/2, op)
				check(t, fmt.Sprintf("%s p=%d n=%d", collective, p, n), collective, e, calls[collective])
			}
		}
	}
}

func TestReduceInPlace(t *testing.T) {
	for _, alg := range append(collectives.Algorithms(operation.Reduce), collectives.Algorithms(operation.Allreduce)...) {
		for p := 1; p <= 9; p++ {
			e := oracles[alg.Collective](rand.New(rand.NewPCG(1, uint64(p))), p, 10, 0, sum32)
			w, run1 := newWorld(p), runnerOf(alg, p)
			errs := run(t, w, w.comms(), func(ctx context.Context, c collectives.Comm, rank int) error {
				a := e.args[rank]
				a.Recv = a.Send
				return run1(ctx, c, a)
			})
			for r, a := range e.args {
				if errs[r] != nil {
					t.Fatalf("%s/%s p=%d rank %d: %v", alg.Collective, alg.Name, p, r, errs[r])
				}
				if (alg.Collective == operation.Allreduce || r == 0) && !bytes.Equal(a.Recv, e.want[r]) {
					t.Fatalf("%s/%s p=%d: rank %d has %x, want %x", alg.Collective, alg.Name, p, r, a.Recv, e.want[r])
				}
			}
		}
	}
}

// Sums of floats depend on the order. Ranks must agree to the bit, and a
// second run, with its own timing, must agree with the first.
func TestFloatSumsAreDeterministic(t *testing.T) {
	sum := collectives.Op{Name: "sum", Elem: 8, Commutative: true, Apply: func(inout, in []byte) error {
		for i := 0; i < len(in); i += 8 {
			x := math.Float64frombits(binary.LittleEndian.Uint64(in[i:]))
			y := math.Float64frombits(binary.LittleEndian.Uint64(inout[i:]))
			binary.LittleEndian.PutUint64(inout[i:], math.Float64bits(x+y))
		}
		return nil
	}}
	const n = 40
	once := func(t *testing.T, alg collectives.Algorithm, p int) []byte {
		rng := rand.New(rand.NewPCG(7, uint64(p)))
		recv := make([][]byte, p)
		send := make([][]byte, p)
		for r := range p {
			recv[r], send[r] = make([]byte, 8*n), make([]byte, 8*n)
			for i := range n {
				x := math.Ldexp(rng.Float64()-0.5, rng.IntN(80))
				binary.LittleEndian.PutUint64(send[r][8*i:], math.Float64bits(x))
			}
		}
		w, run1 := newWorld(p), runnerOf(alg, p)
		errs := run(t, w, w.comms(), func(ctx context.Context, c collectives.Comm, rank int) error {
			return run1(ctx, c, &collectives.Args{Send: send[rank], Recv: recv[rank], Op: sum})
		})
		for r := range p {
			if errs[r] != nil {
				t.Fatal(errs[r])
			}
			if !bytes.Equal(recv[r], recv[0]) {
				t.Fatalf("%s p=%d: ranks 0 and %d differ", alg.Name, p, r)
			}
		}
		return recv[0]
	}
	for _, alg := range collectives.Algorithms(operation.Allreduce) {
		for _, p := range []int{2, 3, 4, 6, 9, 17} {
			first := once(t, alg, p)
			for range 2 {
				if !bytes.Equal(first, once(t, alg, p)) {
					t.Fatalf("%s p=%d: two runs differ", alg.Name, p)
				}
			}
		}
	}
}

// A barrier that returned early would let a rank pass before the last one entered.
func TestBarrierHoldsUntilTheLast(t *testing.T) {
	for p := 2; p <= 9; p++ {
		for late := range p {
			w := newWorld(p)
			var mu sync.Mutex
			entered, early := 0, 0
			others := make(chan struct{}) // closed when all but the late one are waiting inside
			errs := run(t, w, w.comms(), func(ctx context.Context, c collectives.Comm, rank int) error {
				if rank == late {
					select {
					case <-others:
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				mu.Lock()
				if entered++; entered == p-1 {
					close(others)
				}
				mu.Unlock()
				err := collectives.Barrier(ctx, c)
				mu.Lock()
				if entered < p {
					early++
				}
				mu.Unlock()
				return err
			})
			if err := errors.Join(errs...); err != nil || early != 0 {
				t.Fatalf("p=%d late=%d: %d ranks left early, %v", p, late, early, err)
			}
		}
	}
}

// A fault at any transfer of any rank must end the call on every rank, with
// the cause on the faulty rank and nothing left in flight (run checks that).
func TestFaultEndsTheCallEverywhere(t *testing.T) {
	for _, collective := range collectives.Operations() {
		for _, alg := range scheduled(collective) {
			t.Run(collective.String()+"/"+alg.Name, func(t *testing.T) {
				sizes := []int{2, 5}
				if *every {
					sizes = append(sizes, 3, 8)
				}
				for _, p := range sizes {
					for faulty := range p {
						stride := 1 + p/5 // every transfer where there are few, a sample where there are many
						for at := faulty % stride; faultAt(t, alg, p, faulty, at); at += stride {
						}
					}
				}
			})
		}
	}
}

// faultAt reports whether the faulty rank reached transfer number at.
func faultAt(t *testing.T, alg collectives.Algorithm, p, faulty, at int) bool {
	t.Helper()
	op := sum32
	e := oracles[alg.Collective](rand.New(rand.NewPCG(3, 3)), p, 8, p-1, op)
	w := newWorld(p)
	comms := w.comms()
	comms[faulty].failAt = at
	errs := run(t, w, comms, func(ctx context.Context, c collectives.Comm, rank int) error {
		return alg.Run(ctx, c, e.args[rank])
	})
	fired := comms[faulty].failed
	for r, err := range errs {
		switch {
		case !fired && err != nil:
			t.Fatalf("p=%d: no fault, yet rank %d: %v", p, r, err)
		case fired && r == faulty && !errors.Is(err, errInjected):
			t.Fatalf("p=%d faulty=%d at=%d: its error is %v", p, faulty, at, err)
		case r != faulty && err != nil && !errors.Is(err, errGone):
			t.Fatalf("p=%d faulty=%d at=%d: rank %d: %v", p, faulty, at, r, err)
		}
	}
	return fired
}

func TestOperatorFaultIsReported(t *testing.T) {
	bad := errors.New("overflow")
	op := collectives.Op{Name: "picky", Elem: 1, Commutative: true, Apply: func(_, _ []byte) error { return bad }}
	for _, alg := range append(collectives.Algorithms(operation.Reduce), collectives.Algorithms(operation.Allreduce)...) {
		w, run1 := newWorld(4), runnerOf(alg, 4)
		errs := run(t, w, w.comms(), func(ctx context.Context, c collectives.Comm, _ int) error {
			return run1(ctx, c, &collectives.Args{Send: make([]byte, 8), Recv: make([]byte, 8), Op: op})
		})
		if err := errors.Join(errs...); !errors.Is(err, bad) || !strings.Contains(err.Error(), `operator "picky"`) {
			t.Errorf("%s/%s: %v", alg.Collective, alg.Name, err)
		}
	}
}

// If a rank never enters, those waiting for it return when the context ends.
func TestContextEndsTheWait(t *testing.T) {
	const p, absent = 6, 2
	for _, collective := range collectives.Operations() {
		for _, alg := range scheduled(collective) {
			e := oracles[collective](rand.New(rand.NewPCG(5, 5)), p, 4, absent, sum32)
			w := newWorld(p)
			present, cancel := context.WithCancel(t.Context())
			var stuck sync.WaitGroup
			errs := make([]error, p)
			for r, c := range w.comms() {
				if r == absent {
					continue
				}
				stuck.Go(func() {
					errs[r] = alg.Run(present, c, e.args[r])
					if n := w.unmatched(r); n != 0 {
						t.Errorf("%s/%s: rank %d returned with %d transfers under way", collective, alg.Name, r, n)
					}
				})
			}
			cancel()
			stuck.Wait()
			ended := 0
			for _, err := range errs {
				if errors.Is(err, context.Canceled) {
					ended++
				} else if err != nil {
					t.Errorf("%s/%s: %v", collective, alg.Name, err)
				}
			}
			if ended == 0 {
				t.Errorf("%s/%s: nobody waited for rank %d", collective, alg.Name, absent)
			}
		}
	}
}

// Ranks that disagree about a length get an error that names the transfer.
func TestLengthsThatDisagree(t *testing.T) {
	w := newWorld(2)
	errs := run(t, w, w.comms(), func(ctx context.Context, c collectives.Comm, rank int) error {
		return collectives.Bcast(ctx, c, make([]byte, 8+rank), 0)
	})
	if !errors.Is(errs[1], errLength) {
		t.Fatalf("rank 1: %v", errs[1])
	}
	want := "collectives: bcast (binomial) on rank 1 of 2: receive 9 bytes from rank 0: "
	if !strings.HasPrefix(errs[1].Error(), want) {
		t.Errorf("error is\n%s, want it to begin\n%s", errs[1], want)
	}
}

func TestBadArgumentsAreRefusedBeforeSending(t *testing.T) {
	op := sum32
	b := func(n int) []byte { return make([]byte, n) }
	ints := func(v ...int) []int { return v }
	calls := map[string]func(context.Context, collectives.Comm) error{
		"root 2 of 2 ranks":  func(ctx context.Context, c collectives.Comm) error { return collectives.Bcast(ctx, c, b(1), 2) },
		"root -1 of 2 ranks": func(ctx context.Context, c collectives.Comm) error { return collectives.Gather(ctx, c, nil, nil, -1) },
		"receive buffer has 4 bytes, want 8": func(ctx context.Context, c collectives.Comm) error {
			return collectives.Allreduce(ctx, c, b(8), b(4), op)
		},
		"vector of 6 bytes is not whole elements": func(ctx context.Context, c collectives.Comm) error {
			return collectives.Reduce(ctx, c, b(6), b(6), op, 0)
		},
		"has no Apply": func(ctx context.Context, c collectives.Comm) error {
			return collectives.Allreduce(ctx, c, nil, nil, collectives.Op{Elem: 1})
		},
		"has elements of 0 bytes": func(ctx context.Context, c collectives.Comm) error {
			return collectives.Allreduce(ctx, c, nil, nil, collectives.Op{Apply: op.Apply})
		},
		"receive buffer has 7 bytes, want 6":    func(ctx context.Context, c collectives.Comm) error { return collectives.Allgather(ctx, c, b(3), b(7)) },
		"send buffer has 5 bytes, want 6":       func(ctx context.Context, c collectives.Comm) error { return collectives.Scatter(ctx, c, b(5), b(3), 0) },
		"send buffer of 3 bytes is not 2 equal": func(ctx context.Context, c collectives.Comm) error { return collectives.Alltoall(ctx, c, b(3), b(3)) },
		"receive buffer has 2 bytes, want 4":    func(ctx context.Context, c collectives.Comm) error { return collectives.Alltoall(ctx, c, b(4), b(2)) },
		"1 receive counts and 2 displacements": func(ctx context.Context, c collectives.Comm) error {
			return collectives.Gatherv(ctx, c, nil, nil, ints(0), ints(0, 0), 0)
		},
		"root's own send buffer has 1 bytes, want 2": func(ctx context.Context, c collectives.Comm) error {
			return collectives.Gatherv(ctx, c, b(1), b(4), ints(2, 2), ints(0, 2), 0)
		},
		"block of rank 1, 2 bytes at 3": func(ctx context.Context, c collectives.Comm) error {
			return collectives.Gatherv(ctx, c, b(2), b(4), ints(2, 2), ints(0, 3), 0)
		},
		"block of rank 1, 9223372036854775807 bytes": func(ctx context.Context, c collectives.Comm) error {
			return collectives.Gatherv(ctx, c, b(2), b(4), ints(2, math.MaxInt), ints(0, 3), 0)
		},
		"send block of rank 0, -1 bytes": func(ctx context.Context, c collectives.Comm) error {
			return collectives.Alltoallv(ctx, c, nil, ints(-1, 0), ints(0, 0), nil, ints(0, 0), ints(0, 0))
		},
		"receive block of rank 0, 0 bytes at -1": func(ctx context.Context, c collectives.Comm) error {
			return collectives.Alltoallv(ctx, c, nil, ints(0, 0), ints(0, 0), nil, ints(0, 0), ints(-1, 0))
		},
		"own receive block has 0 bytes, want 1": func(ctx context.Context, c collectives.Comm) error {
			return collectives.Alltoallv(ctx, c, b(1), ints(1, 0), ints(0, 0), nil, ints(0, 0), ints(0, 0))
		},
		"needs a commutative operator": func(ctx context.Context, c collectives.Comm) error {
			return forced(ctx, c, operation.Allreduce, "ring", compose)
		},
		"not an algorithm of the table": func(ctx context.Context, c collectives.Comm) error {
			return collectives.Algorithm{}.Run(ctx, c, &collectives.Args{})
		},
	}
	for want, call := range calls {
		w := newWorld(2)
		c := w.comm(0)
		err := call(t.Context(), c)
		if !errors.Is(err, collectives.ErrArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("want an argument error with %q, have %v", want, err)
		}
		if c.posted != 0 {
			t.Errorf("%q: %d transfers were started", want, c.posted)
		}
	}
}

func forced(ctx context.Context, c collectives.Comm, collective operation.Operation, name string, op collectives.Op) error {
	alg, err := collectives.Find(collective, name)
	if err != nil {
		return err
	}
	return alg.Run(ctx, c, &collectives.Args{Op: op})
}

// When one transfer of an exchange has failed, the others are cancelled at once, though their peers
// are alive and have not posted theirs yet.
func TestFailedTransferGivesUpItsCompanions(t *testing.T) {
	for _, collective := range []operation.Operation{operation.Barrier, operation.Allgather, operation.Alltoall, operation.Alltoallv} {
		for _, alg := range scheduled(collective) {
			e := oracles[collective](rand.New(rand.NewPCG(9, 9)), 3, 8, 0, sum32)
			w := newWorld(3)
			c := w.comm(0)
			c.failAt = 0
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			err := alg.Run(ctx, c, e.args[0])
			if ctx.Err() != nil {
				t.Fatalf("%s/%s waited until its context ended", collective, alg.Name)
			}
			cancel()
			if !errors.Is(err, errInjected) {
				t.Errorf("%s/%s: %v", collective, alg.Name, err)
			}
			if n := w.unmatched(0); n != 0 {
				t.Errorf("%s/%s returned with %d transfers under way", collective, alg.Name, n)
			}
		}
	}
}
