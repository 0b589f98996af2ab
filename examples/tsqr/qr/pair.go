package qr

// A Pair is the factored stack of two triangular factors, of which the upper
// was replaced by the new one: it has the Householder vectors, whose lower
// halves are triangular too.
type Pair struct {
	v   *Matrix
	tau []float64
}

// PairFlops returns about how many operations Combine takes for order n.
func PairFlops(n int) float64 { return 2 * float64(n) * float64(n) * float64(n) / 3 }

// Combine factors [upper; lower], both upper triangular and of one order: upper
// becomes the factor and lower becomes the pair's own.
func Combine(upper, lower *Matrix) *Pair {
	n := upper.Cols
	p := &Pair{lower, make([]float64, n)}
	for k := range n {
		v := lower.Col(k)[:k+1] // what is below in the column is zero
		beta, tau, scale := reflector(upper.At(k, k), dot(v, v))
		for i := range v {
			v[i] *= scale
		}
		upper.Col(k)[k], p.tau[k] = beta, tau
		for j := k + 1; j < n; j++ {
			p.reflect(k, upper.Col(j), lower.Col(j))
		}
	}
	return p
}

// reflect applies reflection k to the column [above; below].
func (p *Pair) reflect(k int, above, below []float64) {
	v := p.v.Col(k)[:k+1]
	s := -p.tau[k] * (above[k] + dot(v, below))
	above[k] += s
	axpy(below, s, v)
}

// Apply replaces c, of the pair's order, by the upper half of Q [c; 0] and
// returns the lower half.
func (p *Pair) Apply(c *Matrix) (lower *Matrix) {
	n := c.Cols
	lower = New(n, n)
	for k := n - 1; k >= 0; k-- {
		for j := range n {
			p.reflect(k, c.Col(j), lower.Col(j))
		}
	}
	return lower
}

// Pack returns the upper triangle of r, column after column: n(n+1)/2 numbers.
func Pack(r *Matrix) []float64 {
	packed := make([]float64, 0, Packed(r.Cols))
	for j := range r.Cols {
		packed = append(packed, r.Col(j)[:j+1]...)
	}
	return packed
}

// Packed returns how many numbers Pack makes of a triangle of order n.
func Packed(n int) int { return n * (n + 1) / 2 }

// Unpack is the inverse of Pack.
func Unpack(n int, packed []float64) *Matrix {
	r := New(n, n)
	for j := range n {
		copy(r.Col(j)[:j+1], packed)
		packed = packed[j+1:]
	}
	return r
}

// Normalize makes the diagonal of r positive, by which the factor of a matrix
// of full rank is unique, and returns the signs that its rows were given, as a
// diagonal matrix: Q must have them, too.
func Normalize(r *Matrix) (signs *Matrix) {
	n := r.Cols
	signs = Identity(n)
	for k := range n {
		if r.At(k, k) >= 0 {
			continue
		}
		signs.Col(k)[k] = -1
		for j := k; j < n; j++ {
			r.Col(j)[k] = -r.Col(j)[k]
		}
	}
	return signs
}
