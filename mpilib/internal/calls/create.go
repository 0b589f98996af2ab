package calls

import (
	"context"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
)

// Created describes a communicator that a call has created. The functions that return one return nil
// to a process that is not a member.
type Created struct {
	IDs
	Name   string
	Group  *group.Group // the processes on this side
	Peers  *group.Group // those on the other side of an intercommunicator; otherwise nil
	Layout any          // as in Comm
	Hints  comm.Hints
	Forced string // algorithms that hints force

	call *Call // that created it, all of whose knowledge applies to it; nil for none
}

// Init makes c the communicator that n describes, in w; inner is for an intercommunicator's local
// group.
func (n *Created) Init(w *World, c, inner *Comm) {
	c.Init(w, n.Name, n.Group, n.Comm)
	c.Layout = n.Layout
	c.Core.Hints.Store(uint32(n.Hints))
	if w.Watch != nil {
		at := debug.CurrentCallsite()
		if n.call != nil && n.call.seen != nil { // a nonblocking call is not here
			at = n.call.seen.Call()
		}
		w.Watch.Created(&c.Core, at)
	}
	if n.Peers != nil {
		c.SetPeers(n.Peers)
		c.Inner = inner
		inner.Init(w, n.Name+"'s local group", n.Group, n.Inner)
		if w.Watch != nil {
			w.Watch.CreatedLocal(&inner.Core)
		}
	}
	c.goOnFrom(n.call)
	c.Force(n.Forced)
}

// NameOf is the name of a communicator created from c: the same on all ranks and different for any
// two communicators.
func (c *Comm) NameOf(how string, context uint32) string {
	return fmt.Sprintf("%s %s %d", c.Name(), how, context/comm.ContextsPerComm)
}

// Dup finishes the call that r has begun: a communicator of the same processes, with c's topology.
func (r *Round) Dup(ctx context.Context, t settle.Terms) (*Created, error) {
	if err := r.call.ready(ctx); err != nil {
		return nil, err
	}
	ids, err := r.settle(ctx, t)
	if err != nil {
		return nil, err
	}
	c := r.comm
	n := &Created{IDs: ids, Name: c.NameOf("dup", ids.Comm), Group: c.Group, Layout: c.Layout, call: r.call}
	if c.IsInter() {
		n.Peers = c.Peers
	}
	return n, nil
}

// nextSettled begins a call that creates a communicator, and returns it once all ranks have agreed on t.
func (c *Comm) nextSettled(ctx context.Context, t settle.Terms) (*Call, uint32, error) {
	call, err := c.Next(ctx)
	if err != nil {
		return nil, 0, err
	}
	id, err := settle.Settle(ctx, call, t)
	return call, id, err
}

// Create implements MPI_Comm_create for the members of g; a nil g is an error.
func (c *Comm) Create(ctx context.Context, g *group.Group) (*Created, error) {
	t := settle.Terms{Kind: settle.Create, Fault: c.Within(g)}
	if c.IsInter() {
		return c.createBoth(ctx, t, g)
	}
	call, id, err := c.nextSettled(ctx, t)
	if err != nil {
		return nil, err
	}
	mine := settle.Group("", g).Value
	all, err := coll.Allgather(ctx, call, call.Size(), mine)
	if err != nil {
		return nil, err
	}
	for world := range g.WorldRanks() {
		if r := c.Group.Rank(world); all[r] != mine {
			return nil, fmt.Errorf("%w: rank %d is in the group %v given here, and gives another; all its members must give the same",
				mpi.ErrMismatch, r, g)
		}
	}
	if !g.Contains(c.Engine.Rank()) {
		return nil, nil
	}
	return &Created{IDs: IDs{Comm: id}, Name: c.NameOf("create", id), Group: g, call: call}, nil
}

// createBoth is Create for an intercommunicator.
func (c *Comm) createBoth(ctx context.Context, t settle.Terms, g *group.Group) (*Created, error) {
	colour, key := mpi.Undefined, 0
	if t.Fault == nil {
		t.Args[0] = settle.Group("the group", g)
		if rank := g.Rank(c.Engine.Rank()); rank != mpi.Undefined {
			colour, key = 0, rank
		}
	}
	return c.split(ctx, t, colour, key, "create")
}

// Within returns why g cannot be the group of a communicator created from c, or nil.
func (c *Comm) Within(g *group.Group) error {
	if g == nil {
		return fmt.Errorf("%w: the group is nil; give EmptyGroup for no part", mpi.ErrArg)
	}
	for rank, world := range g.All() {
		if !c.Group.Contains(world) {
			return fmt.Errorf("%w: rank %d of the group, %d of the world, is not in %s", mpi.ErrRank, rank, world, c.Name())
		}
	}
	return nil
}

