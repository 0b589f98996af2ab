package agree

import (
	"fmt"
	"iter"
	"math/bits"
	"slices"
)

// A Set is a set of ranks. The zero Set is empty. Sets are immutable and may be shared, also
// between goroutines.
type Set struct {
	words []uint64 // the last is not 0, so that equal sets have equal words
}

// SetOf returns the set of the ranks, which must not be negative.
func SetOf(ranks ...int) Set {
	if len(ranks) == 0 {
		return Set{}
	}
	words := make([]uint64, slices.Max(ranks)/64+1)
	for _, r := range ranks {
		words[r/64] |= 1 << (r % 64)
	}
	return Set{words}
}

// Has reports whether rank is in s.
func (s Set) Has(rank int) bool {
	return rank >= 0 && rank/64 < len(s.words) && s.words[rank/64]>>(rank%64)&1 == 1
}

// Len returns how many ranks are in s.
func (s Set) Len() int { return s.below(64 * len(s.words)) }

// Empty reports whether s has no ranks.
func (s Set) Empty() bool { return len(s.words) == 0 }

// Equal reports whether s and t have the same ranks.
func (s Set) Equal(t Set) bool { return slices.Equal(s.words, t.words) }

// Ranks yields the ranks of s in ascending order.
func (s Set) Ranks() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range s.words {
			for ; w != 0; w &= w - 1 {
				if !yield(64*i + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}

// Union returns the ranks in s or t.
func (s Set) Union(t Set) Set {
	if len(s.words) < len(t.words) {
		s, t = t, s
	}
	if t.In(s) {
		return s
	}
	words := slices.Clone(s.words)
	for i, w := range t.words {
		words[i] |= w
	}
	return Set{words}
}

// Intersect returns the ranks in s and t.
func (s Set) Intersect(t Set) Set {
	words := slices.Clone(s.words[:min(len(s.words), len(t.words))])
	for i := range words {
		words[i] &= t.words[i]
	}
	return trimmed(words)
}

// Minus returns the ranks in s that are not in t.
func (s Set) Minus(t Set) Set {
	words := slices.Clone(s.words)
	for i := range min(len(s.words), len(t.words)) {
		words[i] &^= t.words[i]
	}
	return trimmed(words)
}

// In reports whether all ranks of s are in t.
func (s Set) In(t Set) bool {
	for i, w := range s.words {
		if i >= len(t.words) || w&^t.words[i] != 0 {
			return false
		}
	}
	return true
}

func (s Set) String() string { return fmt.Sprint(slices.Collect(s.Ranks())) }

// below returns how many ranks of s are less than n.
func (s Set) below(n int) int {
	count := 0
	for i, w := range s.words {
		if n < 64*i+64 {
			return count + bits.OnesCount64(w&(1<<max(0, n-64*i)-1))
		}
		count += bits.OnesCount64(w)
	}
	return count
}

// lowestOutside returns the lowest rank that is not in s.
func (s Set) lowestOutside() int {
	for i, w := range s.words {
		if ^w != 0 {
			return 64*i + bits.TrailingZeros64(^w)
		}
	}
	return 64 * len(s.words)
}

func trimmed(words []uint64) Set {
	for len(words) > 0 && words[len(words)-1] == 0 {
		words = words[:len(words)-1]
	}
	return Set{words}
}

// all returns the ranks below n.
func all(n int) Set {
	words := make([]uint64, (n+63)/64)
	for i := range words {
		words[i] = ^uint64(0)
	}
	if n%64 != 0 {
		words[len(words)-1] = 1<<(n%64) - 1
	}
	return Set{words}
}
