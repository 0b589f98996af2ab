package mpilib

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/collectives/schedule"
	"github.com/isthmus-grid/isthmus/mpilib/internal/buffer"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
)

// newInter returns an intercommunicator made from c: of two groups that share
// nobody, with a communicator for this side's own use.
func (c *Comm) newInter(name string, mine, theirs *group.Group, ids contexts) *Comm {
	made := c.child(name, mine, ids.comm)
	made.peers, made.aligned = theirs, isAligned(theirs)
	made.inner = newComm(c.world, name+"'s local group", mine, ids.inner)
	made.inner.lent = true
	if w := c.world.watch; w != nil {
		w.Lent((*watchedComm)(made.inner))
	}
	made.inner.handler.Store(c.handler.Load())
	return made
}

// twin returns a communicator of c's processes and kind.
func (c *Comm) twin(name string, ids contexts) *Comm {
	if c.isInter() {
		return c.newInter(name, c.group, c.peers, ids)
	}
	return c.child(name, c.group, ids.comm)
}

// IsInter reports whether c is an intercommunicator (MPI_Comm_test_inter;
// MPI-4.1, section 7.6.1).
func (c *Comm) IsInter() bool { return c.isInter() }

// RemoteSize returns the number of processes on the other side of an
// intercommunicator, 0 of an intracommunicator (MPI_Comm_remote_size; MPI-4.1,
// section 7.6.1).
func (c *Comm) RemoteSize() int {
	if !c.isInter() {
		return 0
	}
	return c.peers.Size()
}

// RemoteGroup returns the processes on the other side of an intercommunicator
// (MPI_Comm_remote_group; MPI-4.1, section 7.6.1).
func (c *Comm) RemoteGroup() (*Group, error) {
	if !c.isInter() {
		return nil, c.called("RemoteGroup", fmt.Errorf("%w: %s has one group; call Group", ErrIntracomm, c.Name()))
	}
	return c.groupOf(c.peers), nil
}

// Local returns the communicator of the local group of an intercommunicator,
// for collectives on this side alone, and c itself of an intracommunicator. It
// is freed with c.
func (c *Comm) Local() *Comm {
	if c.isInter() {
		return c.inner
	}
	return c
}

// IntercommCreate joins two groups that share nobody: all of local's processes
// call it on either side, each side with its own local. The process of rank
// localLeader of local talks to the other side's leader, which has rank
// remoteLeader of peer; peer and remoteLeader count at the leaders only, others
// may give nil and anything. tag, the same on all, tells several calls over
// one peer apart, and collides with no message of the program
// (MPI_Intercomm_create; MPI-4.1, section 7.6.2). A collective call of both.
func IntercommCreate(ctx context.Context, local *Comm, localLeader int, peer *Comm, remoteLeader, tag int) (*Comm, error) {
	call, err := local.nextCall(ctx)
	if err != nil {
		return nil, local.called("IntercommCreate", err)
	}
	made, err := local.join(ctx, call, localLeader, peer, remoteLeader, tag)
	return made, local.called("IntercommCreate", err)
}

// join agrees with this side first, so that a leader speaks for all.
func (c *Comm) join(ctx context.Context, call *collectiveCall, leader int, peer *Comm, remoteLeader, tag int) (*Comm, error) {
	t := terms{kind: callIntercommCreate, args: [maxArgs]arg{numberArg("localLeader", leader), numberArg("tag", tag)}}
	t.fault = checkTag(tag)
	if leader < 0 || leader >= c.Size() {
		t.fault = fmt.Errorf("%w: localLeader %d, communicator %s has ranks 0 to %d", ErrRank, leader, c.Name(), c.Size()-1)
	}
	canSpeak := t.fault == nil
	if leader == c.rank && canSpeak {
		t.fault = peer.checkLeader(c.world, remoteLeader)
		canSpeak = t.fault == nil
	}
	t.word = uint64(leader)
	inner, speaker, err := settleWord(ctx, call, t)
	// Also when this side has failed one rank tells the other side, the one
	// that rank 0 takes for the leader.
	leading := leader == c.rank && int(speaker) == leader
	if err != nil && !(leading && canSpeak) {
		return nil, err
	}
	var s side
	if leading {
		line := &collectiveCall{comm: peer, context: peer.context + leaderContext, tag: tag, pair: true}
		talk := &talk{line: line, to: remoteLeader, world: c.world, us: c.group}
		s = talk.exchange(ctx, t.kind, 0, err)
		if err == nil && s.err == nil {
			s.ranks, s.err = talk.groups(ctx, c.group, int(s.Size))
		}
	}
	if err != nil {
		return nil, err
	}
	if err := s.tell(ctx, call, leader); err != nil {
		return nil, err
	}
	theirs, err := s.tellRanks(ctx, call, leader)
	if err != nil {
		return nil, err
	}
	if both := group.Intersection(c.group, theirs); both.Size() > 0 {
		return nil, fmt.Errorf("%w: rank %d of the world is in both groups; an intercommunicator's share nobody", ErrArg, both.WorldRank(0))
	}
	made := c.newInter(nameOf(c, "intercomm", s.Comm), c.group, theirs, contexts{comm: s.Comm, inner: inner})
	made.goesOnFrom(call)
	return made, nil
}

