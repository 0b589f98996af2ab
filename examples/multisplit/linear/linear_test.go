package linear

import (
	"errors"
	"math"
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
