// Package ep is the NAS Parallel Benchmark EP, "embarrassingly parallel":
// pairs of Gaussian deviates by the acceptance-rejection method, tallied in
// square annuli. Ranks meet only in three sums and a maximum at the end.
//
// The rules are those of NAS report RNR-94-007, section 2.2, and of the
// programs NPB up to 3.4.1, whose check values are sums with their signs; from
// 3.4.2 NPB sums absolute values and prints other numbers. The number of
// accepted pairs, which 3.4.2 added, is the same for both and checked too.
package ep

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/examples/npb/random"
	"github.com/isthmus-grid/isthmus/examples/tally"
	"github.com/isthmus-grid/isthmus/mpilib"
)

const (
	seed = 271828183
	// batchBits: the sequence is dealt to ranks in batches of 2^16 pairs.
	batchBits = 16
	// annuli is how many are tallied; no pair of any class falls outside.
	annuli = 10
	// tolerance is relative, as in NPB: the order of summing depends on the
	// number of ranks.
	tolerance = 1e-8
)

// class is a problem: 2^m pairs, and the official results.
type class struct {
	m          int
	sumX, sumY float64
	pairs      float64
}

var classes = map[npb.Class]class{
	"S": {24, -3.247834652034740e3, -6.958407078382297e3, 13176389},
	"W": {25, -2.863319731645753e3, -6.320053679109499e3, 26354769},
	"A": {28, -4.295875165629892e3, -1.580732573678431e4, 210832767},
	"B": {30, 4.033815542441498e4, -2.660669192809235e4, 843345606},
	"C": {32, 4.764367927995374e4, -8.084072988043731e4, 3373275903},
}

// Classes lists the classes that Run accepts, smallest first.
var Classes = []npb.Class{"S", "W", "A", "B", "C"}

// Run computes the class with all ranks of comm and returns the same Result on
// each. Any number of ranks will do. ctx ends it between batches and in every
// reduction; its error then is the context's. A wrong check value is no error:
// see Result.Verified.
func Run(ctx context.Context, comm *mpilib.Comm, c npb.Class) (npb.Result, error) {
	problem, ok := classes[c]
	if !ok {
		return npb.Result{}, fmt.Errorf("ep: no class %q, have %v", c, Classes)
	}
	if err := mpilib.Barrier(ctx, comm); err != nil {
		return npb.Result{}, fmt.Errorf("ep: %w", err)
	}
	start := time.Now()
	mine, err := share(ctx, comm.Rank(), comm.Size(), problem.m)
	if err != nil {
		return npb.Result{}, fmt.Errorf("ep: rank %d of %d: %w", comm.Rank(), comm.Size(), err)
	}
	computed := time.Now()
	total, err := combine(ctx, comm, mine)
	if err != nil {
		return npb.Result{}, fmt.Errorf("ep: combining the tallies: %w", err)
	}
	times := []float64{time.Since(start).Seconds(), time.Since(computed).Seconds()}
	slowest, err := tally.Slowest(ctx, comm, times...)
	if err != nil {
		return npb.Result{}, fmt.Errorf("ep: combining the times: %w", err)
	}
	return result(c, problem, comm.Size(), total, slowest), nil
}

func combine(ctx context.Context, comm *mpilib.Comm, mine sums) (total sums, err error) {
	sums := make([]float64, 2)
	if err := mpilib.Allreduce(ctx, comm, []float64{mine.sumX, mine.sumY}, sums, mpilib.Sum); err != nil {
		return total, err
	}
	total.sumX, total.sumY = sums[0], sums[1]
	return total, mpilib.Allreduce(ctx, comm, mine.annulus[:], total.annulus[:], mpilib.Sum)
}

func result(c npb.Class, problem class, ranks int, total sums, slowest []float64) npb.Result {
	numbers := math.Ldexp(1, problem.m+1)
	r := npb.Result{
		Kernel: "EP", Class: c, Size: fmt.Sprintf("%.0f numbers", numbers), Ranks: ranks, Iterations: 1,
		Seconds: slowest[0], CommTime: slowest[1], Mops: numbers / slowest[0] / 1e6,
		Operation: "random numbers",
	}
	var pairs int64
	for _, q := range total.annulus {
		pairs += q
	}
	r.Verify([]npb.Check{
		npb.NewCheck("sum X", total.sumX, problem.sumX, tolerance),
		npb.NewCheck("sum Y", total.sumY, problem.sumY, tolerance),
		npb.NewCheck("accepted pairs", float64(pairs), problem.pairs, 0),
	})
	return r
}

// sums is what a run of pairs adds up to: the sums of both deviates and the
// number of pairs whose larger absolute value has each whole part.
type sums struct {
	sumX, sumY float64
	annulus    [annuli]int64
}

// share does one rank's contiguous part of the 2^m pairs. Batches differ by at
// most one between ranks.
func share(ctx context.Context, rank, size, m int) (sums, error) {
	var t sums
	batches := 1 << (m - batchBits)
	first, end := rank*batches/size, (rank+1)*batches/size
	g := random.New(seed)
	g.Skip(uint64(first) << (batchBits + 1)) // two numbers a pair
	for range end - first {
		if err := ctx.Err(); err != nil {
			return t, err
		}
		t.add(&g, 1<<batchBits)
	}
	return t, nil
}

// add draws pairs uniform in (-1,1)², keeps those inside the unit circle and
// turns them into Gaussian deviates (Marsaglia's polar method).
func (t *sums) add(g *random.Generator, pairs int) {
	for range pairs {
		x := 2*g.Float64() - 1
		y := 2*g.Float64() - 1
		s := x*x + y*y
		if s > 1 {
			continue
		}
		f := math.Sqrt(-2 * math.Log(s) / s)
		x, y = x*f, y*f
		t.annulus[int(max(math.Abs(x), math.Abs(y)))]++
		t.sumX += x
		t.sumY += y
	}
}
