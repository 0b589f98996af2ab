package aiac

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// line is a tridiagonal system, dominant by shift, cut into tasks of so many rows: -x[i-1] + (2+shift) x[i] - x[i+1] =
// shift + what is missing at the ends, so that all x are 1.
type line struct {
	tasks, rows int
	shift       float64
}

func (l line) Tasks() int { return l.tasks }

func (l line) Values(from, to int) int {
	switch from - to {
	case 0:
		return l.rows
	case -1, 1:
		return 1
	}
	return 0
}

func (l line) New(task int) (Task, error) {
	return &lineTask{line: l, task: task, x: make([]float64, l.rows)}, nil
}

type lineTask struct {
	line
	task        int
	x           []float64
	left, right float64
	c, d        []float64
}

// side returns the right side of row i, with what the neighbours have.
func (t *lineTask) side(i int) float64 {
	b := t.shift
	switch {
	case i == 0 && t.task == 0, i == t.rows-1 && t.task == t.tasks-1:
		b++ // the wall, which is 1
	case i == 0:
		b += t.left
	case i == t.rows-1:
		b += t.right
	}
	return b
}

// Step solves the block (Thomas).
func (t *lineTask) Step() error {
	t.c, t.d = t.c[:0], t.d[:0]
	for i := range t.rows {
		c, d := 0.0, 0.0
		if i > 0 {
			c, d = t.c[i-1], t.d[i-1]
		}
		pivot := 2 + t.shift + c
		t.c, t.d = append(t.c, -1/pivot), append(t.d, (t.side(i)+d)/pivot)
	}
	t.x[t.rows-1] = t.d[t.rows-1]
	for i := t.rows - 2; i >= 0; i-- {
		t.x[i] = t.d[i] - t.c[i]*t.x[i+1]
	}
	return nil
}

func (t *lineTask) Residual() (worst float64) {
	for i := range t.rows {
		r := t.side(i) - (2+t.shift)*t.x[i]
		if i > 0 {
			r += t.x[i-1]
		}
		if i < t.rows-1 {
			r += t.x[i+1]
		}
		worst = max(worst, math.Abs(r))
	}
	return worst
}

func (t *lineTask) Give(to int, v []float64) {
	if to > t.task {
		v[0] = t.x[t.rows-1]
	} else {
		copy(v, t.x)
	}
}

func (t *lineTask) Take(from int, v []float64) {
	switch {
	case from < t.task:
		t.left = v[0]
	case from > t.task:
		t.right = v[0]
	default:
		copy(t.x, v)
	}
}

// jacobi is the dumb version: block Jacobi in one loop, of at most so many iterations.
func jacobi(p line, tolerance float64, most uint64) (x []float64, iterations uint64) {
	var tasks []Task
	for i := range p.tasks {
		t, _ := p.New(i)
		tasks = append(tasks, t)
	}
	v := []float64{0}
	for ; ; iterations++ {
		worst := 0.0
		for to := range tasks {
			for _, from := range []int{to - 1, to + 1} {
				if from >= 0 && from < p.tasks {
					tasks[from].Give(to, v)
					tasks[to].Take(from, v)
				}
			}
		}
		for _, t := range tasks {
			worst = max(worst, t.Residual())
		}
		if worst <= tolerance || iterations == most {
			break
		}
		for _, t := range tasks {
			t.Step()
		}
	}
	for _, t := range tasks {
		x = append(x, t.(*lineTask).x...)
	}
	return x, iterations
}

// solve runs p on as many ranks, and returns the vector and each rank's result.
func solve(t *testing.T, p line, o Options, opts ...mpilib.Option) (x []float64, results []*Result) {
	t.Helper()
	var mu sync.Mutex
	results = make([]*Result, p.tasks)
	mpilib.TestWorld(t, p.tasks, func(ctx context.Context, c *mpilib.Comm) error {
		r, err := Run(ctx, c, p, o)
		mu.Lock()
		defer mu.Unlock()
		results[c.Rank()] = r
		return err
	}, opts...)
	for _, r := range results {
		if r == nil {
			t.FailNow()
		}
		x = append(x, r.Task.(*lineTask).x...)
	}
	return x, results
}