// CreateGroup implements MPI_Comm_create_group for the members of g; a nil g is an error.
func (c *Comm) CreateGroup(ctx context.Context, g *group.Group, tag int) (*Created, error) {
	err := c.Usable()
	if err == nil && c.IsInter() {
		err = fmt.Errorf("%w: call it on Local", mpi.ErrIntercomm)
	}
	if err == nil {
		err = c.Within(g)
	}
	if err == nil {
		err = comm.CheckTag(tag)
	}
	if err != nil || !g.Contains(c.Engine.Rank()) {
		return nil, err
	}
	t := settle.Terms{Kind: settle.CreateGroup, Args: [settle.MaxArgs]settle.Arg{settle.Group("the group", g)}}
	id, err := c.World.among(ctx, t, c.Name()+"'s group "+g.String(), g, c.Context+comm.Members, tag)
	if err != nil {
		return nil, err
	}
	return &Created{IDs: IDs{Comm: id}, Name: c.NameOf("group", id), Group: g}, nil
}

// FromGroup implements MPI_Comm_create_from_group for the members of g; t contains that group, and
// the tag's hash as its first argument.
func (w *World) FromGroup(ctx context.Context, t settle.Terms, g *group.Group, tag string) (*Created, error) {
	// Two concurrent tags that share 31 bits of their hashes use the same context here, and settle
	// reports the mismatch.
	id, err := w.among(ctx, t, "group "+g.String(), g, comm.Session+comm.Members, int(t.Args[0].Value&mpi.MaxTag))
	if err != nil {
		return nil, err
	}
	return &Created{IDs: IDs{Comm: id}, Name: "comm " + tag, Group: g}, nil
}

// among settles t in a call that only the members of g make, including this process. Its ranks are
// ordered by world rank, so that members that give the same group in another order still
// communicate, and get an error.
func (w *World) among(ctx context.Context, t settle.Terms, name string, g *group.Group, context uint32, tag int) (uint32, error) {
	sorted, err := group.Of(slices.Sorted(g.WorldRanks()))
	if err != nil {
		return 0, err
	}
	c := &Comm{}
	c.Init(w, name, sorted, context)
	return settle.Settle(ctx, &Call{comm: c, context: context, Tag: tag}, t)
}

// Split implements MPI_Comm_split.
func (c *Comm) Split(ctx context.Context, colour, key int) (*Created, error) {
	t := settle.Terms{Kind: settle.Split}
	if colour < 0 && colour != mpi.Undefined {
		t.Fault = fmt.Errorf("%w: colour %d is negative and not Undefined", mpi.ErrArg, colour)
	}
	return c.split(ctx, t, colour, key, "split")
}

// split joins the processes of one colour, on both sides of an intercommunicator; for a colour on
// one side only it returns nil (MPI-4.1, section 7.4.2).
func (c *Comm) split(ctx context.Context, t settle.Terms, colour, key int, how string) (*Created, error) {
	round, err := c.nextRound(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := round.settle(ctx, t)
	if err != nil {
		return nil, err
	}
	ours, err := coll.Allgather(ctx, round.call, round.call.Size(), group.Choice{Colour: colour, Key: key})
	if err != nil {
		return nil, err
	}
	theirs, err := round.choices(ctx, ours)
	if err != nil || colour == mpi.Undefined {
		return nil, err
	}
	mine, err := group.SplitOff(c.Group, ours, colour)
	if err != nil {
		return nil, err
	}
	// Communicators of one Split share their context: they are disjoint.
	n := &Created{IDs: ids, Name: fmt.Sprintf("%s colour %d", c.NameOf(how, ids.Comm), colour), Group: mine, call: round.call}
	if !c.IsInter() {
		return n, nil
	}
	if n.Peers, err = group.SplitOff(c.Peers, theirs, colour); err != nil || n.Peers.Size() == 0 {
		return nil, err
	}
	return n, nil
}

// choices returns the choices of the other side of an intercommunicator, nil without one.
func (r *Round) choices(ctx context.Context, ours []group.Choice) ([]group.Choice, error) {
	if !r.comm.IsInter() {
		return nil, nil
	}
	theirs := make([]group.Choice, r.comm.Peers.Size())
	var s settle.Side
	if r.comm.Rank == 0 {
		s.Err = coll.Swap(ctx, r.line(), 0, ours, theirs)
	}
	if err := s.Broadcast(ctx, r.call, 0); err != nil {
		return nil, err
	}
	return theirs, coll.Bcast(ctx, r.call, theirs, 0)
}
