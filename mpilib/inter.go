package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives/schedule"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
)

// newInter returns an intercommunicator created from c: of two disjoint groups, with a communicator
// for this side's internal use.
func (c *Comm) newInter(name string, mine, theirs *group.Group, ids contexts) *Comm {
	made := c.child(name, mine, ids.comm)
	made.core.SetPeers(theirs)
	made.inner = newComm(c.world, name+"'s local group", mine, ids.inner)
	made.inner.lent = true
	if w := c.world.watch; w != nil {
		w.Lent(&made.inner.core)
	}
	made.inner.handler.Store(c.handler.Load())
	return made
}

// twin returns a communicator of c's processes and kind.
func (c *Comm) twin(name string, ids contexts) *Comm {
	if c.core.IsInter() {
		return c.newInter(name, c.core.Group, c.core.Peers, ids)
	}
	return c.child(name, c.core.Group, ids.comm)
}

// IsInter reports whether c is an intercommunicator (MPI_Comm_test_inter;
// MPI-4.1, section 7.6.1).
func (c *Comm) IsInter() bool { return c.core.IsInter() }

// RemoteSize returns the number of processes on the other side of an intercommunicator, 0 for an
// intracommunicator (MPI_Comm_remote_size; MPI-4.1, section 7.6.1).
func (c *Comm) RemoteSize() int {
	if !c.core.IsInter() {
		return 0
	}
	return c.core.Peers.Size()
}

// RemoteGroup returns the processes on the other side of an intercommunicator
// (MPI_Comm_remote_group; MPI-4.1, section 7.6.1).
func (c *Comm) RemoteGroup() (*Group, error) {
	if !c.core.IsInter() {
		return nil, c.called("RemoteGroup", fmt.Errorf("%w: %s has one group; call Group", ErrIntracomm, c.Name()))
	}
	return c.groupOf(c.core.Peers), nil
}

// Local returns the communicator of the local group of an intercommunicator, for collectives on
// this side only, and c itself for an intracommunicator. It is freed with c.
func (c *Comm) Local() *Comm {
	if c.core.IsInter() {
		return c.inner
	}
	return c
}

// IntercommCreate joins two disjoint groups: all processes of local call it on both sides, each
// side with its own local. The process of rank localLeader of local communicates with the other
// side's leader, which has rank remoteLeader of peer; peer and remoteLeader are used at the leaders
// only, other processes may give nil and any value. tag, the same on all, distinguishes several
// calls over one peer, and does not match messages of the program (MPI_Intercomm_create; MPI-4.1,
// section 7.6.2). It is a collective call of both groups.
func IntercommCreate(ctx context.Context, local *Comm, localLeader int, peer *Comm, remoteLeader, tag int) (*Comm, error) {
	call, err := local.nextCall(ctx)
	if err != nil {
		return nil, local.called("IntercommCreate", err)
	}
	made, err := local.join(ctx, call, localLeader, peer, remoteLeader, tag)
	return made, local.called("IntercommCreate", err)
}

