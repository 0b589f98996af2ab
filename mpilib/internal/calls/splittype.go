package calls

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/internal/job/jobgroups"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/place"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
)

// What the processes of one part of SplitType share.
const (
	SplitShared = iota + 1 // memory
	SplitNode
	SplitSite
	SplitGroup // of the job
)

// SplitType implements MPI_Comm_split_type in a job with these groups; t has the arguments besides
// split and key.
func (c *Comm) SplitType(ctx context.Context, t settle.Terms, split, key int, groups jobgroups.Layout) (*Created, error) {
	if split != mpi.Undefined && (split < SplitShared || split > SplitGroup) {
		t.Fault = fmt.Errorf("%w: no split type %d; give SplitShared, SplitNode, SplitSite or SplitGroup", mpi.ErrArg, split)
	}
	call, id, err := c.nextSettled(ctx, t)
	if err != nil {
		return nil, err
	}
	all, err := coll.Allgather(ctx, call, call.Size(), group.Choice{Colour: split, Key: key})
	if err != nil {
		return nil, err
	}
	if split, err = commonSplit(all, split); err != nil || split == mpi.Undefined {
		return nil, err
	}
	sharing, err := call.sharing(ctx, split, groups)
	if err != nil {
		return nil, err
	}
	for r, with := range sharing {
		if all[r].Colour != mpi.Undefined {
			all[r].Colour = with
		}
	}
	mine := all[c.Rank].Colour
	if mine == mpi.Undefined {
		return nil, nil
	}
	g, err := group.SplitOff(c.Group, all, mine)
	if err != nil {
		return nil, err
	}
	var name string
	switch split {
	case SplitGroup:
		name = c.NameOf(groups[mine].Name, id)
	case SplitSite:
		name = fmt.Sprintf("%s of rank %d", c.NameOf("site", id), mine)
	default:
		name = fmt.Sprintf("%s of rank %d", c.NameOf("node", id), mine)
	}
	return &Created{IDs: IDs{Comm: id}, Name: name, Group: g, call: call}, nil
}

// sharing returns a number for each rank, equal for ranks that share the resource of split;
// Undefined if a rank shares with no rank, not even itself.
func (c *Call) sharing(ctx context.Context, split int, groups jobgroups.Layout) ([]int, error) {
	if split != SplitGroup {
		places, err := c.Places(ctx)
		if split == SplitSite {
			return place.BySite(places), err
		}
		return place.ByNode(places), err
	}
	sharing := make([]int, c.Size())
	for r := range sharing {
		if sharing[r] = groups.Of(c.WorldRank(r)); sharing[r] < 0 {
			sharing[r] = mpi.Undefined
		}
	}
	return sharing, nil
}

// commonSplit returns the split that the ranks gave, Undefined if all of them gave that, or an
// error if they differ; the result is the same on all ranks.
func commonSplit(all []group.Choice, mine int) (int, error) {
	first := -1
	for r, choice := range all {
		switch {
		case choice.Colour == mpi.Undefined:
		case first < 0:
			first = r
		case choice.Colour != all[first].Colour:
			return 0, fmt.Errorf("%w: the split is %d on rank %d, %d on rank %d and %d on this one; all must give the same, or Undefined",
				mpi.ErrMismatch, all[first].Colour, first, choice.Colour, r, mine)
		}
	}
	if first < 0 {
		return mpi.Undefined, nil
	}
	return all[first].Colour, nil
}
