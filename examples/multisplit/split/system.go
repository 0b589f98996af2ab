package split

import (
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/examples/multisplit/linear"
	"github.com/isthmus-grid/isthmus/examples/npb/random"
)

// A System is a matrix, by rows, and which method solves its diagonal blocks.
type System interface {
	Rows() int
	Reach() int                        // the greatest distance of an element from the diagonal
	Block(lo, hi int) [][]linear.Entry // the rows from lo up to hi
	Solver() linear.Solver
	Name() string
}

// Banded is a symmetric positive definite matrix with random elements in a band, from the random numbers of the NAS
// benchmarks. Row sums are Shift times the elements beside the diagonal: the smaller, the weaker is the dominance, and the slower
// the convergence.
type Banded struct {
	N, Band int     // rows; half the bandwidth
	Entries int     // above the diagonal of each row, as far as the matrix goes
	Shift   float64 // above 0
}

func (s Banded) Rows() int             { return s.N }
func (s Banded) Reach() int            { return s.Band }
func (s Banded) Solver() linear.Solver { return new(linear.CG) }
func (s Banded) Name() string {
	return fmt.Sprintf("banded, %d rows, band %d, shift %g", s.N, s.Band, s.Shift)
}

const seed = 314159265 // that of NAS CG

// above yields the elements of row i to the right of the diagonal.
func (s Banded) above(i int, yield func(col int, v float64)) {
	g := random.New(seed)
	g.Skip(uint64(2 * i * s.Entries))
	for range s.Entries {
		distance, size := g.Float64(), g.Float64()
		if col := i + 1 + int(distance*float64(s.Band)); col < s.N {
			yield(col, -size)
		}
	}
}

// Block returns rows; elements that are drawn twice for one place stay two.
func (s Banded) Block(lo, hi int) [][]linear.Entry {
	rows := make([][]linear.Entry, hi-lo)
	sums := make([]float64, hi-lo)
	add := func(row, col int, v float64) {
		if row >= lo && row < hi {
			rows[row-lo] = append(rows[row-lo], linear.Entry{Col: col, Value: v})
			sums[row-lo] -= v
		}
	}
	for i := max(0, lo-s.Band); i < hi; i++ {
		s.above(i, func(col int, v float64) {
			add(i, col, v)
			add(col, i, v)
		})
	}
	for i := range rows {
		rows[i] = append(rows[i], linear.Entry{Col: lo + i, Value: max(sums[i], 1) * (1 + s.Shift)})
		slices.SortStableFunc(rows[i], func(a, b linear.Entry) int { return a.Col - b.Col })
	}
	return rows
}

// Convection is one step of backward Euler, of length Time, of the 3-D convection-diffusion equation in the unit cube with walls at 0
// (the problem of JACK2): u + Time (a . grad u - diffusion laplace u) = u before, on Grid^3 points, upwind.
type Convection struct {
	Grid            int
	Time, Diffusion float64
	Speed           [3]float64 // a
}

func (s Convection) Rows() int             { return s.Grid * s.Grid * s.Grid }
func (s Convection) Reach() int            { return s.Grid * s.Grid }
func (s Convection) Solver() linear.Solver { return new(linear.BiCGStab) }
func (s Convection) Name() string {
	return fmt.Sprintf("convection-diffusion, %d^3 points, step %g", s.Grid, s.Time)
}

// Block returns rows.
func (s Convection) Block(lo, hi int) [][]linear.Entry {
	h := 1 / float64(s.Grid+1)
	rows := make([][]linear.Entry, hi-lo)
	for i := range rows {
		row, diagonal, stride := lo+i, 1.0, 1
		for axis := range s.Speed {
			at := row / stride % s.Grid
			for _, side := range []int{-1, 1} {
				v := s.Time * s.Diffusion / (h * h)
				if flow := -float64(side) * s.Speed[axis]; flow > 0 { // what comes from that side
					v += s.Time * flow / h
				}
				diagonal += v
				if at+side >= 0 && at+side < s.Grid {
					rows[i] = append(rows[i], linear.Entry{Col: row + side*stride, Value: -v})
				}
			}
			stride *= s.Grid
		}
		rows[i] = append(rows[i], linear.Entry{Col: row, Value: diagonal})
		slices.SortFunc(rows[i], func(a, b linear.Entry) int { return a.Col - b.Col })
	}
	return rows
}
