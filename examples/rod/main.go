// Command rod computes the temperatures of a heated rod with cold ends. It is the program of docs/aiac.md.
package main

import (
	"context"
	"fmt"
	"log"
	"math"

	"github.com/isthmus-grid/isthmus/aiac"
	"github.com/isthmus-grid/isthmus/mpilib"
)

type rod struct { // the problem, 2.01 u[i] = u[i-1] + u[i+1] + 0.01, and one of its tasks
	tasks, task int
	u           [42]float64 // 40 points between the ends, of which a task computes its own
}

// shared returns the points of a task that another one uses: the one beside its own, if any. Of itself a task uses all.
func (r *rod) shared(from, to int) []float64 {
	lo, hi := max(r.first(from), r.first(to)-1), min(r.first(from+1), r.first(to+1)+1)
	return r.u[lo:max(lo, hi)]
}

func (r *rod) first(task int) int              { return 1 + 40*task/r.tasks }
func (r *rod) Tasks() int                      { return r.tasks }
func (r *rod) New(task int) (aiac.Task, error) { return &rod{tasks: r.tasks, task: task}, nil }
func (r *rod) Values(from, to int) int         { return len(r.shared(from, to)) }
func (r *rod) Give(to int, values []float64)   { copy(values, r.shared(r.task, to)) }
func (r *rod) Take(from int, values []float64) { copy(r.shared(from, r.task), values) }

func (r *rod) Step() error { // Gauss-Seidel
	for i := r.first(r.task); i < r.first(r.task+1); i++ {
		r.u[i] = (r.u[i-1] + r.u[i+1] + 0.01) / 2.01
	}
	return nil
}

func (r *rod) Residual() (worst float64) {
	for i := r.first(r.task); i < r.first(r.task+1); i++ {
		worst = max(worst, math.Abs(2.01*r.u[i]-r.u[i-1]-r.u[i+1]-0.01))
	}
	return worst
}

func main() {
	ctx := context.Background()
	world, err := mpilib.Init(ctx)
	if err != nil {
		log.Fatal(err)
	}
	r, err := aiac.Run(ctx, world.Comm(), &rod{tasks: world.Comm().Size()}, aiac.Options{Mode: aiac.Async, Tolerance: 1e-9})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d iterations, residual %.1e: %.7f\n", r.Iterations, r.Residual, r.Task.(*rod).shared(world.Comm().Rank(), world.Comm().Rank()))
	if err := world.Finalize(ctx); err != nil {
		log.Fatal(err)
	}
}
