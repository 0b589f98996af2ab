package mpilib

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
)

// Dup returns a communicator of the same processes in the same order, with
// copies of c's topology and of the attributes whose keys copy them, and
// without hints (MPI_Comm_dup; MPI-4.1, section 7.4.2). A collective call, of
// both groups of an intercommunicator.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) { return c.DupWithInfo(ctx, nil) }

// DupWithInfo is Dup with hints for the new communicator
// (MPI_Comm_dup_with_info; MPI-4.1, section 7.4.2).
func (c *Comm) DupWithInfo(ctx context.Context, info *Info) (*Comm, error) {
	dup, err := c.startDup(info)
	if err != nil {
		return nil, c.called("Dup", err)
	}
	made, err := dup(ctx)
	return made, c.called("Dup", err)
}

// Idup starts a Dup (MPI_Comm_idup; MPI-4.1, section 7.4.2). Other collective calls on c may follow
// before it is complete. Attributes and topology are copied as they are at the time of the call.
// ctx bounds the Dup itself.
func (c *Comm) Idup(ctx context.Context) *Pending[*Comm] { return c.IdupWithInfo(ctx, nil) }

// IdupWithInfo is Idup with hints for the new communicator
// (MPI_Comm_idup_with_info; MPI-4.1, section 7.4.2).
func (c *Comm) IdupWithInfo(ctx context.Context, info *Info) *Pending[*Comm] {
	dup, err := c.startDup(info)
	return inBackground(ctx, c, "Idup", func(ctx context.Context) (*Comm, error) {
		if err != nil {
			return nil, err
		}
		return dup(ctx)
	})
}

// startDup does the steps that must be done at the time of the call, in the order of calls, and
// returns the rest.
func (c *Comm) startDup(info *Info) (func(context.Context) (*Comm, error), error) {
	round, err := c.beginRound()
	if err != nil {
		return nil, err
	}
	set, err := comm.Hints(0).With(info.Get)
	list, _, listErr := forcedBy(info)
	attributes, copyErr := c.attributes.Copies(c)
	t := settle.Terms{Kind: settle.Dup, Args: [settle.MaxArgs]settle.Arg{settle.List("hint "+HintColl, list)}, Fault: mpi.FirstOf(err, listErr, copyErr)}
	return func(ctx context.Context) (*Comm, error) {
		if err := round.call.ready(ctx); err != nil {
			return nil, err
		}
		ids, err := round.settle(ctx, t)
		if err != nil {
			return nil, err
		}
		made := c.twin(nameOf(c, "dup", ids.comm), ids)
		made.madeBy(round.call)
		made.goesOnFrom(round.call)
		made.Local().force(list)
		made.attributes.Init(attributes)
		made.layout = c.layout
		made.core.Hints.Store(uint32(set))
		return made, nil
	}, nil
}

// child returns a new communicator that inherits what c passes on to all communicators created from
// it (MPI-4.1, section 9.3).
func (c *Comm) child(name string, g *group.Group, context uint32) *Comm {
	made := newComm(c.world, name, g, context)
	made.madeHere()
	made.handler.Store(c.handler.Load())
	made.joinSession(c.session)
	return made
}

// nameOf is the name of a communicator created from c: the same on all ranks and different for any
// two communicators.
func nameOf(c *Comm, how string, context uint32) string {
	return fmt.Sprintf("%s %s %d", c.Name(), how, context/comm.ContextsPerComm)
}

// Create returns a communicator of the members of g to these, and nil to others (MPI_Comm_create;
// MPI-4.1, section 7.4.2). All ranks of c make this collective call, and every member of g gives
// the same group; disjoint groups may be given in one call. If groups of members differ, the ranks
// that detect it get an error. On an intercommunicator g is part of the local group, the same on
// all of it, and the new communicator joins both sides' parts; it is nil if one is empty.
func (c *Comm) Create(ctx context.Context, g *Group) (*Comm, error) {
	if c.core.IsInter() {
		made, err := c.createBoth(ctx, g)
		return made, c.called("Create", err)
	}
	call, err := c.nextCall(ctx)
	if err != nil {
		return nil, c.called("Create", err)
	}
	made, err := c.create(ctx, call, g)
	return made, c.called("Create", err)
}