// join agrees within this side first, so that the leader acts for all.
func (c *Comm) join(ctx context.Context, call *collectiveCall, leader int, peer *Comm, remoteLeader, tag int) (*Comm, error) {
	t := settle.Terms{Kind: settle.IntercommCreate, Args: [settle.MaxArgs]settle.Arg{settle.Number("localLeader", leader), settle.Number("tag", tag)}}
	t.Fault = comm.CheckTag(tag)
	if leader < 0 || leader >= c.Size() {
		t.Fault = fmt.Errorf("%w: localLeader %d, communicator %s has ranks 0 to %d", ErrRank, leader, c.Name(), c.Size()-1)
	}
	canSpeak := t.Fault == nil
	if leader == c.core.Rank && canSpeak {
		t.Fault = peer.checkLeader(c.world, remoteLeader)
		canSpeak = t.Fault == nil
	}
	t.Word = uint64(leader)
	inner, speaker, err := settle.SettleWord(ctx, call, t)
	// Even if this side has failed, one rank notifies the other side: the one that rank 0 considers
	// the leader.
	leading := leader == c.core.Rank && int(speaker) == leader
	if err != nil && !(leading && canSpeak) {
		return nil, err
	}
	var s settle.Side
	if leading {
		line := &collectiveCall{comm: peer, context: peer.core.Context + comm.Leaders, tag: tag, pair: true}
		talk := c.talk(line, remoteLeader)
		s = talk.Exchange(ctx, t.Kind, 0, err)
		if err == nil && s.Err == nil {
			s.Ranks, s.Err = talk.Groups(ctx, c.core.Group, int(s.Size))
		}
	}
	if err != nil {
		return nil, err
	}
	if err := s.Tell(ctx, call, leader); err != nil {
		return nil, err
	}
	theirs, err := s.TellRanks(ctx, call, leader)
	if err != nil {
		return nil, err
	}
	if both := group.Intersection(c.core.Group, theirs); both.Size() > 0 {
		return nil, fmt.Errorf("%w: rank %d of the world is in both groups; an intercommunicator's groups are disjoint", ErrArg, both.WorldRank(0))
	}
	made := c.newInter(nameOf(c, "intercomm", s.Comm), c.core.Group, theirs, contexts{comm: s.Comm, inner: inner})
	made.goesOnFrom(call)
	return made, nil
}

// checkLeader returns why rank r of c, a peer communicator, cannot be a remote leader in w, or nil.
func (c *Comm) checkLeader(w *World, r int) error {
	switch {
	case c == nil:
		return fmt.Errorf("%w: the leader must give a peer communicator", ErrArg)
	case c.world != w:
		return fmt.Errorf("%w: the peer communicator %s is of another world, one of two jobs or of one; Merge and Split make further ones of it", ErrArg, c.Name())
	case c.core.Usable() != nil:
		return fmt.Errorf("the peer communicator %s: %w", c.Name(), c.core.Usable())
	case r < 0 || r >= c.core.Peers.Size():
		return fmt.Errorf("%w: remoteLeader %d, peer communicator %s has ranks 0 to %d", ErrRank, r, c.Name(), c.core.Peers.Size()-1)
	case c.core.Global(r) == c.world.engine.Rank():
		return fmt.Errorf("%w: remoteLeader %d of %s is this process; name the other side's leader", ErrArg, r, c.Name())
	}
	return nil
}

// Merge returns an intracommunicator of both groups: first the group whose processes give high
// false, then the other; if both give the same, in an order that is the same everywhere
// (MPI_Intercomm_merge; MPI-4.1, section 7.6.2). All processes of a group give the same. It is a
// collective call of both groups.
func (c *Comm) Merge(ctx context.Context, high bool) (*Comm, error) {
	made, err := c.merge(ctx, high)
	return made, c.called("Merge", err)
}

func (c *Comm) merge(ctx context.Context, high bool) (*Comm, error) {
	if !c.core.IsInter() {
		return nil, fmt.Errorf("%w: %s has one group already", ErrIntracomm, c.Name())
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
		first = c.core.Group.WorldRank(0) < c.core.Peers.WorldRank(0)
	}
	g := group.Union(c.core.Peers, c.core.Group)
	if first {
		g = group.Union(c.core.Group, c.core.Peers)
	}
	return c.child(nameOf(c, "merge", ids.comm), g, ids.comm), nil
}

// splitBoth is Split for an intercommunicator: processes of one colour on both sides are joined;
// for colours on one side only it returns nil (MPI-4.1, section 7.4.2).
func (c *Comm) splitBoth(ctx context.Context, t settle.Terms, colour, key int, how string) (*Comm, error) {
	round, err := c.nextRound(ctx)
	if err != nil {
		return nil, err
	}
	ids, _, err := round.settleBoth(ctx, t, 0)
	if err != nil {
		return nil, err
	}
	ours, err := coll.Allgather(ctx, round.call, round.call.Size(), group.Choice{Colour: colour, Key: key})
	if err != nil {
		return nil, err
	}
	theirs := make([]group.Choice, c.core.Peers.Size())
	var s settle.Side
	if c.core.Rank == 0 {
		s.Err = coll.Swap(ctx, round.line(), 0, ours, theirs)
	}
	if err := s.Tell(ctx, round.call, 0); err != nil {
		return nil, err
	}
	if err := coll.Bcast(ctx, round.call, theirs, 0); err != nil || colour == Undefined {
		return nil, err
	}
	mine, err := group.SplitOff(c.core.Group, ours, colour)
	if err != nil {
		return nil, err
	}
	other, err := group.SplitOff(c.core.Peers, theirs, colour)
	if err != nil || other.Size() == 0 {
		return nil, err
	}
	made := c.newInter(fmt.Sprintf("%s colour %d", nameOf(c, how, ids.comm), colour), mine, other, ids)
	made.goesOnFrom(round.call)
	return made, nil
}

