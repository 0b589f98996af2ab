package mpilib

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/isthmus-grid/isthmus/mpilib/internal/agree"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
)

// agreements are those of a world's communicators, by context. They last as
// long as the world: whoever is behind may ask for the last decision at any time.
type agreements struct {
	mu    sync.Mutex
	of    map[uint32]*agreement
	early map[int]int // how many notes of each process are kept in all
}

// maxEarly is how many notes are kept of agreements that this process has not
// called yet, for each process of the world. More than a few come only where many
// processes fail meanwhile.
const maxEarly = 64

// maxEarlyOfOne bounds those of one process, over all agreements: a note has 32 KiB at most.
const maxEarlyOfOne = 1024

// agreement makes the agreements of one communicator, one after the other: it
// has package agree's member do so by the notes that processes send each other.
type agreement struct {
	world   *World
	context uint32

	mu       sync.Mutex // never held while the program is called; the engine may be
	parties  *group.Group
	member   *agree.Member // nil before the first call here
	early    []engine.News
	waiting  map[uint64]chan agree.Decision // by number, for the call that waits
	expelled error
}

// agreementOf returns what makes the agreements of the communicator whose first
// context is given.
func (w *World) agreementOf(context uint32) *agreement {
	all := &w.comms.agreements
	all.mu.Lock()
	defer all.mu.Unlock()
	a := all.of[context]
	if a == nil {
		if all.of == nil {
			all.of = map[uint32]*agreement{}
		}
		a = &agreement{world: w, context: context, waiting: map[uint64]chan agree.Decision{}}
		all.of[context] = a
	}
	return a
}

// told is told what the engine has to say.
func (w *World) told(n engine.News) {
	if n.Kind == engine.Note {
		w.agreementOf(n.Context).note(n)
		return
	}
	all := &w.comms.agreements
	all.mu.Lock()
	var each []*agreement
	for _, a := range all.of {
		each = append(each, a)
	}
	all.mu.Unlock()
	for _, a := range each {
		if n.Kind == engine.Outcast {
			a.outcast()
		} else {
			a.lost(n.Rank)
		}
	}
}

// everyoneOf returns both sides of an intercommunicator, in an order that is the
// same on both, or c's group.
func (c *Comm) everyoneOf() *group.Group {
	switch {
	case !c.isInter():
		return c.group
	case c.group.WorldRank(0) < c.peers.WorldRank(0):
		return group.Union(c.group, c.peers)
	}
	return group.Union(c.peers, c.group)
}

// start contributes v to the next agreement of c, and returns what waits for its
// decision.
func (c *Comm) startAgreement(v agree.Value) (func(context.Context) (agree.Value, error), error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	a := c.world.agreementOf(c.context)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.join(c)
	if a.expelled != nil {
		return nil, a.expelled
	}
	var acked []int
	for rank, world := range a.parties.All() {
		if c.acknowledged(world) {
			acked = append(acked, rank)
		}
	}
	v.Acked = agree.SetOf(acked...)
	seq, out := a.member.Start(v)
	decided := make(chan agree.Decision, 1)
	a.waiting[seq] = decided
	a.do(out)
	return func(ctx context.Context) (agree.Value, error) {
		select {
		case d, ok := <-decided:
			if !ok {
				return agree.Value{}, a.why()
			}
			return d.Value, nil
		case <-ctx.Done():
			return agree.Value{}, fmt.Errorf("%w, while it waited for %s", context.Cause(ctx), a.who())
		}
	}, nil
}

// join makes the member at the first call. mu is held.
func (a *agreement) join(c *Comm) {
	if a.member != nil {
		return
	}
	if c.world.engine.Outcast() {
		a.leave(agree.ErrExpelled)
	}
	a.parties = c.everyoneOf()
	a.member = agree.New(a.parties.Rank(c.world.engine.Rank()), a.parties.Size())
	for _, world := range c.world.engine.Lost() { // who is lost later, told says
		a.fail(world)
	}
	for _, n := range a.early {
		a.world.comms.agreements.countEarly(n.Rank, -1)
		a.receive(n)
	}
	a.early = nil
}

