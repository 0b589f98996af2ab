// Package random is the pseudorandom number generator that the NAS Parallel
// Benchmarks prescribe: x(k+1) = a x(k) mod 2^46 (NAS report RNR-94-007,
// section 2.3). It is exact: 46-bit integers, no floating point. Multiplying
// in 64 bits loses only bits above the 46 that count.
//
// A Generator is a plain value without locks; it belongs to one goroutine.
package random

// Multiplier is a, 5^13, for both kernels.
const Multiplier = 1220703125

// Bits is the width of the state.
const Bits = 46

const mask = 1<<Bits - 1

// Scale is the weight of a state's lowest bit in a uniform deviate: 2^-46.
const Scale = 1.0 / (1 << Bits)

// Generator holds the number it returned last, at first the seed.
type Generator struct{ x uint64 }

// New returns a generator that starts at seed, of which the low 46 bits count.
// Odd seeds have the full period of 2^44.
func New(seed uint64) Generator { return Generator{seed & mask} }

// Next returns the next 46-bit number.
func (g *Generator) Next() uint64 {
	g.x = g.x * Multiplier & mask
	return g.x
}

// Float64 returns the next number as a uniform deviate in (0, 1). No rounding
// takes place.
func (g *Generator) Float64() float64 { return float64(g.Next()) * Scale }

// Skip moves on as n calls of Next would, in log2 n steps, so that every rank
// can start at its own place in the one sequence.
func (g *Generator) Skip(n uint64) {
	for factor := uint64(Multiplier); n > 0; n >>= 1 {
		if n&1 != 0 {
			g.x = g.x * factor & mask
		}
		factor = factor * factor & mask
	}
}
