package collectives_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/collectives/schedule"
	"github.com/isthmus-grid/isthmus/internal/testload"
)

var every = flag.Bool("every", testload.Full(), "simulate every algorithm with every number of ranks from 1 to 33, every root and layout, not a sample")

// layouts are the ways in which p ranks may be placed.
var layouts = map[string]func(p int) collectives.Layout{
	"together": func(int) collectives.Layout { return nil },
	"blocked": func(p int) collectives.Layout {
		return places(p, func(r int) (site, node int) { return r * 3 / p, r * 6 / p })
	},
	"dealt": func(p int) collectives.Layout { return places(p, func(r int) (site, node int) { return r % 4, r % 8 }) },
	"ragged": func(p int) collectives.Layout { // 1, 2, 3, ... ranks at a site, two at a node
		site, left := 0, 1
		return places(p, func(r int) (int, int) {
			if left == 0 {
				site++
				left = site + 1
			}
			left--
			return site, 100*site + left/2
		})
	},
	"random": func(p int) collectives.Layout {
		rng := rand.New(rand.NewPCG(uint64(p), 5))
		return places(p, func(int) (site, node int) { return rng.IntN(5), rng.IntN(2) })
	},
	"apart": func(p int) collectives.Layout { return places(p, func(r int) (site, node int) { return -r, r }) },
}

func places(p int, where func(r int) (site, node int)) collectives.Layout {
	l := collectives.Layout{make([]int, p), make([]int, p)}
	for r := range p {
		l[0][r], l[1][r] = where(r)
	}
	return l
}

// scheduled returns the algorithms that send messages, and so have schedules.
func scheduled(collective operation.Operation) []collectives.Algorithm {
	return slices.DeleteFunc(collectives.Algorithms(collective), func(a collectives.Algorithm) bool { return a.Needs.Has(collectives.SharedMemory) })
}

// ways returns every algorithm that sends messages, and those with flits also cut.
func ways(collective operation.Operation) (all []collectives.Algorithm) {
	for _, a := range scheduled(collective) {
		all = append(all, a)
		if a.Flits > 0 {
			cut, err := collectives.Find(collective, a.Name+":3")
			if err != nil {
				panic(err)
			}
			all = append(all, cut)
		}
	}
	return all
}

// Every algorithm gives the result of the plainest loop, whatever the number of ranks, the root,
// where the ranks are, which steps take long, and whether the buffers overlap.
func TestEveryAlgorithmSimulated(t *testing.T) {
	for _, collective := range collectives.Operations() {
		for _, alg := range ways(collective) {
			t.Run(collective.String()+"/"+alg.Name, func(t *testing.T) {
				t.Parallel()
				for p := 1; p <= 33; p++ {
					if *every || p <= 6 || p == 8 || p == 9 || p == 13 {
						simulateRoots(t, alg, p)
					}
				}
			})
		}
	}
}

func simulateRoots(t *testing.T, alg collectives.Algorithm, p int) {
	for name, layout := range layouts {
		if name != "together" && !alg.Places { // see TestFlatAlgorithmsDoNotSeePlaces
			continue
		}
		l := layout(p)
		for root := range p {
			if !rooted(alg.Collective) && root > 0 || !*every && root > 2 && root != p-1 || !*every && p > 9 && root%2 == 0 && rooted(alg.Collective) {
				continue
			}
			for _, op := range []collectives.Op{sum32, compose} {
				if !*every && root > 1 && op.Name == "compose" && p > 9 || !reduces(alg.Collective) && op.Name == "compose" {
					continue
				}
				for _, in := range []bool{false, true} {
					rng := rand.New(rand.NewPCG(uint64(p), uint64(root)))
					n := [...]int{0, 1, 7, 40}[rng.IntN(4)]
					label := fmt.Sprintf("%s p=%d root=%d n=%d op=%s in place=%v", name, p, root, n, op.Name, in)
					simulateOne(t, label, alg, l, oracles[alg.Collective](rng, p, n, root, op), in, rng)
				}
			}
		}
	}
}