// contexts are those of a new communicator.
type contexts struct {
	comm, inner uint32 // inner: of an intercommunicator's local group
}

// talk is the exchange of this process, which leads c's group, with the other side's leader.
func (c *Comm) talk(line *collectiveCall, to int) *settle.Talk {
	return &settle.Talk{Line: line, To: to, Us: c.core.Group, Self: c.world.engine.Rank(), NewContext: c.world.comms.contexts.New}
}

// round is one collective call, also of an intercommunicator; then call is on this side's
// group.
type round struct {
	coll.Round
	comm *Comm
	call *collectiveCall
	tag  int // of the two leaders' messages
}

// of sets the round's call.
func (r *round) of(call *collectiveCall) {
	c := r.comm
	r.call = call
	r.Round = coll.Round{Call: call, Rank: c.core.Rank, Size: c.core.Group.Size(), Peers: c.core.Peers.Size(), Comm: c}
	if c.core.IsInter() {
		r.Inter, r.Line = true, func() coll.Call { return r.line() }
	}
}

// nextRound is nextCall for intra- and intercommunicators.
func (c *Comm) nextRound(ctx context.Context) (*round, error) {
	r, err := c.beginRound()
	if err == nil {
		err = r.call.ready(ctx)
	}
	return r, err
}

// beginRound is beginCall for intra- and intercommunicators. The ranks of a group need not give an
// intercommunicator's calls the same arguments, so those are not compared.
func (c *Comm) beginRound(args ...debug.Args) (*round, error) {
	if !c.core.IsInter() {
		call, err := c.beginCall(args...)
		if err != nil {
			return nil, err
		}
		call.round.comm = c
		call.round.of(call)
		return &call.round, nil
	}
	if err := c.core.Usable(); err != nil {
		return nil, err
	}
	var same []debug.Args
	for _, a := range args {
		same = append(same, debug.Args{Alone: a.Alone})
	}
	call, err := c.inner.beginCall(same...)
	if err != nil {
		return nil, err
	}
	call.whole = c // a rank that waits on this side may depend on the other
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &round{comm: c, tag: int(c.calls) * schedule.Slots}
	r.of(call)
	c.calls = (c.calls + 1) & lastCall
	return r, nil
}

// line connects to the other side; both leaders have rank 0.
func (r *round) line() *collectiveCall {
	return &collectiveCall{comm: r.comm, context: r.comm.core.Context + comm.Collective, tag: r.tag, seen: r.call.seen}
}

// settle is settle for intra- and intercommunicators.
func (r *round) settle(ctx context.Context, t settle.Terms) (contexts, error) {
	ids, _, err := r.settleBoth(ctx, t, 0)
	return ids, err
}

// settleBoth also sends a word to the other side and returns its word. Each side agrees internally;
// then the leaders compare the results, and pass them to their sides.
func (r *round) settleBoth(ctx context.Context, t settle.Terms, word uint32) (ids contexts, theirs uint32, err error) {
	id, err := settle.Settle(ctx, r.call, t)
	if !r.comm.core.IsInter() {
		return contexts{comm: id}, 0, err
	}
	var s settle.Side
	if r.comm.core.Rank == 0 {
		s = r.comm.talk(r.line(), 0).Exchange(ctx, t.Kind, word, err)
	}
	if err != nil { // on all of this side
		return contexts{}, 0, err
	}
	if err := s.Tell(ctx, r.call, 0); err != nil {
		return contexts{}, 0, err
	}
	return contexts{comm: s.Comm, inner: id}, s.Word, nil
}
