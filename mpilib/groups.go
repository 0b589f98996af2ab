package mpilib

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
)

// Group is an ordered set of processes (MPI-4.1, section 7.3). It is immutable, needs only a few
// words for regular groups of any size, and may be shared between goroutines. All its operations
// are local. It need not be freed.
type Group struct {
	g    *group.Group
	self int // world rank of this process; Undefined in EmptyGroup
}

// EmptyGroup is the group without members (MPI_GROUP_EMPTY).
var EmptyGroup = &Group{group.Empty, Undefined}

// Triplet stands for the ranks First, First+Stride, ... up to Last, or down to
// it when Stride is negative (MPI-4.1, section 7.3.2).
type Triplet struct {
	First, Last, Stride int
}

func triplets(ranges []Triplet) []group.Triplet {
	list := make([]group.Triplet, len(ranges))
	for i, t := range ranges {
		list[i] = group.Triplet(t)
	}
	return list
}

// Comparison is the result of comparing two groups or communicators.
type Comparison int

// The results of Compare and CompareGroups.
const (
	Ident     Comparison = iota // the same communicator; the same members in the same order
	Congruent                   // communicators of the same processes in the same order
	Similar                     // the same processes in another order
	Unequal
)

func (c Comparison) String() string {
	names := [...]string{"ident", "congruent", "similar", "unequal"}
	if c < 0 || int(c) >= len(names) {
		return fmt.Sprintf("Comparison(%d)", int(c))
	}
	return names[c]
}

// Group returns the processes of c, those of the caller's side in an
// intercommunicator (MPI_Comm_group; MPI-4.1, section 7.3.2).
func (c *Comm) Group() *Group { return c.groupOf(c.core.Group) }

// inner returns the group of the internal packages, nil for nil.
func (g *Group) inner() *group.Group {
	if g == nil {
		return nil
	}
	return g.g
}

func (c *Comm) groupOf(g *group.Group) *Group { return &Group{g, c.world.engine.Rank()} }

// Size returns the number of members (MPI_Group_size; MPI-4.1, section 7.3.1).
func (g *Group) Size() int { return g.g.Size() }

// Rank returns the caller's rank, or Undefined if this process is not a member (MPI_Group_rank;
// MPI-4.1, section 7.3.1).
func (g *Group) Rank() int { return g.g.Rank(g.self) }

// WorldRank returns a member's rank in the world, or Undefined if g has no such rank.
func (g *Group) WorldRank(rank int) int { return g.g.WorldRank(rank) }

// String lists the world ranks, as "0-3 9 20-30/5 (8 processes)".
func (g *Group) String() string { return g.g.String() }

// TranslateRanks returns the ranks in another group of the processes that have
// the given ranks in g: Undefined for those that are not in it, ProcNull for
// ProcNull (MPI_Group_translate_ranks; MPI-4.1, section 7.3.1).
func (g *Group) TranslateRanks(ranks []int, to *Group) ([]int, error) {
	return g.g.Translate(ranks, to.g)
}

// CompareGroups returns Ident, Similar or Unequal (MPI_Group_compare; MPI-4.1,
// section 7.3.1).
func CompareGroups(a, b *Group) Comparison { return compared(group.Compare(a.g, b.g)) }

func compared(c group.Comparison) Comparison {
	return map[group.Comparison]Comparison{group.Identical: Ident, group.Similar: Similar, group.Unequal: Unequal}[c]
}

// Union returns all members of g, followed by those of b that are not in g
// (MPI_Group_union; MPI-4.1, section 7.3.2).
func (g *Group) Union(b *Group) *Group { return g.combined(b, group.Union(g.g, b.g)) }

// Intersection returns the members of g that are also in b, ordered as in g
// (MPI_Group_intersection; MPI-4.1, section 7.3.2).
func (g *Group) Intersection(b *Group) *Group { return g.combined(b, group.Intersection(g.g, b.g)) }

// Difference returns the members of g that are not in b, ordered as in g
// (MPI_Group_difference; MPI-4.1, section 7.3.2).
func (g *Group) Difference(b *Group) *Group { return g.combined(b, group.Difference(g.g, b.g)) }

// Incl returns the members that have the given ranks in g, in the order given
// (MPI_Group_incl; MPI-4.1, section 7.3.2). No ranks give the empty group.
func (g *Group) Incl(ranks []int) (*Group, error) { return g.derived(g.g.Incl(ranks)) }

// Excl returns the members that have none of the given ranks in g, ordered as
// in g (MPI_Group_excl; MPI-4.1, section 7.3.2). No ranks give g.
func (g *Group) Excl(ranks []int) (*Group, error) { return g.derived(g.g.Excl(ranks)) }

// RangeIncl returns the members whose ranks in g the triplets give, in the
// order given (MPI_Group_range_incl; MPI-4.1, section 7.3.2).
func (g *Group) RangeIncl(ranges []Triplet) (*Group, error) {
	return g.derived(g.g.RangeIncl(triplets(ranges)))
}

// RangeExcl returns the members whose ranks in g no triplet gives, ordered as
// in g (MPI_Group_range_excl; MPI-4.1, section 7.3.2).
func (g *Group) RangeExcl(ranges []Triplet) (*Group, error) {
	return g.derived(g.g.RangeExcl(triplets(ranges)))
}

func (g *Group) derived(g2 *group.Group, err error) (*Group, error) {
	if err != nil {
		return nil, fmt.Errorf("mpilib: %w", err)
	}
	return &Group{g2, g.self}, nil
}

func (g *Group) combined(b *Group, g2 *group.Group) *Group {
	if g.self == Undefined {
		return &Group{g2, b.self}
	}
	return &Group{g2, g.self}
}

// Compare returns Ident for one communicator, Congruent for two of the same
// processes in the same order, else Similar or Unequal (MPI_Comm_compare;
// MPI-4.1, section 7.4.1). Of intercommunicators it compares local with local
// and remote with remote group; they are Unequal to any intracommunicator.
func Compare(a, b *Comm) Comparison {
	switch {
	case a == b:
		return Ident
	case a.core.IsInter() != b.core.IsInter():
		return Unequal
	}
	worst := Congruent
	for _, c := range []group.Comparison{group.Compare(a.core.Group, b.core.Group), group.Compare(a.core.Peers, b.core.Peers)} {
		worst = max(worst, compared(c))
	}
	return worst
}
