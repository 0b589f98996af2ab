// Package ft is the NAS Parallel Benchmark FT, "Fourier transform": a partial
// differential equation with random initial values, solved in the frequency
// domain. Each time step is an inverse three-dimensional transform, and in
// each an Alltoall moves the whole array, so that the kernel measures the
// bandwidth between all ranks at once.
//
// The rules are those of NAS report RNR-94-007, kernel FT; sizes, check values
// and the count of operations are those of NPB 3.4. Ranks hold slabs of
// consecutive planes, z being constant in a plane, and while they transform
// along z, beams of whole lines. The number of ranks must be a power of two,
// and each must have a plane.
package ft

import (
	"context"
	"fmt"
	"math"

	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/examples/npb/kernel"
	"github.com/isthmus-grid/isthmus/mpilib"
)

const (
	seed = 314159265
	// alpha is the equation's coefficient of diffusion.
	alpha = 1e-6
	// samples is how many points of a time step its checksum adds up.
	samples = 1024
	// tolerance is relative, as in NPB.
	tolerance = 1e-12
)

// problem is a class: the points in each direction, powers of two, and the
// official checksum after each time step.
type problem struct {
	nx, ny, nz int
	checksums  []complex128
}

var problems = map[npb.Class]problem{
	"S": {64, 64, 64, []complex128{
		554.6087004964 + 484.5363331978i,
		554.6385409189 + 486.5304269511i,
		554.6148406171 + 488.3910722336i,
		554.5423607415 + 490.1273169046i,
		554.4255039624 + 491.7475857993i,
		554.2683411902 + 493.2597244941i,
	}},
	"W": {128, 128, 32, []complex128{
		567.3612178944 + 529.3246849175i,
		563.1436885271 + 528.2149986629i,
		559.4024089970 + 527.0996558037i,
		556.0698047020 + 526.0027904925i,
		553.0898991250 + 524.9400845633i,
		550.4159734538 + 523.9212247086i,
	}},
	"A": {256, 256, 128, []complex128{
		504.6735008193 + 511.4047905510i,
		505.9412319734 + 509.8809666433i,
		506.9376896287 + 509.8144042213i,
		507.7892868474 + 510.1336130759i,
		508.5233095391 + 510.4914655194i,
		509.1487099959 + 510.7917842803i,
	}},
}

// Classes lists the classes that Run accepts, smallest first.
var Classes = []npb.Class{"S", "W", "A"}

func (p problem) points() int { return p.nx * p.ny * p.nz }

// Run computes the class with all ranks of comm, a power of two, and returns
// the same Result on each. ctx ends it at the next message or time step; its
// error is then wrapped. A wrong check value is no error: see Result.Verified.
//
// The initial values are drawn and transformed once before the clock starts
// and once again thereafter.
func Run(ctx context.Context, comm *mpilib.Comm, c npb.Class) (npb.Result, error) {
	p, ok := problems[c]
	if !ok {
		return npb.Result{}, fmt.Errorf("ft: no class %q, have %v", c, Classes)
	}
	if err := npb.PowerOfTwo("ft", comm.Size(), p.nz); err != nil {
		return npb.Result{}, err
	}
	s := newSolver(comm, p)
	if err := s.start(ctx); err != nil { // fills caches and opens links
		return npb.Result{}, fmt.Errorf("ft: warm-up: %w", err)
	}
	sums, slowest, err := kernel.Timed(ctx, comm, &s.messages, func() ([]complex128, error) { return s.solve(ctx) })
	if err != nil {
		return npb.Result{}, fmt.Errorf("ft: %w", err)
	}
	return result(c, p, comm.Size(), sums, slowest), nil
}

func result(c npb.Class, p problem, ranks int, sums []complex128, slowest []float64) npb.Result {
	r := npb.Result{
		Kernel: "FT", Class: c, Size: fmt.Sprintf("%d x %d x %d", p.nx, p.ny, p.nz), Ranks: ranks, Iterations: len(p.checksums),
		Seconds: slowest[0], CommTime: slowest[1], Mops: p.operations() / slowest[0] / 1e6,
		Operation: "floating point",
	}
	var checks []npb.Check
	for i, want := range p.checksums {
		name := fmt.Sprintf("step %d checksum, ", i+1)
		checks = append(checks,
			npb.NewCheck(name+"real", real(sums[i]), real(want), tolerance),
			npb.NewCheck(name+"imaginary", imag(sums[i]), imag(want), tolerance))
	}
	r.Verify(checks)
	return r
}

// operations is NPB's count for a run.
func (p problem) operations() float64 {
	n := float64(p.points())
	log := math.Log(n)
	return n * (14.8157 + 7.19641*log + (5.23518+7.21113*log)*float64(len(p.checksums)))
}