func simulateOne(t *testing.T, label string, alg collectives.Algorithm, l collectives.Layout, e exercise, in bool, rng *rand.Rand) {
	t.Helper()
	op := e.args[0].Op
	if !possible(alg, op, l) {
		return
	}
	var untouched func() error
	if in {
		if !e.inPlace(alg.Collective) {
			return
		}
		untouched = func() error { return nil }
	} else {
		untouched = e.sends()
	}
	p := len(e.args)
	all, memory := make([]*schedule.Schedule, p), make([]schedule.Memory, p)
	for r, a := range e.args {
		all[r] = alg.Schedule(r, p, l, a)
		memory[r] = schedule.Memory{a.Send, a.Recv, bytes.Repeat([]byte{0x5a}, all[r].Scratch)} // another call has used it
	}
	apply := func(inout, in []byte) error { return op.Apply(inout, in) }
	if err := schedule.Shake(all, &schedule.Grid{}, memory, apply, rng); err != nil {
		t.Fatalf("%s: %v", label, err)
	}
	for r, a := range e.args {
		if idle(alg.Collective, r, a.Root) {
			continue
		}
		if !bytes.Equal(a.Recv, e.want[r]) {
			const most = 100
			t.Fatalf("%s: rank %d has\n%.*x, want\n%.*x\n%v", label, r, most, a.Recv, most, e.want[r], all[r])
		}
	}
	if err := untouched(); err != nil {
		t.Fatalf("%s: %v", label, err)
	}
}

// possible reports whether the algorithm may be used.
func possible(alg collectives.Algorithm, op collectives.Op, l collectives.Layout) bool {
	commutative := op.Commutative || op.Apply == nil
	switch alg.Needs {
	case collectives.Commutative:
		return commutative
	case collectives.CommutativeOrOrdered:
		return commutative || l.Ordered()
	case collectives.Ordered:
		return l.Ordered()
	}
	return true
}

// idle reports whether the receive buffer of a rank is ignored.
func idle(collective operation.Operation, rank, root int) bool {
	switch collective {
	case operation.Reduce, operation.Gather, operation.Gatherv:
		return rank != root
	}
	return false
}

// sends returns a check that no send buffer has changed.
func (e *exercise) sends() func() error {
	var were [][]byte
	for _, a := range e.args {
		were = append(were, bytes.Clone(a.Send))
	}
	return func() error {
		var errs []error
		for r, a := range e.args {
			if !bytes.Equal(a.Send, were[r]) {
				errs = append(errs, fmt.Errorf("the send buffer of rank %d has changed", r))
			}
		}
		return errors.Join(errs...)
	}
}

// inPlace makes one of the two buffers of each rank a part of the other, where the
// standard allows MPI_IN_PLACE; it reports whether it does.
func (e *exercise) inPlace(collective operation.Operation) bool {
	for r, a := range e.args {
		switch collective {
		case operation.Allreduce, operation.Scan, operation.Exscan, operation.Alltoall:
			if len(a.Send) != len(a.Recv) {
				return false
			}
			if collective == operation.Exscan && r == 0 {
				e.want[0] = bytes.Clone(a.Send)
			}
			copy(a.Recv, a.Send)
			a.Send = a.Recv
		case operation.Reduce:
			if r == a.Root {
				copy(a.Recv, a.Send)
				a.Send = a.Recv
			}
		case operation.Gather, operation.Allgather:
			if r == a.Root || collective == operation.Allgather {
				own := a.Recv[r*len(a.Send):][:len(a.Send)]
				copy(own, a.Send)
				a.Send = own
			}
		case operation.Gatherv, operation.Allgatherv:
			if r == a.Root || collective == operation.Allgatherv {
				own := a.Recv[a.RecvDispls[r]:][:len(a.Send)]
				copy(own, a.Send)
				a.Send = own
			}
		case operation.Scatter:
			if r == a.Root {
				a.Recv = a.Send[r*len(a.Recv):][:len(a.Recv)]
			}
		case operation.Scatterv:
			if r == a.Root {
				a.Recv = a.Send[a.SendDispls[r]:][:len(a.Recv)]
			}
		case operation.ReduceScatter, operation.ReduceScatterBlock:
			a.Recv = a.Send[:len(a.Recv)]
		default:
			return false
		}
	}
	return true
}

