// Package qr is the arithmetic of a QR factorization of rows that lie on
// several ranks: Householder reflections of one panel, and the combination of
// two triangular factors. It knows no messages: what ranks must add up goes
// through a Crew. It keeps no state; matrices belong to their creators.
package qr

import "math"

// A Matrix holds its elements column after column.
type Matrix struct {
	Rows, Cols int
	Data       []float64
}

// New returns a matrix of zeros.
func New(rows, cols int) *Matrix { return &Matrix{rows, cols, make([]float64, rows*cols)} }

// Col returns column j, which remains a part of the matrix.
func (m *Matrix) Col(j int) []float64 { return m.Data[j*m.Rows : (j+1)*m.Rows : (j+1)*m.Rows] }

// At returns the element in row i of column j.
func (m *Matrix) At(i, j int) float64 { return m.Data[j*m.Rows+i] }

// Clone returns a copy.
func (m *Matrix) Clone() *Matrix {
	return &Matrix{m.Rows, m.Cols, append([]float64(nil), m.Data...)}
}

// Random returns count rows, from row first, of the matrix of cols columns that
// belongs to a seed. Its elements are even in [-1, 1) and depend only on their
// place, so that any ranks can make any part.
func Random(seed uint64, first, count, cols int) *Matrix {
	m := New(count, cols)
	for j := range cols {
		column := m.Col(j)
		for i := range column {
			column[i] = float64(int64(mix(seed^mix(uint64(first+i)*uint64(cols)+uint64(j))))>>11) / (1 << 52)
		}
	}
	return m
}

// mix is the output function of the generator SplitMix64 (Steele, Lea and
// Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Gram returns m'm. The sum of the Gram matrices of parts is that of the whole.
func Gram(m *Matrix) *Matrix {
	g := New(m.Cols, m.Cols)
	for j := range m.Cols {
		for i := range j + 1 {
			s := dot(m.Col(i), m.Col(j))
			g.Col(j)[i], g.Col(i)[j] = s, s
		}
	}
	return g
}

// Minus returns a - b.
func Minus(a, b *Matrix) *Matrix {
	d := a.Clone()
	for i, v := range b.Data {
		d.Data[i] -= v
	}
	return d
}

// Times returns m r for an upper triangular r.
func Times(m, r *Matrix) *Matrix {
	p := New(m.Rows, r.Cols)
	for j := range r.Cols {
		for k := range j + 1 {
			axpy(p.Col(j), r.At(k, j), m.Col(k))
		}
	}
	return p
}

// Identity returns the identity of order n.
func Identity(n int) *Matrix {
	m := New(n, n)
	for j := range n {
		m.Col(j)[j] = 1
	}
	return m
}

// SumOfSquares returns the square of m's Frobenius norm.
func SumOfSquares(m *Matrix) float64 { return dot(m.Data, m.Data) }

// Norm returns m's Frobenius norm.
func Norm(m *Matrix) float64 { return math.Sqrt(SumOfSquares(m)) }

// dot has four sums, or each addition would wait for the one before.
func dot(x, y []float64) float64 {
	var s0, s1, s2, s3 float64
	y = y[:len(x)]
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s0 += x[i] * y[i]
		s1 += x[i+1] * y[i+1]
		s2 += x[i+2] * y[i+2]
		s3 += x[i+3] * y[i+3]
	}
	for ; i < len(x); i++ {
		s0 += x[i] * y[i]
	}
	return s0 + s1 + (s2 + s3)
}

// axpy adds s times x to y.
func axpy(y []float64, s float64, x []float64) {
	y = y[:len(x)]
	for i, v := range x {
		y[i] += s * v
	}
}
