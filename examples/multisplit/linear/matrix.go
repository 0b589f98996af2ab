// Package linear has sparse matrices by rows, and Krylov solvers for them. Of a solver only [Matrix.Mul] runs on all cores of
// a node; sums and updates of vectors run on one. It is pure: equal input gives equal results on any number of cores.
package linear

import (
	"runtime"
	"sync"
)

// An Entry is an element of a row.
type Entry struct {
	Col   int
	Value float64
}

// A Matrix is a sparse matrix by rows (CSR).
type Matrix struct {
	Cols   int
	starts []int // of each row in entries, and the end
	values []Entry
}

// NewMatrix returns the matrix with the given rows. It keeps no reference to them.
func NewMatrix(cols int, rows [][]Entry) *Matrix {
	m := &Matrix{Cols: cols, starts: make([]int, 1, len(rows)+1)}
	for _, row := range rows {
		m.values = append(m.values, row...)
		m.starts = append(m.starts, len(m.values))
	}
	return m
}

// Rows returns the number of rows.
func (m *Matrix) Rows() int { return len(m.starts) - 1 }

// Entries returns the number of stored elements.
func (m *Matrix) Entries() int { return len(m.values) }

// rowsEach is how many rows a goroutine multiplies at least: fewer take less time than starting it.
const rowsEach = 4096

// Mul computes y = m x, each core some of the rows.
func (m *Matrix) Mul(y, x []float64) {
	parts := min(runtime.GOMAXPROCS(0), 1+m.Rows()/rowsEach)
	if parts == 1 {
		m.mulRows(y, x, 0, m.Rows())
		return
	}
	var all sync.WaitGroup
	for p := range parts {
		all.Go(func() { m.mulRows(y, x, p*m.Rows()/parts, (p+1)*m.Rows()/parts) })
	}
	all.Wait()
}

func (m *Matrix) mulRows(y, x []float64, from, to int) {
	for i := from; i < to; i++ {
		sum := 0.0
		for _, e := range m.values[m.starts[i]:m.starts[i+1]] {
			sum += e.Value * x[e.Col]
		}
		y[i] = sum
	}
}

func dot(a, b []float64) (sum float64) {
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

// addScaled adds f x to y.
func addScaled(y []float64, f float64, x []float64) {
	for i, v := range x {
		y[i] += f * v
	}
}
