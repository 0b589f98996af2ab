package datatype

import (
	"math"
	"math/bits"
)

// addOK returns a+b and whether the sum fits.
func addOK(a, b int64) (int64, bool) {
	c := a + b
	return c, (c > a) == (b > 0)
}

// subOK returns a-b and whether the difference fits.
func subOK(a, b int64) (int64, bool) {
	c := a - b
	return c, (c < a) == (b > 0)
}

// mulOK returns a*b and whether the product fits.
func mulOK(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(magnitude(a), magnitude(b))
	if hi != 0 {
		return 0, false
	}
	if (a < 0) != (b < 0) {
		return int64(-lo), lo <= 1<<63
	}
	return int64(lo), lo <= math.MaxInt64
}

// magnitude returns |a|, which as an unsigned number exists for MinInt64 too.
func magnitude(a int64) uint64 {
	if a < 0 {
		return -uint64(a)
	}
	return uint64(a)
}

// A sum adds, subtracts and multiplies, and remembers whether a result did not fit.
type sum struct{ overflow bool }

func (s *sum) add(a, b int64) int64 {
	c, ok := addOK(a, b)
	s.overflow = s.overflow || !ok
	return c
}

func (s *sum) sub(a, b int64) int64 {
	c, ok := subOK(a, b)
	s.overflow = s.overflow || !ok
	return c
}

func (s *sum) mul(a, b int64) int64 {
	c, ok := mulOK(a, b)
	s.overflow = s.overflow || !ok
	return c
}
