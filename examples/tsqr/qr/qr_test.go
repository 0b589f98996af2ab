package qr

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
)

const eps = 0x1p-52

// gramSchmidt is the oracle: modified Gram-Schmidt, done twice, which has
// nothing in common with reflections. R's diagonal is positive.
func gramSchmidt(a *Matrix) (q, r *Matrix) {
	q, r = a.Clone(), Identity(a.Cols)
	for range 2 {
		step := New(a.Cols, a.Cols)
		for j := range a.Cols {
			for i := range j {
				s := dot(q.Col(i), q.Col(j))
				step.Col(j)[i] = s
				axpy(q.Col(j), -s, q.Col(i))
			}
			norm := math.Sqrt(dot(q.Col(j), q.Col(j)))
			step.Col(j)[j] = norm
			for i := range q.Col(j) {
				q.Col(j)[i] /= norm
			}
		}
		r = Times(step, r)
	}
	return q, r
}

// check compares a factorization with the oracle and with what defines it.
func check(a, q, r *Matrix) error {
	n := a.Cols
	for j := range n {
		for i := range n {
			if v := r.At(i, j); i > j && v != 0 || i == j && v < 0 {
				return fmt.Errorf("R(%d, %d) is %g", i, j, v)
			}
		}
	}
	_, want := gramSchmidt(a)
	if d := Norm(Minus(r, want)); !(d <= 50*eps*Norm(a)) {
		return fmt.Errorf("R differs from the oracle's by %g", d)
	}
	if d := Norm(Minus(Gram(q), Identity(n))); !(d <= 1e-13) {
		return fmt.Errorf("Q'Q differs from I by %g", d)
	}
	if d := Norm(Minus(a, Times(q, r))) / Norm(a); !(d <= 1e-14*math.Sqrt(float64(n))) {
		return fmt.Errorf("A - QR is %g of A", d)
	}
	return nil
}

func TestFactorAlone(t *testing.T) {
	for _, s := range []struct{ rows, cols int }{{1, 1}, {5, 1}, {4, 4}, {9, 4}, {200, 17}, {1000, 64}} {
		a := Random(1, 0, s.rows, s.cols)
		p, err := Factor(a.Clone(), true, Alone{})
		if err != nil {
			t.Fatal(err)
		}
		r := p.R()
		q, err := p.Apply(Normalize(r))
		if err != nil {
			t.Fatal(err)
		}
		if err := check(a, q, r); err != nil {
			t.Errorf("%d x %d: %v", s.rows, s.cols, err)
		}
	}
}

// crew is ranks in this process that meet to add up.
type crew struct {
	barrier     *meeting
	sums, flops *int
	first       bool
}

type meeting struct {
	mu      sync.Mutex
	all     *sync.Cond
	size    int
	here    int
	turn    int
	sum, at []float64
}

func newMeeting(size int) *meeting {
	m := &meeting{size: size}
	m.all = sync.NewCond(&m.mu)
	return m
}

func (c crew) Sum(v []float64) error {
	if c.first {
		*c.sums++
	}
	m := c.barrier
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.here == 0 {
		m.sum = make([]float64, len(v))
	}
	axpy(m.sum, 1, v)
	turn := m.turn
	if m.here++; m.here == m.size {
		m.here, m.at = 0, m.sum
		m.turn++
		m.all.Broadcast()
	}
	for m.turn == turn {
		m.all.Wait()
	}
	copy(v, m.at)
	return nil
}

func (c crew) Compute(flops float64, f func()) error {
	if c.first {
		*c.flops += int(flops)
	}
	f()
	return nil
}