func (c *Comm) create(ctx context.Context, call *collectiveCall, g *Group) (*Comm, error) {
	t := settle.Terms{Kind: settle.Create, Fault: c.within(g)}
	id, err := settle.Settle(ctx, call, t)
	if err != nil {
		return nil, err
	}
	mine := settle.Group("", g.g).Value
	all, err := coll.Allgather(ctx, call, call.Size(), mine)
	if err != nil {
		return nil, err
	}
	for world := range g.g.WorldRanks() {
		if r := c.core.Group.Rank(world); all[r] != mine {
			return nil, fmt.Errorf("%w: rank %d is in the group %v given here, and gives another; all its members must give the same",
				ErrMismatch, r, g)
		}
	}
	if g.Rank() == Undefined {
		return nil, nil
	}
	made := c.child(nameOf(c, "create", id), g.g, id)
	made.goesOnFrom(call)
	return made, nil
}

func (c *Comm) createBoth(ctx context.Context, g *Group) (*Comm, error) {
	t := settle.Terms{Kind: settle.Create, Fault: c.within(g)}
	colour, key := Undefined, 0
	if t.Fault == nil {
		t.Args[0] = settle.Group("the group", g.g)
		if rank := g.Rank(); rank != Undefined {
			colour, key = 0, rank
		}
	}
	return c.splitBoth(ctx, t, colour, key, "create")
}

// within returns why g cannot be the group of a communicator created from c, or nil.
func (c *Comm) within(g *Group) error {
	if g == nil {
		return fmt.Errorf("%w: the group is nil; give EmptyGroup for no part", ErrArg)
	}
	for rank, world := range g.g.All() {
		if !c.core.Group.Contains(world) {
			return fmt.Errorf("%w: rank %d of the group, %d of the world, is not in %s", ErrRank, rank, world, c.Name())
		}
	}
	return nil
}

// CreateGroup is Create that only the members of g call (MPI_Comm_create_group; MPI-4.1, section
// 7.4.2); other callers get nil. Calls with different tags may be concurrent; these tags are
// independent of those of other calls. If the callers' groups do not have the same members, some
// may wait until ctx is done.
func (c *Comm) CreateGroup(ctx context.Context, g *Group, tag int) (*Comm, error) {
	made, err := c.createGroup(ctx, g, tag)
	return made, c.called("CreateGroup", err)
}

func (c *Comm) createGroup(ctx context.Context, g *Group, tag int) (*Comm, error) {
	err := c.core.Usable()
	if err == nil && c.core.IsInter() {
		err = fmt.Errorf("%w: call it on Local", ErrIntercomm)
	}
	if err == nil {
		err = c.within(g)
	}
	if err == nil {
		err = comm.CheckTag(tag)
	}
	if err != nil || g.Rank() == Undefined {
		return nil, err
	}
	call, err := c.world.amongMembers(c.Name()+"'s group "+g.String(), g.g, c.core.Context+comm.Members, tag)
	if err != nil {
		return nil, err
	}
	id, err := settle.Settle(ctx, call, settle.Terms{Kind: settle.CreateGroup, Args: [settle.MaxArgs]settle.Arg{settle.Group("the group", g.g)}})
	if err != nil {
		return nil, err
	}
	return c.child(nameOf(c, "group", id), g.g, id), nil
}