// Vectors too long for trees inside a place go along chains, with the same result.
func TestLongVectors(t *testing.T) {
	const p, root = 9, 4
	for _, collective := range collectives.Operations() {
		for _, alg := range scheduled(collective) {
			switch collective {
			case operation.Bcast, operation.Reduce, operation.Allreduce, operation.Allgather, operation.ReduceScatterBlock, operation.Scan, operation.Exscan:
			default:
				continue
			}
			if !alg.Places || alg.Name == "allgather" {
				continue
			}
			t.Run(collective.String()+"/"+alg.Name, func(t *testing.T) {
				t.Parallel()
				for _, op := range []collectives.Op{sum32, compose} {
					if !reduces(collective) && op.Name == "compose" || !*every && op.Name != "compose" && reduces(collective) && possible(alg, compose, layouts["blocked"](p)[:1]) {
						continue
					}
					n := 33_334 // more than places.go sends along trees
					if *every {
						n = 100_003
					}
					switch collective {
					case operation.Bcast, operation.Allgather: // count in bytes
						n *= 4
					case operation.ReduceScatterBlock: // one block per rank: p of them
						n = min(n, 33_334)
					}
					rng := rand.New(rand.NewPCG(p, uint64(n)))
					l := layouts["blocked"](p)[:1]
					simulateOne(t, op.Name, alg, l, oracles[collective](rng, p, n, root, op), false, rng)
				}
			})
		}
	}
}

// An algorithm that does not use places does the same whatever they are.
func TestFlatAlgorithmsDoNotSeePlaces(t *testing.T) {
	const p = 6
	for _, collective := range collectives.Operations() {
		e := oracles[collective](rand.New(rand.NewPCG(1, 1)), p, 7, 2, sum32)
		for _, alg := range ways(collective) {
			for r, a := range e.args {
				flat := alg.Schedule(r, p, nil, a).String() == alg.Schedule(r, p, layouts["dealt"](p), a).String()
				if flat == alg.Places && r == 0 && collective != operation.Barrier || !flat && !alg.Places {
					t.Errorf("%s/%s: rank %d does the same wherever ranks are: %v", collective, alg.Name, r, flat)
				}
			}
		}
	}
}

// The layouts are what their names say, so that the check above is meaningful.
func TestLayouts(t *testing.T) {
	for name, ordered := range map[string]bool{"together": true, "blocked": true, "dealt": false, "ragged": true, "random": false, "apart": true} {
		l := layouts[name](33)
		if l.Ordered() != ordered {
			t.Errorf("%s: ordered is %v", name, !ordered)
		}
		if err := l.Check(33); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := layouts["blocked"](3).Check(4); err == nil || !strings.Contains(err.Error(), "level 0") {
		t.Errorf("a layout of 3 ranks for 4: %v", err)
	}
}

// Several ranks may build their schedules at once, with the same result.
func TestSchedulesAreTheSame(t *testing.T) {
	alg, err := collectives.Find(operation.Allreduce, "full-lane")
	if err != nil {
		t.Fatal(err)
	}
	l := layouts["random"](16)
	a := &collectives.Args{Send: make([]byte, 400), Recv: make([]byte, 400), Op: sum32}
	want := alg.Schedule(5, 16, l, a).String()
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			if got := alg.Schedule(5, 16, l, a).String(); got != want {
				t.Errorf("%s, and\n%s", got, want)
			}
		})
	}
	all.Wait()
}
