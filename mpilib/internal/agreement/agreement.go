// Package agreement lets the processes of communicators agree despite failures of some of them: it
// carries the notes of package agree's members over the engine, and passes failures to both. It
// identifies communicators by their contexts and processes. Its state is in a world's Agreements.
package agreement

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/isthmus-grid/isthmus/mpilib/internal/agree"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/mpilib/internal/group"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
)

// Agreements are those of a world's communicators, by context. They live as long as the world: a
// slower process may ask for the last decision at any time.
type Agreements struct {
	Engine *engine.Engine // set before all other fields

	mu        sync.Mutex
	byContext map[uint32]*agreement
	early     map[int]int // number of stored notes of each process, in total
}

// maxEarly bounds the stored notes of agreements that this process has not called yet, for each
// process of the world. More than a few arrive only if many processes fail at that time.
const maxEarly = 64

// maxEarlyOfOne bounds those of one process, over all agreements: a note has 32 KiB at most.
const maxEarlyOfOne = 1024

// agreement runs the agreements of one communicator, one after the other: it connects package
// agree's member to the other processes.
type agreement struct {
	all     *Agreements
	context uint32

	mu       sync.Mutex // never held while calling the program; calls to the engine are permitted
	parties  *group.Group
	member   *agree.Member // nil before the first call here
	early    []engine.Event
	waiting  map[uint64]chan agree.Decision // by number, for the waiting call
	expelled error
}

// get returns the agreement of the communicator with the given first context.
func (all *Agreements) get(context uint32) *agreement {
	all.mu.Lock()
	defer all.mu.Unlock()
	a := all.byContext[context]
	if a == nil {
		if all.byContext == nil {
			all.byContext = map[uint32]*agreement{}
		}
		a = &agreement{all: all, context: context, waiting: map[uint64]chan agree.Decision{}}
		all.byContext[context] = a
	}
	return a
}

// HandleEvent handles an event of the engine.
func (all *Agreements) HandleEvent(n engine.Event) {
	if n.Kind == engine.Note {
		all.get(n.Context).handleNote(n)
		return
	}
	all.mu.Lock()
	var each []*agreement
	for _, a := range all.byContext {
		each = append(each, a)
	}
	all.mu.Unlock()
	for _, a := range each {
		if n.Kind == engine.Outcast {
			a.handleOutcast()
		} else {
			a.handleLoss(n.Rank)
		}
	}
}

// Start contributes v to the next agreement of the communicator with the given first context and
// processes, and returns a handle that waits for its decision. acknowledged reports whether the
// failure of a process is acknowledged.
func (all *Agreements) Start(ctxID uint32, parties func() *group.Group, acknowledged func(world int) bool, v agree.Value) (func(context.Context) (agree.Value, error), error) {
	a := all.get(ctxID)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.join(parties)
	if a.expelled != nil {
		return nil, a.expelled
	}
	var acked []int
	for rank, world := range a.parties.All() {
		if acknowledged(world) {
			acked = append(acked, rank)
		}
	}
	v.Acked = agree.SetOf(acked...)
	seq, out := a.member.Start(v)
	decided := make(chan agree.Decision, 1)
	a.waiting[seq] = decided
	a.carryOut(out)
	return func(ctx context.Context) (agree.Value, error) {
		select {
		case d, ok := <-decided:
			if !ok {
				return agree.Value{}, a.expelledError()
			}
			return d.Value, nil
		case <-ctx.Done():
			return agree.Value{}, fmt.Errorf("%w, while it waited for %s", context.Cause(ctx), a.describeAwaited())
		}
	}, nil
}

// join creates the member at the first call. mu is held.
func (a *agreement) join(parties func() *group.Group) {
	if a.member != nil {
		return
	}
	if a.all.Engine.Outcast() {
		a.leave(agree.ErrExpelled)
	}
	a.parties = parties()
	a.member = agree.New(a.parties.Rank(a.all.Engine.Rank()), a.parties.Size())
	for _, world := range a.all.Engine.Lost() { // later losses are reported by told
		a.fail(world)
	}
	for _, n := range a.early {
		a.all.countEarly(n.Rank, -1)
		a.receive(n)
	}
	a.early = nil
}

// handleNote handles a note of another process.
func (a *agreement) handleNote(n engine.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.member != nil:
		a.receive(n)
	case len(a.early) < maxEarly*a.all.Engine.Size() && a.all.countEarly(n.Rank, 1):
		a.early = append(a.early, n)
	default: // it has more than the protocol defines
		a.all.Engine.MarkFailed(n.Rank, fmt.Errorf("it sent too many notes of agreements that have not begun here, %d of this one", len(a.early)))
	}
}

// countEarly counts the stored notes of a process, and reports whether one more may be stored.
func (all *Agreements) countEarly(rank, n int) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.early == nil {
		all.early = map[int]int{}
	}
	if all.early[rank]+n > maxEarlyOfOne {
		return false
	}
	all.early[rank] += n
	return true
}

// receive passes a note to the member. mu is held.
func (a *agreement) receive(n engine.Event) {
	m, err := agree.Parse(n.Note, a.parties.Size())
	var out agree.Out
	if err == nil {
		out, err = a.member.Receive(a.parties.Rank(n.Rank), m)
	}
	switch {
	case errors.Is(err, agree.ErrExpelled):
		a.leave(err)
	case err != nil:
		a.all.Engine.MarkFailed(n.Rank, err)
	}
	a.carryOut(out)
}

// handleOutcast handles the news that others consider this process failed. They continue without it, and
// a decision with the others that have not reported it yet could differ from theirs.
func (a *agreement) handleOutcast() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave(agree.ErrExpelled)
}

// leave ends all agreements here because this process is no longer a member. mu is held.
func (a *agreement) leave(err error) {
	a.expel(fmt.Errorf("rank %d of the world: %w: %w", a.all.Engine.Rank(), mpi.ErrProcFailed, err))
}

// handleLoss handles the end of the connection to a process.
func (a *agreement) handleLoss(world int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.member != nil {
		a.fail(world)
	}
}

// fail removes a process from the member. The others may not know of the failure of a process that
// only this one could not reach, and would wait for it: so it counts as failed from now on for all
// processes. mu is held.
func (a *agreement) fail(world int) {
	if a.parties.Rank(world) >= 0 {
		a.all.Engine.MarkFailed(world, errors.New("it could not be reached for an agreement"))
	}
	if rank := a.parties.Rank(world); rank >= 0 && rank != a.parties.Rank(a.all.Engine.Rank()) {
		a.carryOut(a.member.Fail(rank))
	}
}

// carryOut carries out the member's actions, as long as it is a member. mu is held.
func (a *agreement) carryOut(out agree.Out) {
	if a.expelled != nil {
		return
	}
	for _, e := range out.Send {
		to := a.parties.WorldRank(e.To)
		if err := a.all.Engine.SendNote(to, a.context, e.Message.Append(nil)); err != nil {
			a.expel(fmt.Errorf("to rank %d of the world: %w", to, err))
		}
	}
	for rank := range a.member.WaitsFor().Ranks() { // the others may not detect its failure
		a.all.Engine.AwaitNotes(a.parties.WorldRank(rank))
	}
	for _, d := range out.Decided {
		for rank := range d.Value.Failed.Ranks() { // some may have learned it only here
			a.all.Engine.MarkFailed(a.parties.WorldRank(rank), errors.New("the others have agreed that it has failed"))
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

func (a *agreement) expelledError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.expelled
}

// describeAwaited names the ranks that an agreement waits for.
func (a *agreement) describeAwaited() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprintf("ranks %v", a.member.WaitsFor())
}
