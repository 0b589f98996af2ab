// Package split solves sparse linear systems by multisplitting: each task has a block of rows and solves
// ASub XSub = BSub - Dep X, with the values X of other tasks that have come, by a Krylov method of its own.
// Main is the program; Split is the problem that package aiac runs.
package split

import (
	"context"
	"fmt"
	"math"

	"github.com/isthmus-grid/isthmus/aiac"
	"github.com/isthmus-grid/isthmus/examples/multisplit/linear"
	"github.com/isthmus-grid/isthmus/examples/pace"
)

// Split is a system in blocks of rows.
type Split struct {
	System System
	Parts  int

	// Right returns the right sides of rows lo up to hi, and Start where the iteration starts there; nil: 0.
	Right, Start func(lo, hi int) []float64

	Reduction   float64 // to how much of its residual a step solves a block
	Most        int     // inner iterations of a step
	StepSeconds float64 // how long a step takes at least, to emulate slower processors; 0: as fast as the machine can
}

var _ aiac.Problem = Split{}

// Tasks implements aiac.Problem.
func (s Split) Tasks() int { return s.Parts }

// rows returns a task's rows.
func (s Split) rows(task int) (lo, hi int) {
	n := s.System.Rows()
	return task * n / s.Parts, (task + 1) * n / s.Parts
}

// shared returns the rows of from that the rows of to may use: all if it is the same task.
func (s Split) shared(from, to int) (lo, hi int) {
	lo, hi = s.rows(from)
	first, last := s.rows(to)
	return max(lo, first-s.System.Reach()), min(hi, last+s.System.Reach())
}

// Values implements aiac.Problem.
func (s Split) Values(from, to int) int {
	lo, hi := s.shared(from, to)
	return max(0, hi-lo)
}

// New implements aiac.Problem.
func (s Split) New(task int) (aiac.Task, error) {
	lo, hi := s.rows(task)
	if lo >= hi {
		return nil, fmt.Errorf("%d rows for %d tasks", s.System.Rows(), s.Parts)
	}
	t := &block{split: s, task: task, lo: lo, hi: hi, first: max(0, lo-s.System.Reach()), solver: s.System.Solver()}
	last := min(s.System.Rows(), hi+s.System.Reach())
	inside, outside := make([][]linear.Entry, hi-lo), make([][]linear.Entry, hi-lo)
	for i, row := range s.System.Block(lo, hi) {
		for _, e := range row {
			if e.Col >= lo && e.Col < hi {
				inside[i] = append(inside[i], linear.Entry{Col: e.Col - lo, Value: e.Value})
			} else {
				outside[i] = append(outside[i], linear.Entry{Col: e.Col - t.first, Value: e.Value})
			}
		}
	}
	t.inside, t.outside = linear.NewMatrix(hi-lo, inside), linear.NewMatrix(last-t.first, outside)
	t.around, t.side, t.work = make([]float64, last-t.first), make([]float64, hi-lo), make([]float64, hi-lo)
	t.right, t.x = s.Right(lo, hi), make([]float64, hi-lo)
	if s.Start != nil {
		copy(t.x, s.Start(lo, hi))
	}
	if s.StepSeconds > 0 {
		t.processor = pace.New(1)
	}
	return t, nil
}

// block is a task.
type block struct {
	split           Split
	task            int
	lo, hi          int
	first           int // row of around[0]
	inside, outside *linear.Matrix
	right, x        []float64
	around          []float64 // values of others
	side            []float64 // right - outside around, if isCurrent
	isCurrent       bool
	work            []float64
	solver          linear.Solver
	processor       *pace.Processor // nil: none
}

// update computes side if values have come.
func (t *block) update() {
	if t.isCurrent {
		return
	}
	t.isCurrent = true
	t.outside.Mul(t.side, t.around)
	for i, v := range t.right {
		t.side[i] = v - t.side[i]
	}
}

// Step implements aiac.Task.
func (t *block) Step() (err error) {
	t.update()
	solve := func() { _, err = t.solver.Solve(t.inside, t.x, t.side, t.split.Reduction, t.split.Most) }
	if t.processor == nil {
		solve()
	} else if waiting := t.processor.Do(context.Background(), t.split.StepSeconds, solve); waiting != nil {
		return waiting
	}
	return err
}

// Residual implements aiac.Task.
func (t *block) Residual() (worst float64) {
	t.update()
	t.inside.Mul(t.work, t.x)
	for i, v := range t.side {
		worst = max(worst, math.Abs(v-t.work[i]))
	}
	return worst
}

// Give implements aiac.Task.
func (t *block) Give(to int, v []float64) {
	lo, hi := t.split.shared(t.task, to)
	copy(v, t.x[lo-t.lo:hi-t.lo])
}

// Take implements aiac.Task.
func (t *block) Take(from int, v []float64) {
	if from == t.task {
		copy(t.x, v)
		return
	}
	lo, _ := t.split.shared(from, t.task)
	copy(t.around[lo-t.first:], v)
	t.isCurrent = false
}