// checkLeader says why rank r of c, a peer communicator, is no remote leader in w.
func (c *Comm) checkLeader(w *World, r int) error {
	switch {
	case c == nil:
		return fmt.Errorf("%w: the leader must give a peer communicator", ErrArg)
	case c.world != w:
		return fmt.Errorf("%w: the peer communicator %s is of another world, one of two jobs or of one; Merge and Split make further ones of it", ErrArg, c.Name())
	case c.usable() != nil:
		return fmt.Errorf("the peer communicator %s: %w", c.Name(), c.usable())
	case r < 0 || r >= c.peers.Size():
		return fmt.Errorf("%w: remoteLeader %d, peer communicator %s has ranks 0 to %d", ErrRank, r, c.Name(), c.peers.Size()-1)
	case c.global(r) == c.world.engine.Rank():
		return fmt.Errorf("%w: remoteLeader %d of %s is this process; name the other side's leader", ErrArg, r, c.Name())
	}
	return nil
}

// Merge returns an intracommunicator of both groups: first the group whose
// processes give high false, then the other; when both give the same, in an
// order that is the same everywhere (MPI_Intercomm_merge; MPI-4.1, section
// 7.6.2). All of a group give the same. A collective call of both groups.
func (c *Comm) Merge(ctx context.Context, high bool) (*Comm, error) {
	made, err := c.merge(ctx, high)
	return made, c.called("Merge", err)
}

