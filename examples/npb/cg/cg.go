// Package cg is the NAS Parallel Benchmark CG, "conjugate gradient": the
// smallest eigenvalue of a large sparse random matrix by inverse iteration,
// each step a solution by 25 iterations of conjugate gradients. It multiplies
// a matrix without structure by a vector some 400 times and measures short
// messages.
//
// The rules are those of NAS report RNR-94-007, kernel CG; check values and
// the count of operations are those of NPB 3.4. Ranks form a grid, the matrix
// lies on it in blocks, and neighbours in rank are neighbours in a row: with
// ranks numbered site after site, all sums stay in a site and only one
// exchange an iteration crosses between sites. The number of ranks must be a
// power of two.
package cg

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/examples/npb/kernel"
	"github.com/isthmus-grid/isthmus/mpilib"
)

const (
	seed  = 314159265
	steps = 25  // of conjugate gradients in a solution
	rcond = 0.1 // of the matrix before the shift
	// tolerance is relative, as in NPB.
	tolerance = 1e-10
	// converged is far above what a solution leaves as residual, near 1e-13,
	// and far below what a wrong product would.
	converged = 1e-8
	// maxRanks keeps columns enough for every rank of the smallest class.
	maxRanks = 1024
)

// problem is a class: the order of the matrix, the random elements of each of
// the vectors that it is made of, the number of outer iterations, the shift,
// and the official eigenvalue.
type problem struct {
	n, nonzeros, iterations int
	shift, zeta             float64
}

var problems = map[npb.Class]problem{
	"S": {1400, 7, 15, 10, 8.5971775078648},
	"W": {7000, 8, 15, 12, 10.362595087124},
	"A": {14000, 11, 15, 20, 17.130235054029},
}

// Classes lists the classes that Run accepts, smallest first.
var Classes = []npb.Class{"S", "W", "A"}

// Run computes the class with all ranks of comm, a power of two, and returns
// the same Result on each. ctx ends it at the next message; its error is then
// wrapped. A wrong check value is no error: see Result.Verified. A solution
// that does not converge is.
//
// The matrix is made, and one outer iteration done, before the clock starts.
func Run(ctx context.Context, comm *mpilib.Comm, c npb.Class) (npb.Result, error) {
	p, ok := problems[c]
	if !ok {
		return npb.Result{}, fmt.Errorf("cg: no class %q, have %v", c, Classes)
	}
	if err := npb.PowerOfTwo("cg", comm.Size(), maxRanks); err != nil {
		return npb.Result{}, err
	}
	s, err := newSolver(ctx, comm, p)
	if err != nil {
		return npb.Result{}, fmt.Errorf("cg: %w", err)
	}
	defer s.row.Free()
	if _, err := s.iterate(ctx, 1); err != nil { // fills caches and opens links
		return npb.Result{}, fmt.Errorf("cg: warm-up: %w", err)
	}
	zeta, slowest, err := kernel.Timed(ctx, comm, &s.messages, func() (float64, error) { return s.iterate(ctx, p.iterations) })
	if err != nil {
		return npb.Result{}, fmt.Errorf("cg: %w", err)
	}
	// Rows sum apart and may round apart in the last bit; all report one value.
	one := []float64{zeta}
	if err := mpilib.Bcast(ctx, comm, one, 0); err != nil {
		return npb.Result{}, fmt.Errorf("cg: sharing zeta: %w", err)
	}
	return result(c, p, comm.Size(), one[0], slowest), nil
}

func result(c npb.Class, p problem, ranks int, zeta float64, slowest []float64) npb.Result {
	r := npb.Result{
		Kernel: "CG", Class: c, Size: fmt.Sprintf("order %d", p.n), Ranks: ranks, Iterations: p.iterations,
		Seconds: slowest[0], CommTime: slowest[1], Mops: p.operations() / slowest[0] / 1e6,
		Operation: "floating point",
	}
	r.Verify([]npb.Check{npb.NewCheck("zeta", zeta, p.zeta, tolerance)})
	return r
}

// operations is NPB's count for a run: it takes a row of the matrix to hold
// nonzeros*(nonzeros+1) elements.
func (p problem) operations() float64 {
	row := float64(p.nonzeros * (p.nonzeros + 1))
	return 2 * float64(p.iterations) * float64(p.n) * (3 + row + steps*(5+row) + 3)
}
