package linear

import (
	"errors"
	"math"
)

// ErrBreakdown says that a method cannot go on: the matrix is not of its kind, or singular.
var ErrBreakdown = errors.New("the Krylov method breaks down")

// A Solver solves m x = b from a first guess in x until the Euclidean norm of the residual has fallen to so much of its
// first value, or after so many iterations, and returns how many it took. Its memory is used again by the
// next call.
type Solver interface {
	Solve(m *Matrix, x, b []float64, reduction float64, most int) (iterations int, err error)
}

// CG is the method of conjugate gradients, for symmetric positive definite matrices (Hestenes and Stiefel, 1952).
type CG struct{ r, p, q []float64 }

// Solve implements Solver.
func (s *CG) Solve(m *Matrix, x, b []float64, reduction float64, most int) (int, error) {
	resize(len(x), &s.r, &s.p, &s.q)
	rho := residual(s.r, m, x, b)
	stop := reduction * reduction * rho
	copy(s.p, s.r)
	for n := range most {
		if rho <= stop {
			return n, nil
		}
		m.Mul(s.q, s.p)
		pq := dot(s.p, s.q)
		if !(pq > 0) {
			return n, ErrBreakdown
		}
		alpha := rho / pq
		addScaled(x, alpha, s.p)
		addScaled(s.r, -alpha, s.q)
		last := rho
		rho = dot(s.r, s.r)
		for i, v := range s.r {
			s.p[i] = v + rho/last*s.p[i]
		}
	}
	return most, nil
}

// BiCGStab is the stabilised method of biconjugate gradients, for other matrices (van der Vorst, 1992).
type BiCGStab struct{ r, first, p, v, t []float64 }

// Solve implements Solver.
func (s *BiCGStab) Solve(m *Matrix, x, b []float64, reduction float64, most int) (int, error) {
	resize(len(x), &s.r, &s.first, &s.p, &s.v, &s.t)
	norm := residual(s.r, m, x, b)
	stop := reduction * reduction * norm
	copy(s.first, s.r)
	clear(s.p)
	clear(s.v)
	rho, alpha, omega := 1.0, 1.0, 1.0
	for n := range most {
		if norm <= stop {
			return n, nil
		}
		last := rho
		rho = dot(s.first, s.r)
		beta := rho / last * alpha / omega
		for i := range s.p {
			s.p[i] = s.r[i] + beta*(s.p[i]-omega*s.v[i])
		}
		m.Mul(s.v, s.p)
		alpha = rho / dot(s.first, s.v)
		if !isFinite(alpha) || rho == 0 {
			return n, ErrBreakdown
		}
		addScaled(s.r, -alpha, s.v)
		addScaled(x, alpha, s.p)
		if norm = dot(s.r, s.r); norm <= stop {
			return n + 1, nil
		}
		m.Mul(s.t, s.r)
		omega = dot(s.t, s.r) / dot(s.t, s.t)
		if !isFinite(omega) || omega == 0 {
			return n, ErrBreakdown
		}
		addScaled(x, omega, s.r)
		addScaled(s.r, -omega, s.t)
		norm = dot(s.r, s.r)
	}
	return most, nil
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// residual computes r = b - m x, and returns the square of its norm.
func residual(r []float64, m *Matrix, x, b []float64) float64 {
	m.Mul(r, x)
	for i, v := range b {
		r[i] = v - r[i]
	}
	return dot(r, r)
}

func resize(n int, vectors ...*[]float64) {
	for _, v := range vectors {
		if len(*v) != n {
			*v = make([]float64, n)
		}
	}
}