// note takes a note of another process.
func (a *agreement) note(n engine.News) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.member != nil:
		a.receive(n)
	case len(a.early) < maxEarly*a.world.engine.Size() && a.world.comms.agreements.countEarly(n.Rank, 1):
		a.early = append(a.early, n)
	default: // it says more than the protocol has it say
		a.world.engine.Fail(n.Rank, fmt.Errorf("it sent too many notes of agreements that have not begun here, %d of this one", len(a.early)))
	}
}

// countEarly counts notes of a process that are kept, and reports whether one more may be.
func (all *agreements) countEarly(rank, more int) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.early == nil {
		all.early = map[int]int{}
	}
	if all.early[rank]+more > maxEarlyOfOne {
		return false
	}
	all.early[rank] += more
	return true
}

// receive hands a note to the member. mu is held.
func (a *agreement) receive(n engine.News) {
	m, err := agree.Parse(n.Note, a.parties.Size())
	var out agree.Out
	if err == nil {
		out, err = a.member.Receive(a.parties.Rank(n.Rank), m)
	}
	switch {
	case errors.Is(err, agree.ErrExpelled):
		a.leave(err)
	case err != nil:
		a.world.engine.Fail(n.Rank, err)
	}
	a.do(out)
}

// outcast is told that others take this process for failed. They go on without it, and
// what it would agree on with those who have not told it so yet would be something else.
func (a *agreement) outcast() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave(agree.ErrExpelled)
}

// leave ends all agreements here because this process is no member any more. mu is held.
func (a *agreement) leave(err error) {
	a.expel(fmt.Errorf("rank %d of the world: %w: %w", a.world.engine.Rank(), ErrProcFailed, err))
}

// lost is told that nothing comes from a process any more.
func (a *agreement) lost(world int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.member != nil {
		a.fail(world)
	}
}

// fail has the member do without a process. One that could not be reached is none
// that others know of, and they would wait for it: it counts as failed from now on,
// for everybody. mu is held.
func (a *agreement) fail(world int) {
	if a.parties.Rank(world) >= 0 {
		a.world.engine.Fail(world, errors.New("it could not be reached for an agreement"))
	}
	if rank := a.parties.Rank(world); rank >= 0 && rank != a.parties.Rank(a.world.engine.Rank()) {
		a.do(a.member.Fail(rank))
	}
}

// do carries out what the member wants, as long as it is one. mu is held.
func (a *agreement) do(out agree.Out) {
	if a.expelled != nil {
		return
	}
	for _, e := range out.Send {
		to := a.parties.WorldRank(e.To)
		if err := a.world.engine.SendNote(to, a.context, e.Message.Append(nil)); err != nil {
			a.expel(fmt.Errorf("to rank %d of the world: %w", to, err))
		}
	}
	for rank := range a.member.WaitsFor().Ranks() { // nobody else may find out that it has failed
		a.world.engine.Expect(a.parties.WorldRank(rank))
	}
	for _, d := range out.Decided {
		for rank := range d.Value.Failed.Ranks() { // some may have been told only here
			a.world.engine.Fail(a.parties.WorldRank(rank), errors.New("the others have agreed that it has failed"))
		}
		if c := a.waiting[d.Seq]; c != nil {
			delete(a.waiting, d.Seq)
			c <- d
		}
	}
}

// expel ends all agreements here. mu is held.
func (a *agreement) expel(why error) {
	if a.expelled != nil {
		return
	}
	a.expelled = why
	for seq, c := range a.waiting {
		delete(a.waiting, seq)
		close(c)
	}
}

func (a *agreement) why() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.expelled
}

// who names the ranks that an agreement waits for.
func (a *agreement) who() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprintf("ranks %v", a.member.WaitsFor())
}

// Agree returns the conjunction of the flags that all processes give, in which
// those that died on the way may or may not have a part: the same everywhere,
// however many die meanwhile (MPI_Comm_agree of ULFM). If a process has failed
// and not every process had acknowledged that (AckFailed), all get an
// ErrProcFailed beside the flags. It works on a revoked communicator. All
// that live call it, also both groups of an intercommunicator, and in the same
// order as Shrink; other calls may go on meanwhile.
//
// When ctx is done the call returns, but its contribution stands, and the number
// of the call is used up.
func (c *Comm) Agree(ctx context.Context, flags uint64) (uint64, error) {
	wait, err := c.startAgree(flags)
	if err != nil {
		return 0, c.called("Agree", err)
	}
	flags, err = wait(ctx)
	return flags, c.called("Agree", err)
}

