package mpilib

import (
	"context"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/place"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
	"github.com/isthmus-grid/isthmus/overlay"
)

// WithPlace sets the node and site of this process, regardless of the helper. Tests use it to
// emulate sites within one machine.
func WithPlace(site, node string) Option {
	return WithPlaces(func(int) (string, string) { return site, node })
}

// WithPlaces is WithPlace for all ranks of a TestWorld: where returns the location of each rank of
// the world.
func WithPlaces(where func(rank int) (site, node string)) Option {
	return func(cfg *config) {
		cfg.where = func(rank int) overlay.NodeID {
			site, node := where(rank)
			return overlay.NodeID{Site: overlay.SiteID(site), Name: node}
		}
	}
}

// Place returns where this process runs, according to its helper or WithPlace. It is zero without
// either; then all processes are on one node of one site.
func (w *World) Place() overlay.NodeID { return w.comms.here }

// Places returns where each rank of c runs. It is a collective call.
func (c *Comm) Places(ctx context.Context) ([]overlay.NodeID, error) {
	call, err := c.nextCall(ctx)
	if err != nil {
		return nil, c.called("Places", err)
	}
	places, err := c.places(ctx, call)
	return places, c.called("Places", err)
}

func (c *Comm) places(ctx context.Context, call *collectiveCall) ([]overlay.NodeID, error) {
	if call.plan != nil {
		if places := call.plan.Places(); places != nil { // so has every rank
			return slices.Clone(places), nil
		}
	}
	return place.Gather(ctx, call, call.Size(), c.world.comms.here)
}

// SplitType is the resource that the processes of one part of SplitType share.
type SplitType int

// The kinds of SplitType. Undefined is for processes that get no communicator.
const (
	SplitShared SplitType = iota + 1 // memory (MPI_COMM_TYPE_SHARED): the node
	SplitNode                        // the node
	SplitSite                        // the site: hosts behind one gateway
	SplitGroup                       // the group of the job; see JobGroup
)

// SplitType splits c into communicators of the processes that share the resource of split, ordered
// by key and, where keys are equal, by rank in c (MPI_Comm_split_type; MPI-4.1, section 7.4.2). All
// ranks give the same split, or SplitType(Undefined) and get nil. With SplitGroup a communicator is
// named after the group, and all get nil in a job without groups. info gives hints. It is a
// collective call.
func (c *Comm) SplitType(ctx context.Context, split SplitType, key int, info *Info) (*Comm, error) {
	call, err := c.nextCall(ctx)
	if err != nil {
		return nil, c.called("SplitType", err)
	}
	made, err := c.splitType(ctx, call, split, key, info)
	return made, c.called("SplitType", err)
}

func (c *Comm) splitType(ctx context.Context, call *collectiveCall, split SplitType, key int, info *Info) (*Comm, error) {
	t := settle.Terms{Kind: settle.SplitType}
	set, err := comm.Hints(0).With(info.Get)
	list, _, listErr := forcedBy(info)
	t.Args[0], t.Fault = settle.List("hint "+HintColl, list), mpi.FirstOf(err, listErr)
	t.Args[1] = settle.List(EnvGroups, c.world.config.layout)
	if split != SplitType(Undefined) && (split < SplitShared || split > SplitGroup) {
		t.Fault = fmt.Errorf("%w: no split type %d; give SplitShared, SplitNode, SplitSite or SplitGroup", ErrArg, split)
	}
	id, err := settle.Settle(ctx, call, t)
	if err != nil {
		return nil, err
	}
	all, err := coll.Allgather(ctx, call, call.Size(), group.Choice{Colour: int(split), Key: key})
	if err != nil {
		return nil, err
	}
	if split, err = commonSplit(all, split); err != nil || split == SplitType(Undefined) {
		return nil, err
	}
	sharing, err := c.sharing(ctx, call, split)
	if err != nil {
		return nil, err
	}
	for r, with := range sharing {
		if all[r].Colour != Undefined {
			all[r].Colour = with
		}
	}
	mine := all[c.core.Rank].Colour
	if mine == Undefined {
		return nil, nil
	}
	g, err := group.SplitOff(c.core.Group, all, mine)
	if err != nil {
		return nil, err
	}
	var name string
	switch split {
	case SplitGroup:
		name = nameOf(c, c.world.config.layout[mine].Name, id)
	case SplitSite:
		name = fmt.Sprintf("%s of rank %d", nameOf(c, "site", id), mine)
	default:
		name = fmt.Sprintf("%s of rank %d", nameOf(c, "node", id), mine)
	}
	made := c.child(name, g, id)
	made.core.Hints.Store(uint32(set))
	made.goesOnFrom(call)
	made.force(list)
	return made, nil
}

// sharing returns a number for each rank, equal for ranks that share the resource of split;
// Undefined if a rank shares with no rank, not even itself.
func (c *Comm) sharing(ctx context.Context, call *collectiveCall, split SplitType) ([]int, error) {
	if split != SplitGroup {
		places, err := c.places(ctx, call)
		if split == SplitSite {
			return place.BySite(places), err
		}
		return place.ByNode(places), err
	}
	groups := make([]int, c.Size())
	for r := range groups {
		if groups[r] = c.world.config.layout.Of(c.WorldRank(r)); groups[r] < 0 {
			groups[r] = Undefined
		}
	}
	return groups, nil
}

// commonSplit returns the split that the ranks gave, Undefined if all of them gave that, or an
// error if they differ; the result is the same on all ranks.
func commonSplit(all []group.Choice, mine SplitType) (SplitType, error) {
	first := -1
	for r, choice := range all {
		switch {
		case choice.Colour == Undefined:
		case first < 0:
			first = r
		case choice.Colour != all[first].Colour:
			return 0, fmt.Errorf("%w: the split is %d on rank %d, %d on rank %d and %d on this one; all must give the same, or Undefined",
				ErrMismatch, all[first].Colour, first, choice.Colour, r, mine)
		}
	}
	if first < 0 {
		return SplitType(Undefined), nil
	}
	return SplitType(all[first].Colour), nil
}