// A synchronous run is the sequential method bit for bit, and takes as many iterations.
func TestSyncIsBlockJacobi(t *testing.T) {
	for _, p := range []line{{1, 10, 1}, {2, 3, .5}, {5, 7, .1}} {
		want, iterations := jacobi(p, 1e-9, math.MaxUint64)
		x, results := solve(t, p, Options{Tolerance: 1e-9})
		if !slices.Equal(x, want) {
			t.Errorf("%+v:\n%v\nwant\n%v", p, x, want)
		}
		for task, r := range results {
			if r.Iterations != iterations || !(r.Residual <= 1e-9) {
				t.Errorf("%+v: task %d: %d iterations, residual %g; want %d", p, task, r.Iterations, r.Residual, iterations)
			}
		}
	}
}

// The residual of an asynchronous run, computed from all blocks anew, is what all tasks report, and small enough.
func TestAsyncConverges(t *testing.T) {
	sites := mpilib.WithPlaces(func(rank int) (string, string) { return fmt.Sprint("s", rank/2), fmt.Sprint("n", rank) })
	for _, p := range []line{{1, 10, 1}, {2, 3, .5}, {5, 7, .1}, {6, 4, .01}} {
		x, results := solve(t, p, Options{Mode: Async, Tolerance: 1e-9}, sites)
		whole := &lineTask{line: line{1, p.tasks * p.rows, p.shift}, x: x}
		residual := whole.Residual()
		for task, r := range results {
			if r.Residual != results[0].Residual || math.Abs(r.Residual-residual) > 1e-14 || residual > 1e-9 {
				t.Errorf("%+v: task %d says %g; the residual is %g", p, task, r.Residual, residual)
			}
			if p.tasks > 1 && (r.Put == 0 || r.Received == 0 || r.Waves == 0 || r.Iterations == 0) {
				t.Errorf("%+v: task %d: %+v", p, task, r)
			}
		}
		if worst := slices.MaxFunc(x, func(a, b float64) int { return cmpAbs(a-1, b-1) }); math.Abs(worst-1) > 1e-9/p.shift {
			t.Errorf("%+v: an x is %g, want 1", p, worst)
		}
	}
}

func cmpAbs(a, b float64) int {
	if math.Abs(a) < math.Abs(b) {
		return -1
	}
	return 1
}

// unsolved is a line whose tasks never hold a tolerance, so that none waits for the news of one that has given up.
type unsolved struct{ line }

func (u unsolved) New(task int) (Task, error) {
	t, err := u.line.New(task)
	return unsolvedTask{t}, err
}

type unsolvedTask struct{ Task }

func (unsolvedTask) Residual() float64 { return 1 }

func TestRunEnds(t *testing.T) {
	for _, mode := range []Mode{Sync, Async} {
		mpilib.TestWorld(t, 2, func(ctx context.Context, c *mpilib.Comm) error {
			if _, err := Run(ctx, c, unsolved{line{2, 3, .5}}, Options{Mode: mode, Tolerance: .5, MaxIterations: 50}); !errors.Is(err, ErrIterations) {
				return fmt.Errorf("%v: %w", mode, err)
			}
			return mpilib.Barrier(ctx, c) // the end of one would be an error of the other
		})
	}
	mpilib.TestWorld(t, 2, func(ctx context.Context, c *mpilib.Comm) error {
		for _, bad := range []struct {
			p line
			o Options
		}{{line{3, 3, 1}, Options{Tolerance: 1}}, {line{2, 3, 1}, Options{}}, {line{2, 3, 1}, Options{Tolerance: 1, Hold: -1}}, {line{2, 0, 1}, Options{Tolerance: 1}}} {
			if _, err := Run(ctx, c, bad.p, bad.o); !errors.Is(err, ErrProblem) {
				return fmt.Errorf("%+v: %w", bad, err)
			}
		}
		return nil
	})
}
