package qr

import "math"

// A Crew is what the ranks do together that hold the rows of one panel.
type Crew interface {
	// Sum replaces v by its sum over the ranks. Where the panel lies on one rank
	// it does nothing.
	Sum(v []float64) error
	// Compute runs f, which has about flops operations.
	Compute(flops float64, f func()) error
}

// Alone is the crew of a panel on one rank.
type Alone struct{}

// Sum does nothing.
func (Alone) Sum([]float64) error { return nil }

// Compute runs f.
func (Alone) Compute(_ float64, f func()) error { f(); return nil }

// A Panel is this rank's rows of a factored matrix: in the place of A are the
// Householder vectors and, in the first rows of the top rank, R above them.
//
//	top rank         other ranks
//	r r r            v v v
//	v r r            v v v
//	v v r            v v v
//	v v v
//
// A vector's element in the row of its pivot is 1 and not stored.
type Panel struct {
	a    *Matrix
	top  bool
	tau  []float64
	crew Crew
}

// Factor factors a panel in place, one column after the other, by Householder
// reflections as LAPACK's DGEQR2 does. a is this rank's rows; top says whether
// they are the panel's first, which must be a.Cols at least. All ranks of the
// crew call it.
//
// Each column takes two sums over the crew, its norm and its products with the
// columns behind it, and the last only one: 2n-1 for n columns. That is what
// ScaLAPACK's PDGEQR2 sends, too.
func Factor(a *Matrix, top bool, crew Crew) (*Panel, error) {
	p := &Panel{a, top, make([]float64, a.Cols), crew}
	for k := range a.Cols {
		if err := p.eliminate(k); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// eliminate makes column k zero below its pivot and updates the columns behind.
func (p *Panel) eliminate(k int) error {
	v, below := p.below(k)
	head := make([]float64, 2) // the pivot, and the square of what is below it
	err := p.crew.Compute(2*float64(len(v)), func() {
		head[1] = dot(v, v)
		if p.top {
			head[0] = p.a.At(k, k)
		}
	})
	if err != nil {
		return err
	}
	if err := p.crew.Sum(head); err != nil {
		return err
	}
	beta, tau, scale := reflector(head[0], head[1])
	p.tau[k] = tau
	behind := p.a.Cols - k - 1
	products := make([]float64, behind)
	err = p.crew.Compute(float64(len(v))*float64(1+2*behind), func() {
		for i := range v {
			v[i] *= scale
		}
		if p.top {
			p.a.Col(k)[k] = beta
		}
		p.products(products, k, below, p.a, k+1)
	})
	if err != nil || behind == 0 {
		return err
	}
	if err := p.crew.Sum(products); err != nil {
		return err
	}
	return p.crew.Compute(2*float64(len(v))*float64(behind), func() { p.update(products, k, below, p.a, k+1) })
}

// below returns the part of column k that its reflection makes zero, and the
// row where it begins.
func (p *Panel) below(k int) (v []float64, row int) {
	if p.top {
		row = k + 1
	}
	return p.a.Col(k)[row:], row
}

// products sets products[j] to what this rank's rows add to the product of
// vector k and column first+j of c.
func (p *Panel) products(products []float64, k, below int, c *Matrix, first int) {
	v := p.a.Col(k)[below:]
	for j := range products {
		column := c.Col(first + j)
		products[j] = dot(v, column[below:])
		if p.top {
			products[j] += column[k]
		}
	}
}

// update takes tau products[j] v, of vector k, from column first+j of c.
func (p *Panel) update(products []float64, k, below int, c *Matrix, first int) {
	v := p.a.Col(k)[below:]
	for j := range products {
		column := c.Col(first + j)
		s := -p.tau[k] * products[j]
		if p.top {
			column[k] += s
		}
		axpy(column[below:], s, v)
	}
}

// R returns a copy of the upper triangular factor on the top rank, else nil.
func (p *Panel) R() *Matrix {
	if !p.top {
		return nil
	}
	n := p.a.Cols
	r := New(n, n)
	for j := range n {
		copy(r.Col(j)[:j+1], p.a.Col(j))
	}
	return r
}

// Apply returns this rank's rows of Q [c; 0], where c is square with as many
// columns as the panel; only the top rank's is looked at. It takes one sum over
// the crew for each column. All ranks of the crew call it.
func (p *Panel) Apply(c *Matrix) (*Matrix, error) {
	n := p.a.Cols
	q := New(p.a.Rows, n)
	if p.top {
		for j := range n {
			copy(q.Col(j), c.Col(j))
		}
	}
	products := make([]float64, n)
	for k := n - 1; k >= 0; k-- {
		v, below := p.below(k)
		flops := 2 * float64(len(v)) * float64(n)
		err := p.crew.Compute(flops, func() { p.products(products, k, below, q, 0) })
		if err != nil {
			return nil, err
		}
		if err := p.crew.Sum(products); err != nil {
			return nil, err
		}
		if err := p.crew.Compute(flops, func() { p.update(products, k, below, q, 0) }); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// reflector returns what maps a column with this pivot, and elements below it
// with this sum of squares, to (beta, 0): I - tau v v' with v's elements below
// the pivot scale times the column's. beta has the other sign than pivot, so
// that nothing cancels. Squares neither overflow nor vanish as long as elements
// are between 1e-150 and 1e150.
func reflector(pivot, squares float64) (beta, tau, scale float64) {
	if squares == 0 {
		return pivot, 0, 0
	}
	beta = -math.Copysign(math.Sqrt(pivot*pivot+squares), pivot)
	return beta, (beta - pivot) / beta, 1 / (pivot - beta)
}