// Iagree starts an Agree (MPI_Comm_iagree of ULFM). ctx bounds the Agree itself.
func (c *Comm) Iagree(ctx context.Context, flags uint64) *Pending[uint64] {
	wait, err := c.startAgree(flags)
	return inBackground(ctx, c, "Iagree", func(ctx context.Context) (uint64, error) {
		if err != nil {
			return 0, err
		}
		return wait(ctx)
	})
}

func (c *Comm) startAgree(flags uint64) (func(context.Context) (uint64, error), error) {
	wait, err := c.startAgreement(agree.Value{Flags: flags})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (uint64, error) {
		v, err := wait(ctx)
		if err == nil && !v.Unacknowledged().Empty() {
			err = fmt.Errorf("%w: ranks %v, which not every process has acknowledged", ErrProcFailed, v.Unacknowledged())
		}
		return v.Flags, err
	}, nil
}

// Shrink returns a communicator of the processes of c that are not known to have failed, in
// their order: all get the same, and nobody whose failure any of them
// knew of is in it (MPI_Comm_shrink of ULFM). An intercommunicator's Shrink is one, of what is left of
// both groups; it is nil where a group has nobody left. It works on a revoked
// communicator. All that live call it, in the same order as Agree.
func (c *Comm) Shrink(ctx context.Context) (*Comm, error) {
	wait, err := c.startShrink()
	if err != nil {
		return nil, c.called("Shrink", err)
	}
	made, err := wait(ctx)
	return made, c.called("Shrink", err)
}

// Ishrink starts a Shrink (MPI_Comm_ishrink of ULFM). ctx bounds the Shrink itself.
func (c *Comm) Ishrink(ctx context.Context) *Pending[*Comm] {
	wait, err := c.startShrink()
	return inBackground(ctx, c, "Ishrink", func(ctx context.Context) (*Comm, error) {
		if err != nil {
			return nil, err
		}
		return wait(ctx)
	})
}

// startShrink agrees on who has failed and on the greatest of the contexts that
// everybody proposes, each one of its own that nobody else has or will have. An
// intercommunicator needs two.
func (c *Comm) startShrink() (func(context.Context) (*Comm, error), error) {
	var waits []func(context.Context) (agree.Value, error)
	for range c.sides() {
		id, err := c.world.newContext()
		if err != nil {
			return nil, err
		}
		wait, err := c.startAgreement(agree.Value{Flags: ^uint64(0), Max: uint64(id)})
		if err != nil {
			return nil, err
		}
		waits = append(waits, wait)
	}
	return func(ctx context.Context) (*Comm, error) {
		var ids []uint32
		var failed agree.Set
		for _, wait := range waits {
			v, err := wait(ctx)
			if err != nil {
				return nil, err
			}
			ids = append(ids, uint32(v.Max))
			failed = v.Failed // the later includes the earlier
		}
		return c.without(failed, ids)
	}, nil
}

func (c *Comm) sides() int {
	if c.isInter() {
		return 2
	}
	return 1
}

// without returns a communicator of those of c that are not in failed, which are ranks
// of everyoneOf.
func (c *Comm) without(failed agree.Set, ids []uint32) (*Comm, error) {
	everyone := c.everyoneOf()
	left := func(g *group.Group) (*group.Group, error) {
		var worlds []int
		for _, world := range g.All() {
			if !failed.Has(everyone.Rank(world)) {
				worlds = append(worlds, world)
			}
		}
		return group.Of(worlds)
	}
	mine, err := left(c.group)
	if err != nil {
		return nil, err
	}
	if !c.isInter() {
		return c.child(nameOf(c, "shrink", ids[0]), mine, ids[0]), nil
	}
	theirs, err := left(c.peers)
	if err != nil || theirs.Size() == 0 {
		return nil, err
	}
	return c.newInter(nameOf(c, "shrink", ids[0]), mine, theirs, contexts{comm: ids[0], inner: ids[1]}), nil
}
