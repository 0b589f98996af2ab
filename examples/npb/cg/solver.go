package cg

import (
	"context"
	"fmt"
	"math"

	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// solver is one rank's part. Vectors are the rank's columns of them.
type solver struct {
	p        problem
	at       place
	comm     *mpilib.Comm
	row      *mpilib.Comm // the ranks of our grid row, which have all columns between them
	a        matrix
	messages npb.Stopwatch

	x, z, p1, q, r []float64 // p1 is the search direction
	product        []float64 // one element a matrix row
	scalars        [2]float64
}

const tagTranspose = 1

func newSolver(ctx context.Context, comm *mpilib.Comm, p problem) (*solver, error) {
	s := &solver{p: p, comm: comm, at: placeOf(comm.Rank(), comm.Size(), p.n)}
	var err error
	if s.row, err = comm.Split(ctx, s.at.row, s.at.col); err != nil {
		return nil, fmt.Errorf("the ranks of a grid row: %w", err)
	}
	s.a = p.makeBlock(s.at)
	width := s.at.colHigh - s.at.colLow
	for _, v := range []*[]float64{&s.x, &s.z, &s.p1, &s.q, &s.r} {
		*v = make([]float64, width)
	}
	s.product = make([]float64, s.at.rowHigh-s.at.rowLow)
	return s, nil
}

// iterate does inverse iterations from a vector of ones and returns the last
// estimate of the eigenvalue.
func (s *solver) iterate(ctx context.Context, iterations int) (zeta float64, err error) {
	for i := range s.x {
		s.x[i] = 1
	}
	for it := 1; it <= iterations; it++ {
		residual, err := s.solve(ctx)
		if err != nil {
			return 0, fmt.Errorf("iteration %d: %w", it, err)
		}
		if !(residual < converged) { // nor is it when not a number
			return 0, fmt.Errorf("iteration %d: the solution's residual is %g, not below %g: the products cannot be right", it, residual, converged)
		}
		xz, zz, err := s.dots(ctx, s.x, s.z, s.z, s.z)
		if err != nil {
			return 0, fmt.Errorf("iteration %d: %w", it, err)
		}
		zeta = s.p.shift + 1/xz
		norm := 1 / math.Sqrt(zz)
		for i, z := range s.z {
			s.x[i] = norm * z
		}
	}
	return zeta, nil
}

// solve sets z to an approximate solution of A z = x and returns the norm of
// x - A z, computed from z itself.
func (s *solver) solve(ctx context.Context) (residual float64, err error) {
	clear(s.z)
	copy(s.r, s.x)
	copy(s.p1, s.x)
	rho, err := s.dot(ctx, s.r, s.r)
	if err != nil {
		return 0, err
	}
	for range steps {
		if err := s.multiply(ctx, s.p1, s.q); err != nil {
			return 0, err
		}
		pq, err := s.dot(ctx, s.p1, s.q)
		if err != nil {
			return 0, err
		}
		alpha := rho / pq
		for i, p := range s.p1 {
			s.z[i] += alpha * p
			s.r[i] -= alpha * s.q[i]
		}
		last := rho
		if rho, err = s.dot(ctx, s.r, s.r); err != nil {
			return 0, err
		}
		beta := rho / last
		for i, r := range s.r {
			s.p1[i] = r + beta*s.p1[i]
		}
	}
	if err := s.multiply(ctx, s.z, s.q); err != nil {
		return 0, err
	}
	for i, x := range s.x {
		s.r[i] = x - s.q[i]
	}
	square, err := s.dot(ctx, s.r, s.r)
	return math.Sqrt(square), err
}

// multiply sets out to A v.
func (s *solver) multiply(ctx context.Context, v, out []float64) error {
	s.a.times(v, s.product)
	return s.messages.Time(func() error {
		if err := mpilib.Allreduce(ctx, s.row, s.product, s.product, mpilib.Sum); err != nil {
			return fmt.Errorf("product, grid row %d: %w", s.at.row, err)
		}
		theirs := s.product[s.at.sendLow-s.at.rowLow : s.at.sendHigh-s.at.rowLow]
		if s.at.partner == s.comm.Rank() {
			copy(out, theirs)
			return nil
		}
		_, err := mpilib.Sendrecv(ctx, s.comm, theirs, s.at.partner, tagTranspose, out, s.at.partner, tagTranspose)
		if err != nil {
			return fmt.Errorf("product, transposed: %w", err)
		}
		return nil
	})
}

func (s *solver) dot(ctx context.Context, a, b []float64) (float64, error) {
	s.scalars[0] = inner(a, b)
	err := s.sum(ctx, s.scalars[:1])
	return s.scalars[0], err
}

// dots is two dot products for the price of one.
func (s *solver) dots(ctx context.Context, a, b, c, d []float64) (ab, cd float64, err error) {
	s.scalars = [2]float64{inner(a, b), inner(c, d)}
	err = s.sum(ctx, s.scalars[:])
	return s.scalars[0], s.scalars[1], err
}

func (s *solver) sum(ctx context.Context, v []float64) error {
	return s.messages.Time(func() error {
		if err := mpilib.Allreduce(ctx, s.row, v, v, mpilib.Sum); err != nil {
			return fmt.Errorf("dot product, grid row %d: %w", s.at.row, err)
		}
		return nil
	})
}

func inner(a, b []float64) (sum float64) {
	b = b[:len(a)]
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}