// Split returns a communicator of the processes that gave the same colour,
// ordered by key and, where keys are equal, by rank in c (MPI_Comm_split;
// MPI-4.1, section 7.4.2). It returns nil to those whose colour is Undefined.
// A collective call.
func (c *Comm) Split(ctx context.Context, colour, key int) (*Comm, error) {
	if c.core.IsInter() {
		made, err := c.splitBoth(ctx, settle.Terms{Kind: settle.Split, Fault: checkColour(colour)}, colour, key, "split")
		return made, c.called("Split", err)
	}
	call, err := c.nextCall(ctx)
	if err != nil {
		return nil, c.called("Split", err)
	}
	made, err := c.split(ctx, call, settle.Terms{Kind: settle.Split, Fault: checkColour(colour)}, colour, key, "split")
	return made, c.called("Split", err)
}

func checkColour(colour int) error {
	if colour < 0 && colour != Undefined {
		return fmt.Errorf("%w: colour %d is negative and not Undefined", ErrArg, colour)
	}
	return nil
}

func (c *Comm) split(ctx context.Context, call *collectiveCall, t settle.Terms, colour, key int, how string) (*Comm, error) {
	id, err := settle.Settle(ctx, call, t)
	if err != nil {
		return nil, err
	}
	choices, err := coll.Allgather(ctx, call, call.Size(), group.Choice{Colour: colour, Key: key})
	if err != nil || colour == Undefined {
		return nil, err
	}
	g, err := group.SplitOff(c.core.Group, choices, colour)
	if err != nil {
		return nil, err
	}
	// Communicators of one Split share their context: they are disjoint.
	made := c.child(fmt.Sprintf("%s colour %d", nameOf(c, how, id), colour), g, id)
	made.goesOnFrom(call)
	return made, nil
}

// Free releases c in this process: calls on it fail with ErrFreed from then on, and its attributes
// are deleted, the last one set first (MPI_Comm_free; MPI-4.1, section 7.4.3). Pending requests
// complete normally. All ranks free it at some time, without waiting for each other. The world's
// and Self's communicator cannot be freed. With the last communicator created through an Accept or
// Connect, the connection to the other job ends in the background, as described at Disconnect.
func (c *Comm) Free() error {
	last, err := c.free()
	if last {
		c.world.leaveLater()
	}
	return c.called("Free", err)
}

// free is Free, and reports whether c was the last communicator of a world with another job.
func (c *Comm) free() (last bool, err error) {
	if c == c.world.comm || c == c.world.comms.self {
		return false, fmt.Errorf("%w: it lasts as long as the world; call Finalize to leave", ErrArg)
	}
	if c.lent {
		return false, fmt.Errorf("%w: it is freed with its intercommunicator", ErrArg)
	}
	if c.core.Freed.Swap(true) {
		return false, c.core.Usable()
	}
	c.unwatched()
	if c.session != nil {
		last = c.session.live.Add(-1) == 0 && c.session.joint
	}
	err = c.attributes.DeleteAll(c)
	if c.inner != nil {
		err = errors.Join(err, c.inner.attributes.DeleteAll(c.inner))
		c.inner.core.Freed.Store(true)
	}
	c.occupy(0)
	return last, err
}

// occupy counts n more background calls of c. When c is freed and none is left, its contexts are
// dropped; posted receives keep theirs.
func (c *Comm) occupy(n int) {
	c.mu.Lock()
	c.busy += n
	over := c.busy == 0 && c.core.Freed.Load()
	c.mu.Unlock()
	if !over {
		return
	}
	for i := range uint32(comm.ContextsPerComm) {
		c.world.engine.Forget(c.core.Context + i)
		if c.inner != nil {
			c.world.engine.Forget(c.inner.core.Context + i)
		}
	}
}

// amongMembers returns a call that only the members of g make, including this process. Its ranks
// are ordered by world rank, so that members that give the same group in another order still
// communicate, and get an error.
func (w *World) amongMembers(name string, g *group.Group, context uint32, tag int) (*collectiveCall, error) {
	sorted, err := group.Of(slices.Sorted(g.WorldRanks()))
	if err != nil {
		return nil, err
	}
	return &collectiveCall{comm: newComm(w, name, sorted, context), context: context, tag: tag}, nil
}
