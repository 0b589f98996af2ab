package group

import (
	"fmt"
	"slices"
)

// Incl returns the members that have the given ranks in g, in the order given: rank i of the result
// is ranks[i] in g (MPI_Group_incl, 7.3.2). Every rank must be in g and none may be given twice. No
// ranks give the empty group.
func (g *Group) Incl(ranks []int) (*Group, error) {
	if _, err := g.setOf(ranks); err != nil {
		return nil, fmt.Errorf("group: Incl: %w", err)
	}
	var worlds table
	for i, rank := range ranks {
		worlds = worlds.add(int32(i), int32(g.WorldRank(rank)))
	}
	return seal(worlds), nil
}

// Excl returns the members that have none of the given ranks in g, ordered as in g (MPI_Group_excl,
// 7.3.2). Every rank must be in g and none may be given twice. No ranks give g.
func (g *Group) Excl(ranks []int) (*Group, error) {
	out, err := g.setOf(ranks)
	if err != nil {
		return nil, fmt.Errorf("group: Excl: %w", err)
	}
	return g.filter(func(rank, _ int) bool { return !out.has(rank) }), nil
}

// setOf checks the ranks of Incl and Excl and returns their set.
func (g *Group) setOf(ranks []int) (bitset, error) {
	seen := newBitset(g.size)
	for i, rank := range ranks {
		if rank < 0 || rank >= g.size {
			return nil, fmt.Errorf("ranks[%d] = %d: %w: %s", i, rank, ErrRank, g.extent())
		}
		if seen.has(rank) {
			return nil, fmt.Errorf("ranks[%d] = %d: %w: ranks[%d] is the same", i, rank, ErrArg, slices.Index(ranks, rank))
		}
		seen.add(rank)
	}
	return seen, nil
}

// A Triplet stands for ranks First, First+Stride, ... up to Last, or down to it if Stride is
// negative; Last itself is included only if the steps reach it.
type Triplet struct {
	First, Last, Stride int
}

// RangeIncl returns the members whose ranks in g the triplets give, in the order given
// (MPI_Group_range_incl, 7.3.2). Every rank that the triplets give must be in g, and none may be
// given twice. A stride must not be zero, and must lead from First towards Last.
func (g *Group) RangeIncl(ranges []Triplet) (*Group, error) {
	if _, err := g.chosenRanges(ranges); err != nil {
		return nil, fmt.Errorf("group: RangeIncl: %w", err)
	}
	var worlds table
	next := int32(0)
	for _, t := range ranges {
		for i := range t.steps() + 1 {
			worlds = worlds.add(next, int32(g.WorldRank(t.First+int(i)*t.Stride)))
			next++
		}
	}
	return seal(worlds), nil
}

// RangeExcl returns the members whose ranks in g no triplet gives, ordered as
// in g (MPI_Group_range_excl, 7.3.2). The triplets obey the rules of RangeIncl.
func (g *Group) RangeExcl(ranges []Triplet) (*Group, error) {
	out, err := g.chosenRanges(ranges)
	if err != nil {
		return nil, fmt.Errorf("group: RangeExcl: %w", err)
	}
	return g.filter(func(rank, _ int) bool { return !out.has(rank) }), nil
}

// chosenRanges checks the triplets and returns the set of their ranks.
func (g *Group) chosenRanges(ranges []Triplet) (bitset, error) {
	seen := newBitset(g.size)
	for i, t := range ranges {
		if err := t.check(g); err != nil {
			return nil, fmt.Errorf("ranges[%d] = %v: %w", i, t, err)
		}
		for step := range t.steps() + 1 {
			rank := t.First + int(step)*t.Stride
			if seen.has(rank) {
				first := slices.IndexFunc(ranges, func(t Triplet) bool { return t.gives(rank) })
				return nil, fmt.Errorf("ranges[%d] = %v: %w: rank %d is in ranges[%d], too", i, t, ErrArg, rank, first)
			}
			seen.add(rank)
		}
	}
	return seen, nil
}

func (t Triplet) check(g *Group) error {
	switch {
	case t.Stride == 0:
		return fmt.Errorf("%w: the stride is zero", ErrArg)
	case t.First < 0 || t.First >= g.size:
		return fmt.Errorf("first rank %d: %w: %s", t.First, ErrRank, g.extent())
	case t.First < t.Last && t.Stride < 0 || t.First > t.Last && t.Stride > 0:
		return fmt.Errorf("%w: stride %d does not lead from %d to %d", ErrArg, t.Stride, t.First, t.Last)
	}
	// Only the ranks that the steps reach must exist, not Last.
	room := g.size - 1 - t.First
	if t.Stride < 0 {
		room = t.First
	}
	if whole := uint64(room) / t.absStride(); t.steps() > whole {
		return fmt.Errorf("%w after rank %d: %s", ErrRank, t.First+int(whole)*t.Stride, g.extent())
	}
	return nil
}

// absStride is the stride's absolute value. Unsigned arithmetic wraps the smallest int to its true
// absolute value, and likewise the distance in steps.
func (t Triplet) absStride() uint64 {
	if t.Stride < 0 {
		return -uint64(t.Stride)
	}
	return uint64(t.Stride)
}

// steps returns how many ranks follow First, given that the stride leads to Last.
func (t Triplet) steps() uint64 {
	distance := uint64(t.Last) - uint64(t.First)
	if t.Stride < 0 {
		distance = -distance
	}
	return distance / t.absStride()
}

// gives reports whether a checked triplet contains a rank of the group.
func (t Triplet) gives(rank int) bool {
	off := rank - t.First // both are in the group
	return off%t.Stride == 0 && off/t.Stride >= 0 && uint64(off/t.Stride) <= t.steps()
}

// A bitset is a set of small numbers: 12 KiB for a group of 100,000.
type bitset []uint64

func newBitset(n int) bitset    { return make(bitset, (n+63)/64) }
func (b bitset) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bitset) add(i int)      { b[i/64] |= 1 << (i % 64) }
