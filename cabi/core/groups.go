package core

import (
	"cmp"

	"github.com/isthmus-grid/isthmus/cabi/core/handles"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// processes is what the handle of a group names.
type processes struct {
	*mpilib.Group
	from origin
}

// origin is where a communicator or group is from.
type origin struct {
	world   *mpilib.World // that of the job, or that of a connection, where processes have other numbers; nil for MPI_GROUP_EMPTY
	session *session      // nil in the World Model
}

// mixes returns an error for groups of which the numbers of processes differ.
func (o origin) mixes(b origin) error {
	if o.world != nil && b.world != nil && o.world != b.world {
		return failure(errGroup, "the groups are of different connections of MPI_Comm_accept, MPI_Comm_connect or MPI_Comm_join, or one is of none")
	}
	return nil
}

// members returns the processes, nil if there is no group.
func (g *processes) members() *mpilib.Group {
	if g == nil {
		return nil
	}
	return g.Group
}

var groups handles.Table[*processes]

func init() { groups.Put(groupEmpty, &processes{Group: mpilib.EmptyGroup}) }

// groupOf returns the group of a handle.
func groupOf(handle uintptr) (*processes, error) {
	g, ok := groups.Get(handle)
	if !ok {
		return nil, failure(errGroup, "%#x is no group", handle)
	}
	return g, nil
}

// giveGroup stores the handle of a group; one without members is MPI_GROUP_EMPTY.
func giveGroup(g *mpilib.Group, from origin, out uintptr) {
	if g.Size() == 0 {
		store(out, groupEmpty)
		return
	}
	store(out, groups.Add(&processes{g, from}))
}

// onGroup makes a call on a group (MPI-5.0, section 7.3).
func onGroup(call string, group uintptr, f func(g *processes) error) int32 {
	g, err := groupOf(group)
	if err == nil {
		err = f(g)
	}
	return onWorld(call, err)
}

// onGroups makes a call on two groups.
func onGroups(call string, group1, group2 uintptr, f func(a, b *processes) error) int32 {
	return onGroup(call, group1, func(a *processes) error {
		b, err := groupOf(group2)
		if err == nil {
			err = a.from.mixes(b.from)
		}
		if err != nil {
			return err
		}
		return f(a, b)
	})
}

// CommGroup returns the group of a communicator, the local one of an intercommunicator.
func CommGroup(comm, group uintptr) int32 {
	return onComm("MPI_Comm_group", comm, func(c *communicator) error {
		giveGroup(c.Group(), c.origin(), group)
		return nil
	})
}

// CommRemoteGroup returns the other group of an intercommunicator.
func CommRemoteGroup(comm, group uintptr) int32 {
	return onComm("MPI_Comm_remote_group", comm, func(c *communicator) error {
		g, err := c.RemoteGroup()
		if err == nil {
			giveGroup(g, c.origin(), group)
		}
		return err
	})
}

// GroupSize returns the number of members.
func GroupSize(group, size uintptr) int32 {
	return onGroup("MPI_Group_size", group, func(g *processes) error {
		store(size, int32(g.Size()))
		return nil
	})
}

// GroupRank returns the caller's rank, MPI_UNDEFINED if it is no member.
func GroupRank(group, rank uintptr) int32 {
	return onGroup("MPI_Group_rank", group, func(g *processes) error {
		store(rank, memberFrom(g.Rank()))
		return nil
	})
}

// memberFrom translates a rank that may be MPI_UNDEFINED or MPI_PROC_NULL.
func memberFrom(rank int) int32 {
	if rank == mpilib.Undefined {
		return undefined
	}
	return sourceFrom(rank)
}

// GroupTranslateRanks returns the ranks that members of one group have in another.
func GroupTranslateRanks(group1 uintptr, n int32, ranks1, group2, ranks2 uintptr) int32 {
	return onGroups("MPI_Group_translate_ranks", group1, group2, func(a, b *processes) error {
		if err := checkNumber(n); err != nil {
			return err
		}
		ranks := make([]int, n)
		for i, rank := range elements[int32](ranks1, int(n)) {
			ranks[i] = rankOf(rank)
		}
		there, err := a.TranslateRanks(ranks, b.Group)
		if err != nil {
			return err
		}
		out := elements[int32](ranks2, int(n))
		for i, rank := range there {
			out[i] = memberFrom(rank)
		}
		return nil
	})
}

// checkNumber returns an error for a number of ranks or ranges that is none.
func checkNumber(n int32) error {
	if n < 0 {
		return failure(errArg, "there are %d ranks", n)
	}
	return nil
}

// comparisons are the results of comparing groups and communicators.
var comparisons = map[mpilib.Comparison]int32{
	mpilib.Ident: identical, mpilib.Congruent: congruent, mpilib.Similar: similar, mpilib.Unequal: unequal,
}

// GroupCompare compares two groups.
func GroupCompare(group1, group2, result uintptr) int32 {
	return onGroups("MPI_Group_compare", group1, group2, func(a, b *processes) error {
		store(result, comparisons[mpilib.CompareGroups(a.Group, b.Group)])
		return nil
	})
}

// GroupUnion returns the members of both groups.
func GroupUnion(group1, group2, newgroup uintptr) int32 {
	return combine("MPI_Group_union", (*mpilib.Group).Union, group1, group2, newgroup)
}

// GroupIntersection returns the members of the first group that are in the second, too.
func GroupIntersection(group1, group2, newgroup uintptr) int32 {
	return combine("MPI_Group_intersection", (*mpilib.Group).Intersection, group1, group2, newgroup)
}

// GroupDifference returns the members of the first group that are not in the second.
func GroupDifference(group1, group2, newgroup uintptr) int32 {
	return combine("MPI_Group_difference", (*mpilib.Group).Difference, group1, group2, newgroup)
}

func combine(call string, operation func(a, b *mpilib.Group) *mpilib.Group, group1, group2, newgroup uintptr) int32 {
	return onGroups(call, group1, group2, func(a, b *processes) error {
		giveGroup(operation(a.Group, b.Group), cmp.Or(a.from, b.from), newgroup)
		return nil
	})
}

// GroupIncl returns the members of some ranks, in their order.
func GroupIncl(group uintptr, n int32, ranks, newgroup uintptr) int32 {
	return choose("MPI_Group_incl", (*mpilib.Group).Incl, group, n, ranks, newgroup)
}

// GroupExcl returns the members of all other ranks.
func GroupExcl(group uintptr, n int32, ranks, newgroup uintptr) int32 {
	return choose("MPI_Group_excl", (*mpilib.Group).Excl, group, n, ranks, newgroup)
}

func choose(call string, of func(*mpilib.Group, []int) (*mpilib.Group, error), group uintptr, n int32, ranks, newgroup uintptr) int32 {
	return onGroup(call, group, func(g *processes) error {
		if err := checkNumber(n); err != nil {
			return err
		}
		chosen, err := of(g.Group, integers(ranks, int(n), 0))
		if err == nil {
			giveGroup(chosen, g.from, newgroup)
		}
		return err
	})
}

// GroupRangeIncl is GroupIncl of ranges: first rank, last rank and stride.
func GroupRangeIncl(group uintptr, n int32, ranges, newgroup uintptr) int32 {
	return chooseRanges("MPI_Group_range_incl", (*mpilib.Group).RangeIncl, group, n, ranges, newgroup)
}

// GroupRangeExcl is GroupExcl of ranges.
func GroupRangeExcl(group uintptr, n int32, ranges, newgroup uintptr) int32 {
	return chooseRanges("MPI_Group_range_excl", (*mpilib.Group).RangeExcl, group, n, ranges, newgroup)
}

func chooseRanges(call string, of func(*mpilib.Group, []mpilib.Triplet) (*mpilib.Group, error), group uintptr, n int32, ranges, newgroup uintptr) int32 {
	return onGroup(call, group, func(g *processes) error {
		if err := checkNumber(n); err != nil {
			return err
		}
		triplets := make([]mpilib.Triplet, n)
		for i, r := range elements[[3]int32](ranges, int(n)) {
			triplets[i] = mpilib.Triplet{First: int(r[0]), Last: int(r[1]), Stride: int(r[2])}
		}
		chosen, err := of(g.Group, triplets)
		if err == nil {
			giveGroup(chosen, g.from, newgroup)
		}
		return err
	})
}

// GroupFree makes a handle invalid; MPI_GROUP_EMPTY stays.
func GroupFree(group uintptr) int32 {
	handle := load[uintptr](group)
	return onGroup("MPI_Group_free", handle, func(*processes) error {
		groups.Remove(handle)
		store(group, groupNull)
		return nil
	})
}
