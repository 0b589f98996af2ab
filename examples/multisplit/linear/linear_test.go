package linear

import (
	"errors"
	"math"
	"runtime"
	"runtime/metrics"
	"slices"
	"testing"
)

// laplace returns a tridiagonal matrix whose upper and lower elements are -1 - skew and -1 + skew.
func laplace(n int, skew float64) *Matrix {
	rows := make([][]Entry, n)
	for i := range rows {
		if i > 0 {
			rows[i] = append(rows[i], Entry{i - 1, -1 + skew})
		}
		rows[i] = append(rows[i], Entry{i, 2.1})
		if i < n-1 {
			rows[i] = append(rows[i], Entry{i + 1, -1 - skew})
		}
	}
	return NewMatrix(n, rows)
}

func TestSolvers(t *testing.T) {
	for name, c := range map[string]struct {
		s    Solver
		skew float64
	}{"cg": {new(CG), 0}, "bicgstab": {new(BiCGStab), .4}} {
		for _, n := range []int{1, 2, 50, rowsEach + 1} { // the last on several cores
			m := laplace(n, c.skew)
			want, b, x, again := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
			for i := range want {
				want[i] = math.Sin(float64(i))
			}
			m.Mul(b, want)
			if _, err := c.s.Solve(m, x, b, 1e-12, 10*n+10); err != nil {
				t.Fatalf("%s, %d rows: %v", name, n, err)
			}
			for i := range x {
				if math.Abs(x[i]-want[i]) > 1e-7 {
					t.Fatalf("%s, %d rows: x[%d] is %g, want %g", name, n, i, x[i], want[i])
				}
			}
			if _, err := c.s.Solve(m, again, b, 1e-12, 10*n+10); err != nil || !slices.Equal(x, again) {
				t.Errorf("%s, %d rows: a second time the result differs, %v", name, n, err)
			}
		}
	}
}

func TestBreakdown(t *testing.T) {
	zero := NewMatrix(2, make([][]Entry, 2))
	for _, s := range []Solver{new(CG), new(BiCGStab)} {
		if _, err := s.Solve(zero, make([]float64, 2), []float64{1, 1}, 1e-9, 10); !errors.Is(err, ErrBreakdown) {
			t.Errorf("%T of a zero matrix: %v", s, err)
		}
	}
}

// Mul runs on as many goroutines as the node has cores, as far as there are rows enough, and its result is the same, bit for
// bit.
func TestMulOnEveryCore(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, c := range []struct{ rows, cores, goroutines int }{
		{4 * rowsEach, 1, 0}, {4 * rowsEach, 2, 2}, {4 * rowsEach, 4, 4}, {rowsEach, 4, 2}, {rowsEach - 1, 4, 0},
	} {
		m := laplace(c.rows, .3)
		x, y, want := make([]float64, c.rows), make([]float64, c.rows), make([]float64, c.rows)
		for i := range x {
			x[i] = math.Sin(float64(i))
		}
		m.mulRows(want, x, 0, c.rows)
		runtime.GOMAXPROCS(c.cores)
		const times = 100 // more than the goroutines that the runtime itself may start meanwhile
		before := goroutinesCreated()
		for range times {
			clear(y)
			m.Mul(y, x)
			if !slices.Equal(y, want) {
				t.Fatalf("%d rows on %d cores: the result differs", c.rows, c.cores)
			}
		}
		if got := int(goroutinesCreated() - before); got/times != c.goroutines {
			t.Errorf("%d rows on %d cores: %d goroutines in %d calls, want %d in each", c.rows, c.cores, got, times, c.goroutines)
		}
	}
}

func goroutinesCreated() uint64 {
	s := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
