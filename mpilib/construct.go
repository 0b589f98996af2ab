package mpilib

import (
	"context"
	"errors"
	"fmt"

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
	round, err := c.core.Begin()
	if err != nil {
		return nil, err
	}
	round.Reserve()
	hints, list, err := hintsOf(info)
	attributes, copyErr := c.attributes.Copies(c)
	t := settle.Terms{Kind: settle.Dup, Args: [settle.MaxArgs]settle.Arg{settle.List("hint "+HintColl, list)}, Fault: mpi.FirstOf(err, copyErr)}
	return func(ctx context.Context) (*Comm, error) {
		n, err := round.Dup(ctx, t)
		if err != nil {
			return nil, err
		}
		n.Hints, n.Forced = hints, list
		made := c.create(n)
		made.attributes.Init(attributes)
		return made, nil
	}, nil
}

// Create returns a communicator of the members of g to these, and nil to others (MPI_Comm_create;
// MPI-4.1, section 7.4.2). All ranks of c make this collective call, and every member of g gives
// the same group; disjoint groups may be given in one call. If groups of members differ, the ranks
// that detect it get an error. On an intercommunicator g is part of the local group, the same on
// all of it, and the new communicator joins both sides' parts; it is nil if one is empty.
func (c *Comm) Create(ctx context.Context, g *Group) (*Comm, error) {
	n, err := c.core.Create(ctx, g.inner())
	return c.created("Create", n, err)
}

// CreateGroup is Create that only the members of g call (MPI_Comm_create_group; MPI-4.1, section
// 7.4.2); other callers get nil. Calls with different tags may be concurrent; these tags are
// independent of those of other calls. If the callers' groups do not have the same members, some
// may wait until ctx is done.
func (c *Comm) CreateGroup(ctx context.Context, g *Group, tag int) (*Comm, error) {
	n, err := c.core.CreateGroup(ctx, g.inner(), tag)
	return c.created("CreateGroup", n, err)
}

// Split returns a communicator of the processes that gave the same colour,
// ordered by key and, where keys are equal, by rank in c (MPI_Comm_split;
// MPI-4.1, section 7.4.2). It returns nil to those whose colour is Undefined.
// A collective call.
func (c *Comm) Split(ctx context.Context, colour, key int) (*Comm, error) {
	n, err := c.core.Split(ctx, colour, key)
	return c.created("Split", n, err)
}

// Free releases c in this process: calls on it fail with ErrFreed from then on, and its attributes
// are deleted, the last one set first (MPI_Comm_free; MPI-4.1, section 7.4.3). Pending requests
// complete normally. All ranks free it at some time, without waiting for each other. The world's
// and Self's communicator cannot be freed. With the last communicator created through an Accept or
// Connect, the connection to the other job ends in the background, as described at Disconnect.
func (c *Comm) Free() error {
	last, err := c.free()
	if last {
		c.world.finalizeInBackground()
	}
	return c.called("Free", err)
}

// free is Free, and reports whether c was the last communicator of a world with another job.
func (c *Comm) free() (last bool, err error) {
	if c == c.world.comm || c == c.world.comms.self {
		return false, fmt.Errorf("%w: it lasts as long as the world; call Finalize to leave", ErrArg)
	}
	if c.isInner {
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
	c.core.Occupy(0)
	return last, err
}
