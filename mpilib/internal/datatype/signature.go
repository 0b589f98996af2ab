package datatype

import (
	"fmt"
	"hash/fnv"
	"math/bits"
)

// A Signature stands for a sequence of basic elements (MPI-4.1, 3.3.1 and 5.1.1). Two are equal if
// the sequences are, whatever constructors and counts they came from; those of different sequences
// are equal with probability 2^-60. The zero Signature is that of the empty sequence. A signature
// is the same in every process, so it may be sent with a message.
type Signature struct {
	Elements int64  // number of named types' elements; -1: any number, some are MPI_PACKED
	Hash     uint64 // of the types' names, below 2^61-1; 0: they do not matter (Nameless)
	Form     uint64 // of what the elements look like, below 2^61-1
}

// Nameless returns s without the names of the types: it matches all elements that look alike. It is
// for elements of Go's types, which have none of C's names: an int32 may be an MPI_INT, or an MPI_INT32_T.
func (s Signature) Nameless() Signature {
	s.Hash = 0
	return s
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

// signature returns that of one element. It is computed from texts because numbers assigned at
// start-up could differ between programs.
func (k *kindInfo) signature() Signature {
	if k.name == packedName {
		return anything
	}
	return Signature{1, textHash(k.name), textHash(k.form())}
}

// form says what an element looks like. Single bytes that are no numbers are as unsigned ones: Go has one type for both.
func (k *kindInfo) form() string {
	c := k.class
	if c == octets && k.size == 1 {
		c = unsigned
	}
	return fmt.Sprintf("class %d, %d parts, %d bytes", c, k.parts, k.size)
}

// textHash returns the hash of a sequence of one.
func textHash(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64() % fieldSize
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
	return s.followed(u, fieldPow(u.Elements))
}

// followed returns the signature of s followed by u; shift is the hash base to the power of u's elements.
func (s Signature) followed(u Signature, shift uint64) Signature {
	return Signature{s.Elements + u.Elements, fieldAdd(fieldMul(s.Hash, shift), u.Hash), fieldAdd(fieldMul(s.Form, shift), u.Form)}
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
				all = all.followed(s, shift)
			}
		}
		s = s.followed(s, shift)
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
// (MPI-4.1, 3.2.4 and 3.3.1). MPI_PACKED matches anything, and elements without names match those that look alike.
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
	if sent.Hash == 0 {
		got = got.Nameless()
	}
	return got == sent, nil
}