func (c *Comm) merge(ctx context.Context, high bool) (*Comm, error) {
	if !c.isInter() {
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
	ids, theirs, err := round.settleBoth(ctx, terms{kind: callMerge, args: [maxArgs]arg{numberArg("high", mine)}}, uint32(mine))
	if err != nil {
		return nil, err
	}
	first := mine < int(theirs)
	if mine == int(theirs) {
		first = c.group.WorldRank(0) < c.peers.WorldRank(0)
	}
	g := group.Union(c.peers, c.group)
	if first {
		g = group.Union(c.group, c.peers)
	}
	return c.child(nameOf(c, "merge", ids.comm), g, ids.comm), nil
}

// splitBoth is Split of an intercommunicator: processes of one colour on both
// sides are joined; colours of one side only give nil (MPI-4.1, section 7.4.2).
func (c *Comm) splitBoth(ctx context.Context, t terms, colour, key int, how string) (*Comm, error) {
	round, err := c.nextRound(ctx)
	if err != nil {
		return nil, err
	}
	ids, _, err := round.settleBoth(ctx, t, 0)
	if err != nil {
		return nil, err
	}
	ours, err := allgather(ctx, round.call, group.Choice{Colour: colour, Key: key})
	if err != nil {
		return nil, err
	}
	theirs := make([]group.Choice, c.peers.Size())
	var s side
	if c.rank == 0 {
		s.err = swap(ctx, round.line(), 0, ours, theirs)
	}
	if err := s.tell(ctx, round.call, 0); err != nil {
		return nil, err
	}
	if err := bcast(ctx, round.call, theirs, 0); err != nil || colour == Undefined {
		return nil, err
	}
	mine, err := group.SplitOff(c.group, ours, colour)
	if err != nil {
		return nil, err
	}
	other, err := group.SplitOff(c.peers, theirs, colour)
	if err != nil || other.Size() == 0 {
		return nil, err
	}
	made := c.newInter(fmt.Sprintf("%s colour %d", nameOf(c, how, ids.comm), colour), mine, other, ids)
	made.goesOnFrom(round.call)
	return made, nil
}

// contexts are those of a communicator to be.
type contexts struct {
	comm, inner uint32 // inner: of an intercommunicator's local group
}

// round is one collective call that makes a communicator, also of an
// intercommunicator; then call is on this side's group.
type round struct {
	comm *Comm
	call *collectiveCall
	tag  int // of the two leaders' messages
}

// nextRound is nextCall for communicators of both kinds.
func (c *Comm) nextRound(ctx context.Context) (*round, error) {
	r, err := c.beginRound()
	if err == nil {
		err = r.call.ready(ctx)
	}
	return r, err
}

// beginRound is beginCall for communicators of both kinds. The ranks of a group need not
// give an intercommunicator's calls the same arguments, so that those are not compared.
func (c *Comm) beginRound(args ...debug.Args) (*round, error) {
	if !c.isInter() {
		call, err := c.beginCall(args...)
		if err != nil {
			return nil, err
		}
		call.round = round{comm: c, call: call}
		return &call.round, nil
	}
	if err := c.usable(); err != nil {
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
	call.whole = c // who waits on this side may be waiting for the other
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &round{comm: c, call: call, tag: int(c.calls) * schedule.Slots}
	c.calls = (c.calls + 1) & lastCall
	return r, nil
}

// line leads to the other side; both leaders have rank 0.
func (r *round) line() *collectiveCall {
	return &collectiveCall{comm: r.comm, context: r.comm.context + collectiveContext, tag: r.tag, seen: r.call.seen}
}

// settle is settle for all of a communicator, whatever its kind.
func (r *round) settle(ctx context.Context, t terms) (contexts, error) {
	ids, _, err := r.settleBoth(ctx, t, 0)
	return ids, err
}

// settleBoth also tells the other side a word and returns its word. Each side
// agrees by itself; then the leaders compare, and tell their sides.
func (r *round) settleBoth(ctx context.Context, t terms, word uint32) (ids contexts, theirs uint32, err error) {
	id, err := settle(ctx, r.call, t)
	if !r.comm.isInter() {
		return contexts{comm: id}, 0, err
	}
	var s side
	if r.comm.rank == 0 {
		talk := &talk{line: r.line(), world: r.comm.world, us: r.comm.group}
		s = talk.exchange(ctx, t.kind, word, err)
	}
	if err != nil { // on all of this side
		return contexts{}, 0, err
	}
	if err := s.tell(ctx, r.call, 0); err != nil {
		return contexts{}, 0, err
	}
	return contexts{comm: s.Comm, inner: id}, s.Word, nil
}

// talk is between the leaders of two groups.
type talk struct {
	line  *collectiveCall
	to    int // rank of the other leader on line
	world *World
	us    *group.Group
}

// news is what a leader tells the other.
type news struct {
	Kind   callKind
	Failed uint32 // this side cannot go on
	Comm   uint32 // a new context
	Word   uint32
	Size   uint32 // of the group
	Leader uint32 // world rank; the lesser one's context is taken
	_      uint32
}

// side is what a leader tells its own side.
type side struct {
	sideNews
	err   error   // the leader's
	ranks []int32 // world ranks of the other side
}

type sideNews struct {
	Failed, Comm, Word, Size uint32
}

// exchange tells the other leader what kind of call this is and whether this
// side failed, and hears the same. It always does, so that the other side does
// not wait.
func (k *talk) exchange(ctx context.Context, kind callKind, word uint32, failed error) side {
	id, err := k.world.newContext()
	mine := []news{{Kind: kind, Comm: id, Word: word, Size: uint32(k.us.Size()), Leader: uint32(k.world.engine.Rank())}}
	if failed != nil || err != nil {
		mine[0].Failed = 1
	}
	theirs := make([]news, 1)
	if swapErr := swap(ctx, k.line, k.to, mine, theirs); swapErr != nil {
		return side{err: swapErr}
	}
	other := theirs[0]
	switch {
	case err != nil:
		return side{err: err}
	case other.Kind != kind:
		return side{err: fmt.Errorf("%w: the other group calls %v and this one %v; both must call the same", ErrMismatch, other.Kind, kind)}
	case other.Failed != 0:
		return side{err: fmt.Errorf("%w: the other group gave bad arguments; see its errors", ErrMismatch)}
	}
	s := side{sideNews: sideNews{Comm: other.Comm, Word: other.Word, Size: other.Size}}
	if mine[0].Leader < other.Leader {
		s.Comm = id
	}
	return s
}

// groups swaps the members of both groups.
func (k *talk) groups(ctx context.Context, mine *group.Group, theirs int) ([]int32, error) {
	out, in := make([]int32, 0, mine.Size()), make([]int32, theirs)
	for world := range mine.WorldRanks() {
		out = append(out, int32(world))
	}
	return in, swap(ctx, k.line, k.to, out, in)
}

// tell has the leader tell its side what came of its talk.
func (s *side) tell(ctx context.Context, call *collectiveCall, leader int) error {
	leading := call.Rank() == leader
	if leading && s.err != nil {
		s.Failed = 1
	}
	told := []sideNews{s.sideNews}
	err := bcast(ctx, call, told, leader)
	s.sideNews = told[0]
	switch {
	case leading && s.err != nil:
		return s.err
	case err != nil:
		return err
	case s.Failed != 0:
		return fmt.Errorf("%w: rank %d, which talks to the other group, failed; see its error", ErrMismatch, leader)
	}
	return nil
}

// tellRanks has the leader tell its side who is on the other.
func (s *side) tellRanks(ctx context.Context, call *collectiveCall, leader int) (*group.Group, error) {
	if call.Rank() != leader {
		s.ranks = make([]int32, s.Size)
	}
	if err := bcast(ctx, call, s.ranks, leader); err != nil {
		return nil, err
	}
	ranks := make([]int, len(s.ranks))
	for i, r := range s.ranks {
		ranks[i] = int(r)
	}
	return group.Of(ranks)
}

// swap sends out to rank to of line and fills in with what comes from there.
func swap[T Elem](ctx context.Context, line *collectiveCall, to int, out, in []T) error {
	o, i, _, err := buffer.Views(out, in)
	if err != nil {
		return err
	}
	receive, send := line.Irecv(to, 0, i), line.Isend(to, 0, o)
	sendErr, receiveErr := send.Wait(ctx), receive.Wait(ctx)
	if err := firstOf(receiveErr, sendErr); err != nil {
		return fmt.Errorf("talking to rank %d of the world, the other group's leader: %w", line.comm.global(to), err)
	}
	return nil
}
