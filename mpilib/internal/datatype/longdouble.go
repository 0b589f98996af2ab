package datatype

import (
	"encoding/binary"
	"math"
	"math/big"
	"runtime"
)

// A quad is a number in IEEE binary128, the long double of external32: sign,
// 15 bits of exponent, 112 of fraction.
type quad struct{ high, low uint64 }

const (
	quadExpBits  = 0x7fff
	quadBias     = 16383
	quadFraction = 1<<48 - 1 // of high
)

// A longDoubleFormat is a machine's representation of a long double.
type longDoubleFormat uint8

const (
	x87Format    longDoubleFormat = iota // 80 bits with an explicit leading one
	quadFormat                           // the same as external32's
	doubleFormat                         // the same as a double
)

// nativeLongDouble is this machine's format.
var nativeLongDouble = longDoubleOf(runtime.GOOS, runtime.GOARCH)

func longDoubleOf(goos, goarch string) longDoubleFormat {
	switch {
	case goarch == "amd64":
		return x87Format
	case goos == "darwin":
		return doubleFormat
	}
	return quadFormat
}

// toQuad converts the long double in memory b.
func (f longDoubleFormat) toQuad(b []byte) quad {
	switch f {
	case x87Format:
		return quadOfX87(binary.LittleEndian.Uint16(b[8:]), binary.LittleEndian.Uint64(b))
	case doubleFormat:
		return quadOfDouble(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	}
	return quad{binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b)}
}

// fromQuad writes q to the long double in memory b, rounded to the nearest.
func (f longDoubleFormat) fromQuad(b []byte, q quad) {
	switch f {
	case x87Format:
		top, mantissa := q.x87()
		binary.LittleEndian.PutUint64(b, mantissa)
		binary.LittleEndian.PutUint64(b[8:], uint64(top)) // and the padding
	case doubleFormat:
		binary.LittleEndian.PutUint64(b, math.Float64bits(q.double()))
	default:
		binary.LittleEndian.PutUint64(b, q.low)
		binary.LittleEndian.PutUint64(b[8:], q.high)
	}
}

func (q quad) nan() bool {
	return q.high>>48&quadExpBits == quadExpBits && (q.high&quadFraction != 0 || q.low != 0)
}

// quadOfX87 converts exactly. top is the sign and the exponent. Encodings that the processor
// rejects become NaN.
func quadOfX87(top uint16, mantissa uint64) quad {
	exp := uint64(top) & quadExpBits
	switch explicit := mantissa>>63 != 0; {
	case exp == 0 && explicit:
		exp = 1 // a pseudo-denormal has the value of the normal number
	case exp != 0 && !explicit:
		return quad{uint64(top)<<48 | quadExpBits<<48 | 1<<47, 0}
	}
	fraction := mantissa << 1 >> 1 // 63 bits, the upper of 112
	return quad{uint64(top)>>15<<63 | exp<<48 | fraction>>15, fraction << 49}
}

// x87 rounds to 64 bits of mantissa, ties to even.
func (q quad) x87() (top uint16, mantissa uint64) {
	sign := uint16(q.high >> 63 << 15)
	exp := q.high >> 48 & quadExpBits
	fraction := q.high&quadFraction<<15 | q.low>>49
	if q.nan() {
		return sign | quadExpBits, fraction | 3<<62 // quiet, leading one set
	}
	const half = 1 << 48
	if rest := q.low & (1<<49 - 1); rest > half || rest == half && fraction&1 != 0 {
		fraction++
		exp += fraction >> 63 // a carry makes the next power of two
		fraction &= 1<<63 - 1
	}
	if exp != 0 {
		fraction |= 1 << 63
	}
	return sign | uint16(exp), fraction
}

// quadOfDouble converts exactly.
func quadOfDouble(f float64) quad {
	bits := math.Float64bits(f)
	sign, fraction := bits>>63<<63, bits&(1<<52-1)
	switch {
	case f != f || math.IsInf(f, 0):
		return quad{sign | quadExpBits<<48 | fraction>>4, fraction << 60}
	case f == 0:
		return quad{sign, 0}
	}
	half, exp := math.Frexp(f) // 0.5 <= |half| < 1, so subnormals are normal
	fraction = math.Float64bits(half) & (1<<52 - 1)
	return quad{sign | uint64(exp-1+quadBias)<<48 | fraction>>4, fraction << 60}
}

// double rounds to the nearest double, ties to even.
func (q quad) double() float64 {
	sign := 1.0
	if q.high>>63 != 0 {
		sign = -1
	}
	exp := int(q.high >> 48 & quadExpBits)
	switch {
	case q.nan():
		return math.NaN()
	case exp == quadExpBits:
		return math.Inf(int(sign))
	}
	lead := uint64(1) << 48
	if exp == 0 { // subnormal, and far below the doubles
		lead, exp = 0, 1
	}
	m := new(big.Int).SetUint64(q.high&quadFraction | lead)
	m.Or(m.Lsh(m, 64), new(big.Int).SetUint64(q.low))
	v := new(big.Float).SetMantExp(new(big.Float).SetInt(m), exp-quadBias-112)
	f, _ := v.Float64()
	return math.Copysign(f, sign)
}
