package datatype

import (
	"hash/fnv"
	"math/bits"
)

// A Signature stands for a sequence of basic elements (MPI-4.1, 3.3.1 and 5.1.1). Two are equal if
// the sequences are, whatever constructors and counts they came from; those of different sequences
// are equal with probability 2^-60. The zero Signature is that of the empty sequence. A signature
// is the same in every process, so it may be sent with a message.
type Signature struct {
	Elements int64  // number of named types' elements; -1: any number, some are MPI_PACKED
	Hash     uint64 // below 2^61-1
}

// The hash is a polynomial in a fixed base over the field of 2^61-1 elements: the hash of two
// concatenated sequences is computed from theirs.
const (
	fieldSize  = 1<<61 - 1
	hashBase   = 0x1d8af066d1c4e95b % fieldSize
	packedName = "MPI_PACKED"
)

// anything is the signature of sequences with MPI_PACKED elements.
var anything = Signature{Elements: -1}

// basicSignature returns the signature of one element of the named type. It is computed from the
// name because numbers assigned at start-up could differ between programs.
func basicSignature(name string) Signature {
	if name == packedName {
		return anything
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	return Signature{1, h.Sum64() % fieldSize}
}

// fieldMul multiplies in the field; a and b are below its size.
func fieldMul(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return fieldAdd(lo&fieldSize, hi<<3|lo>>61) // 2^61 is 1
}

// fieldAdd adds in the field; a and b are at most its size.
func fieldAdd(a, b uint64) uint64 {
	c := a + b
	if c >= fieldSize {
		c -= fieldSize
	}
	return c
}

// fieldPow returns the hash base to the power of n.
func fieldPow(n int64) uint64 {
	p, square := uint64(1), uint64(hashBase)
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			p = fieldMul(p, square)
		}
		square = fieldMul(square, square)
	}
	return p
}

// then returns the signature of s followed by u. The caller must ensure that the number of elements
// does not overflow.
func (s Signature) then(u Signature) Signature {
	switch {
	case s.Elements == 0:
		return u
	case u.Elements == 0:
		return s
	case s == anything || u == anything:
		return anything
	}
	return Signature{s.Elements + u.Elements, fieldAdd(fieldMul(s.Hash, fieldPow(u.Elements)), u.Hash)}
}

// times returns the signature of n times s, n at least 0.
func (s Signature) times(n int64) Signature {
	if s == anything && n > 0 || n == 1 {
		return s
	}
	// Powers of the base are squared along with s; otherwise this would take time proportional to a
	// squared logarithm.
	var all Signature
	shift := fieldPow(s.Elements)
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			if all.Elements == 0 {
				all = s
			} else {
				all = Signature{all.Elements + s.Elements, fieldAdd(fieldMul(all.Hash, shift), s.Hash)}
			}
		}
		s = Signature{2 * s.Elements, fieldAdd(fieldMul(s.Hash, shift), s.Hash)}
		shift = fieldMul(shift, shift)
	}
	return all
}

// Signature returns the signature of a message of count elements of t.
func (t *Type) Signature(count int64) (Signature, error) {
	if count < 0 || count > t.maxCount() {
		return Signature{}, badArg("Signature", "count", "is %d of %v", count, t)
	}
	return t.sig.times(count), nil
}

// Accepts reports whether a receive of count elements of t may take a message with the signature
// sent: whether it has the same sequence of basic elements or a longer one that begins with it
// (MPI-4.1, 3.2.4 and 3.3.1). MPI_PACKED matches anything.
func (t *Type) Accepts(count int64, sent Signature) (bool, error) {
	whole, err := t.Signature(count)
	switch {
	case err != nil:
		return false, err
	case whole == anything || sent == anything || sent.Elements == 0:
		return true, nil
	case sent.Elements < 0 || sent.Elements > whole.Elements:
		return false, nil
	}
	per := t.sig.Elements
	got := t.sig.times(sent.Elements / per)
	if rest := sent.Elements % per; rest > 0 {
		got = got.then(t.nodeOf(true).prefix(rest))
	}
	return got == sent, nil
}
