package calls

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/mpilib/internal/agree"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
)

// Join implements MPI_Intercomm_create of c's processes, whose leader communicates with the process
// remoteLeader of peer, which is used there only. It agrees within this side first, so that the
// leader acts for all.
func (c *Comm) Join(ctx context.Context, leader int, peer *Comm, remoteLeader, tag int) (*Created, error) {
	call, err := c.Next(ctx)
	if err != nil {
		return nil, err
	}
	t := settle.Terms{Kind: settle.IntercommCreate, Args: [settle.MaxArgs]settle.Arg{settle.Number("localLeader", leader), settle.Number("tag", tag)}}
	t.Fault = comm.CheckTag(tag)
	if leader < 0 || leader >= c.Group.Size() {
		t.Fault = fmt.Errorf("%w: localLeader %d, communicator %s has ranks 0 to %d", mpi.ErrRank, leader, c.Name(), c.Group.Size()-1)
	}
	canSpeak := t.Fault == nil
	if leader == c.Rank && canSpeak {
		t.Fault = peer.checkLeader(c.World, remoteLeader)
		canSpeak = t.Fault == nil
	}
	t.Word = uint64(leader)
	inner, speaker, err := settle.SettleWord(ctx, call, t)
	// Even if this side has failed, one rank notifies the other side: the one that rank 0 considers
	// the leader.
	leading := leader == c.Rank && int(speaker) == leader
	if err != nil && !(leading && canSpeak) {
		return nil, err
	}
	var s settle.Side
	if leading {
		line := &Call{comm: peer, context: peer.Context + comm.Leaders, Tag: tag, pair: true}
		exchange := c.exchangeWith(line, remoteLeader)
		s = exchange.Run(ctx, t.Kind, 0, err)
		if err == nil && s.Err == nil {
			s.Ranks, s.Err = exchange.SwapGroups(ctx, c.Group, int(s.Size))
		}
	}
	if err != nil {
		return nil, err
	}
	if err := s.Broadcast(ctx, call, leader); err != nil {
		return nil, err
	}
	theirs, err := s.BroadcastRanks(ctx, call, leader)
	if err != nil {
		return nil, err
	}
	if both := group.Intersection(c.Group, theirs); both.Size() > 0 {
		return nil, fmt.Errorf("%w: rank %d of the world is in both groups; an intercommunicator's groups are disjoint", mpi.ErrArg, both.WorldRank(0))
	}
	return &Created{IDs: IDs{s.Comm, inner}, Name: c.NameOf("intercomm", s.Comm), Group: c.Group, Peers: theirs, call: call}, nil
}

// checkLeader returns why rank r of c, a peer communicator, cannot be a remote leader in w, or nil.
func (c *Comm) checkLeader(w *World, r int) error {
	switch {
	case c == nil:
		return fmt.Errorf("%w: the leader must give a peer communicator", mpi.ErrArg)
	case c.World != w:
		return fmt.Errorf("%w: the peer communicator %s is of another world, one of two jobs or of one; Merge and Split make further ones of it", mpi.ErrArg, c.Name())
	case c.Usable() != nil:
		return fmt.Errorf("the peer communicator %s: %w", c.Name(), c.Usable())
	case r < 0 || r >= c.Peers.Size():
		return fmt.Errorf("%w: remoteLeader %d, peer communicator %s has ranks 0 to %d", mpi.ErrRank, r, c.Name(), c.Peers.Size()-1)
	case c.Global(r) == c.Engine.Rank():
		return fmt.Errorf("%w: remoteLeader %d of %s is this process; name the other side's leader", mpi.ErrArg, r, c.Name())
	}
	return nil
}

// Merge implements MPI_Intercomm_merge.
func (c *Comm) Merge(ctx context.Context, high bool) (*Created, error) {
	if !c.IsInter() {
		return nil, fmt.Errorf("%w: %s has one group already", mpi.ErrIntracomm, c.Name())
	}
	round, err := c.nextRound(ctx)
	if err != nil {
		return nil, err
	}
	mine := 0
	if high {
		mine = 1
	}
	ids, theirs, err := round.settleBoth(ctx, settle.Terms{Kind: settle.Merge, Args: [settle.MaxArgs]settle.Arg{settle.Number("high", mine)}}, uint32(mine))
	if err != nil {
		return nil, err
	}
	first := mine < int(theirs)
	if mine == int(theirs) {
		first = c.Group.WorldRank(0) < c.Peers.WorldRank(0)
	}
	g := group.Union(c.Peers, c.Group)
	if first {
		g = group.Union(c.Group, c.Peers)
	}
	return &Created{IDs: IDs{Comm: ids.Comm}, Name: c.NameOf("merge", ids.Comm), Group: g}, nil
}

// Without is a communicator of the processes of c that are not in failed, which are ranks of
// c.AllMembers: nil for an intercommunicator if a group has none left.
func (c *Comm) Without(failed agree.Set, ids IDs) (*Created, error) {
	everyone := c.AllMembers()
	left := func(g *group.Group) (*group.Group, error) {
		var worlds []int
		for _, world := range g.All() {
			if !failed.Has(everyone.Rank(world)) {
				worlds = append(worlds, world)
			}
		}
		return group.Of(worlds)
	}
	mine, err := left(c.Group)
	if err != nil {
		return nil, err
	}
	n := &Created{IDs: ids, Name: c.NameOf("shrink", ids.Comm), Group: mine}
	if !c.IsInter() {
		return n, nil
	}
	if n.Peers, err = left(c.Peers); err != nil || n.Peers.Size() == 0 {
		return nil, err
	}
	return n, nil
}
