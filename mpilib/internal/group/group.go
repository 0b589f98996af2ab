package group

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
)

// Special values in place of a rank. They differ from each other and from AnySource (-1); package
// cabi/core translates those of C.
const (
	ProcNull  = -2     // MPI_PROC_NULL: no process at all
	Undefined = -32766 // MPI_UNDEFINED: no such member; as a colour, no membership
)

// Errors that callers distinguish with errors.Is.
var (
	ErrRank = errors.New("no such rank")     // MPI_ERR_RANK
	ErrArg  = errors.New("invalid argument") // MPI_ERR_ARG
)

// A Group is an ordered set of processes. It never changes. The zero Group is
// empty.
type Group struct {
	worlds table // world rank of each rank
	ranks  table // rank of each world rank; nil when worlds is short enough to scan
	size   int
}

// scanned is the number of segments up to which they are searched one by one rather than through an
// index. Interleaved runs, such as the even ranks and then the odd ones, are short in rank order
// and long in world rank order.
const scanned = 16

// Empty is the group without members (MPI_GROUP_EMPTY).
var Empty = &Group{}

// Range returns the group of world ranks first, first+1, ..., first+count-1:
// Range(0, n) is the world of n processes. World ranks are 0 to 2^31-2, so that a
// group's size fits the standard's int.
func Range(first, count int) (*Group, error) {
	switch {
	case count == 0 && first >= 0:
		return Empty, nil
	case first < 0 || count < 0 || first > math.MaxInt32 || count > math.MaxInt32-first:
		return nil, fmt.Errorf("group: Range(%d, %d): %w: world ranks are 0 to %d", first, count, ErrArg, math.MaxInt32-1)
	}
	s := segment{key: 0, keyStep: 1, val: int32(first), valStep: 1, count: int32(count)}
	if count == 1 {
		s.valStep = 0
	}
	return seal(table{s}), nil
}

// Of returns the group of the given world ranks in their order; it does not keep ranks.
func Of(ranks []int) (*Group, error) {
	var worlds table
	sorted := make([]uint64, 0, len(ranks)) // world rank, index
	for i, world := range ranks {
		if world < 0 || world >= math.MaxInt32 || i >= math.MaxInt32 {
			return nil, fmt.Errorf("group: Of: ranks[%d] = %d: %w: world ranks are 0 to %d", i, world, ErrRank, math.MaxInt32-1)
		}
		worlds = worlds.add(int32(i), int32(world))
		sorted = append(sorted, uint64(world)<<32|uint64(i))
	}
	slices.Sort(sorted)
	for i := 1; i < len(sorted); i++ {
		if sorted[i]>>32 == sorted[i-1]>>32 {
			const index = 1<<32 - 1
			return nil, fmt.Errorf("group: Of: ranks[%d] = %d: %w: ranks[%d] is the same", sorted[i]&index, sorted[i]>>32, ErrArg, sorted[i-1]&index)
		}
	}
	return seal(worlds), nil
}

// seal makes a group of a finished table.
func seal(worlds table) *Group {
	if len(worlds) == 0 {
		return Empty
	}
	g := &Group{worlds: slices.Clip(worlds), size: int(worlds[len(worlds)-1].lastKey()) + 1}
	if len(worlds) > scanned {
		g.ranks = worlds.invert()
	}
	return g
}

// Size returns the number of members (MPI_Group_size, 7.3.1).
func (g *Group) Size() int { return g.size }

// Rank returns the rank of a process, given by its world rank, or Undefined if it is not a member
// (MPI_Group_rank, 7.3.1).
func (g *Group) Rank(world int) int {
	if world < 0 || world > math.MaxInt32 {
		return Undefined
	}
	rank, ok := int32(0), false
	if g.ranks != nil {
		rank, ok = g.ranks.find(int32(world))
	} else {
		rank, ok = g.worlds.scan(int32(world))
	}
	if !ok {
		return Undefined
	}
	return int(rank)
}

// Contains reports whether the process of a world rank is a member.
func (g *Group) Contains(world int) bool { return g.Rank(world) != Undefined }

// WorldRank returns the world rank of a member, or Undefined if g has no such rank.
func (g *Group) WorldRank(rank int) int {
	if rank < 0 || rank >= g.size {
		return Undefined
	}
	world, _ := g.worlds.find(int32(rank))
	return int(world)
}

// All yields every rank, ascending, with its world rank.
func (g *Group) All() iter.Seq2[int, int] {
	return func(yield func(rank, world int) bool) {
		g.worlds.pairs(func(key, val int32) bool { return yield(int(key), int(val)) })
	}
}

// WorldRanks yields the world ranks of the members in their order.
func (g *Group) WorldRanks() iter.Seq[int] {
	return func(yield func(world int) bool) {
		g.worlds.pairs(func(_, val int32) bool { return yield(int(val)) })
	}
}

// String lists the world ranks, as in "0-3 9 20-30/5 (8 processes)", and only the beginning of a
// long list.
func (g *Group) String() string {
	const shown = 8
	var b strings.Builder
	for i, s := range g.worlds {
		if i == shown {
			b.WriteString("... ")
			break
		}
		fmt.Fprint(&b, s.val)
		if s.count > 1 {
			fmt.Fprintf(&b, "-%d", s.lastVal())
		}
		if s.valStep != 0 && s.valStep != 1 {
			fmt.Fprintf(&b, "/%d", s.valStep)
		}
		b.WriteByte(' ')
	}
	if g.size == 1 {
		return b.String() + "(1 process)"
	}
	return fmt.Sprintf("%s(%d processes)", &b, g.size)
}

// extent describes the ranks of g, for an error.
func (g *Group) extent() string {
	if g.size == 0 {
		return "the group is empty"
	}
	return fmt.Sprintf("the group has ranks 0 to %d", g.size-1)
}
