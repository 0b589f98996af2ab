// Package mg is the NAS Parallel Benchmark MG, "multigrid": V-cycles on the
// three-dimensional Poisson equation, periodic in all directions, with ten
// point sources and ten sinks. Messages are layers of grids, large on the
// finest grid and ever smaller on coarser ones.
//
// The rules are those of NAS report RNR-94-007, kernel MG; sizes, check values
// and the count of operations are those of NPB 3.4. Ranks hold slabs of
// consecutive planes, so that a rank has two neighbours and an exchange is one
// message to each. Grids of 16³ points and less every rank computes as a
// whole, which takes less time than messages would. The number of ranks must
// be a power of two, and each must have two planes of the finest grid.
package mg

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/examples/npb/kernel"
	"github.com/isthmus-grid/isthmus/mpilib"
)

const (
	seed = 314159265
	// charges is how many sources there are, and how many sinks.
	charges = 10
	// wholeLevel is the finest grid of which every rank has all, 2^4 points
	// wide, unless there are more ranks than planes.
	wholeLevel = 4
	// tolerance is relative, as in NPB.
	tolerance = 1e-8
)

// problem is a class: a grid of 2^levels points in each direction, how many
// cycles, and the official norm of what is left then.
type problem struct {
	levels, cycles int
	norm           float64
}

var problems = map[npb.Class]problem{
	"S": {5, 4, 0.5307707005734e-04},
	"W": {7, 4, 0.6467329375339e-05},
	"A": {8, 4, 0.2433365309069e-05},
}

// Classes lists the classes that Run accepts, smallest first.
var Classes = []npb.Class{"S", "W", "A"}

func (p problem) width() int { return 1 << p.levels }

// Run computes the class with all ranks of comm, a power of two, and returns
// the same Result on each. ctx ends it at the next message or cycle; its error
// is then wrapped. A wrong check value is no error: see Result.Verified.
//
// The charges are placed, and one cycle done, before the clock starts.
func Run(ctx context.Context, comm *mpilib.Comm, c npb.Class) (npb.Result, error) {
	p, ok := problems[c]
	if !ok {
		return npb.Result{}, fmt.Errorf("mg: no class %q, have %v", c, Classes)
	}
	if err := npb.PowerOfTwo("mg", comm.Size(), p.width()/2); err != nil {
		return npb.Result{}, err
	}
	s := newSolver(comm, p.levels, wholeLevel)
	if err := s.placeCharges(ctx); err != nil {
		return npb.Result{}, fmt.Errorf("mg: placing the charges: %w", err)
	}
	if _, err := s.solve(ctx, 1); err != nil { // fills caches and opens links
		return npb.Result{}, fmt.Errorf("mg: warm-up: %w", err)
	}
	norm, slowest, err := kernel.Timed(ctx, comm, &s.messages, func() (float64, error) { return s.solve(ctx, p.cycles) })
	if err != nil {
		return npb.Result{}, fmt.Errorf("mg: %w", err)
	}
	return result(c, p, comm.Size(), norm, slowest), nil
}

func result(c npb.Class, p problem, ranks int, norm float64, slowest []float64) npb.Result {
	r := npb.Result{
		Kernel: "MG", Class: c, Size: fmt.Sprintf("%[1]d x %[1]d x %[1]d", p.width()), Ranks: ranks, Iterations: p.cycles,
		Seconds: slowest[0], CommTime: slowest[1], Mops: p.operations() / slowest[0] / 1e6,
		Operation: "floating point",
	}
	r.Verify([]npb.Check{npb.NewCheck("L2 norm of the residual", norm, p.norm, tolerance)})
	return r
}

// operations is NPB's count for a run.
func (p problem) operations() float64 {
	n := float64(p.width())
	return 58 * float64(p.cycles) * n * n * n
}