// A panel that lies on ranks has the same factors, in 2n-1 sums.
func TestFactorOnRanks(t *testing.T) {
	const n = 8
	for _, parts := range [][]int{{40}, {8, 3}, {10, 1, 30}, {20, 20, 20, 0}} {
		total := 0
		for _, rows := range parts {
			total += rows
		}
		a := Random(7, 0, total, n)
		all := newMeeting(len(parts))
		var sums, flops, afterFactor int
		var r *Matrix
		qs := make([]*Matrix, len(parts))
		errs := make([]error, len(parts))
		var ranks sync.WaitGroup
		row := 0
		for i, rows := range parts {
			mine := Random(7, row, rows, n)
			row += rows
			ranks.Go(func() {
				top := i == 0
				p, err := Factor(mine, top, crew{barrier: all, sums: &sums, flops: &flops, first: top})
				var signs *Matrix
				if top {
					afterFactor = sums
					r = p.R()
					signs = Normalize(r)
				}
				var again error
				qs[i], again = p.Apply(signs)
				errs[i] = errors.Join(err, again)
			})
		}
		ranks.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		q := New(total, n)
		row = 0
		for _, part := range qs {
			for j := range n {
				copy(q.Col(j)[row:], part.Col(j))
			}
			row += part.Rows
		}
		if err := check(a, q, r); err != nil {
			t.Errorf("%v: %v", parts, err)
		}
		if afterFactor != 2*n-1 || sums != 3*n-1 {
			t.Errorf("%v: %d sums for R and %d with Q, want %d and %d", parts, afterFactor, sums, 2*n-1, 3*n-1)
		}
	}
}

func TestCombine(t *testing.T) {
	for _, n := range []int{1, 2, 7, 64} {
		upper, _ := Factor(Random(1, 0, n+5, n), true, Alone{})
		lower, _ := Factor(Random(2, 0, n+5, n), true, Alone{})
		r, below := upper.R(), lower.R()
		stack := New(2*n, n)
		for j := range n {
			copy(stack.Col(j), r.Col(j))
			copy(stack.Col(j)[n:], below.Col(j))
		}
		p := Combine(r, below)
		top := Normalize(r)
		bottom := p.Apply(top)
		q := New(2*n, n)
		for j := range n {
			copy(q.Col(j), top.Col(j))
			copy(q.Col(j)[n:], bottom.Col(j))
		}
		if err := check(stack, q, r); err != nil {
			t.Errorf("order %d: %v", n, err)
		}
	}
}

// A column of zeros has no reflection, and R then has a zero.
func TestZeroColumn(t *testing.T) {
	a := Random(3, 0, 10, 3)
	clear(a.Col(1))
	p, err := Factor(a.Clone(), true, Alone{})
	if err != nil {
		t.Fatal(err)
	}
	r := p.R()
	q, err := p.Apply(Identity(3))
	if err != nil {
		t.Fatal(err)
	}
	if d := Norm(Minus(a, Times(q, r))); r.At(1, 1) != 0 || !(d < 1e-14) {
		t.Errorf("R(1, 1) is %g, A - QR %g", r.At(1, 1), d)
	}
}

func TestPack(t *testing.T) {
	r := Unpack(3, []float64{1, 2, 3, 4, 5, 6})
	if want := []float64{1, 0, 0, 2, 3, 0, 4, 5, 6}; !slices.Equal(r.Data, want) {
		t.Errorf("unpacked %v", r.Data)
	}
	if got := Pack(r); !slices.Equal(got, []float64{1, 2, 3, 4, 5, 6}) || len(got) != Packed(3) {
		t.Errorf("packed %v", got)
	}
}

// Parts are parts of one matrix, whose elements fill the interval.
func TestRandom(t *testing.T) {
	whole := Random(5, 0, 1000, 3)
	part := Random(5, 400, 100, 3)
	least, most, sum := 1.0, -1.0, 0.0
	for j := range 3 {
		if !slices.Equal(part.Col(j), whole.Col(j)[400:500]) {
			t.Errorf("column %d of rows 400 to 500 is another", j)
		}
		for _, v := range whole.Col(j) {
			least, most, sum = min(least, v), max(most, v), sum+v
		}
	}
	if least < -1 || least > -0.99 || most >= 1 || most < 0.99 || math.Abs(sum/3000) > 0.05 {
		t.Errorf("from %g to %g, mean %g", least, most, sum/3000)
	}
	if slices.Equal(whole.Data, Random(6, 0, 1000, 3).Data) {
		t.Error("another seed, the same matrix")
	}
}

func BenchmarkFactor(b *testing.B) {
	a := Random(1, 0, 4096, 64)
	for b.Loop() {
		Factor(a.Clone(), true, Alone{})
	}
	b.ReportMetric(2*4096*64*64*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mflop/s")
}
