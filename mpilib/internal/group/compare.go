package group

import (
	"fmt"
	"slices"
)

// A Comparison is the result of comparing two groups (7.3.1).
type Comparison int

// The results of Compare. They mean what MPI_IDENT, MPI_SIMILAR and
// MPI_UNEQUAL mean.
const (
	Identical Comparison = iota // the same members in the same order
	Similar                     // the same members in another order
	Unequal
)

func (c Comparison) String() string {
	switch c {
	case Identical:
		return "identical"
	case Similar:
		return "similar"
	case Unequal:
		return "unequal"
	}
	return fmt.Sprintf("Comparison(%d)", int(c))
}

// Compare compares two groups (MPI_Group_compare, 7.3.1).
func Compare(a, b *Group) Comparison {
	if a.size != b.size {
		return Unequal
	}
	if slices.Equal(a.worlds, b.worlds) {
		return Identical
	}
	for world := range a.WorldRanks() {
		if !b.Contains(world) {
			return Unequal
		}
	}
	return Similar
}

// Translate returns the ranks in another group of the processes that have the
// given ranks in g: Undefined for those that are not in it, ProcNull for
// ProcNull (MPI_Group_translate_ranks, 7.3.1). The result is the caller's.
func (g *Group) Translate(ranks []int, to *Group) ([]int, error) {
	translated := make([]int, len(ranks))
	for i, rank := range ranks {
		if rank == ProcNull {
			translated[i] = ProcNull
			continue
		}
		world := g.WorldRank(rank)
		if world == Undefined {
			return nil, fmt.Errorf("group: Translate: ranks[%d] = %d: %w: %s", i, rank, ErrRank, g.extent())
		}
		translated[i] = to.Rank(world)
	}
	return translated, nil
}
