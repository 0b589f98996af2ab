package calls

import (
	"context"

	"github.com/isthmus-grid/isthmus/collectives/schedule"
	"github.com/isthmus-grid/isthmus/mpilib/internal/coll"
	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/debug"
	"github.com/isthmus-grid/isthmus/mpilib/internal/settle"
)

// Round is one collective call, also of an intercommunicator; then call is on this side's group.
type Round struct {
	coll.Round
	comm *Comm
	call *Call
	tag  int // of the two leaders' messages

	reserved func() (uint32, error) // returns the leader's context that Reserve has allocated; nil for none
}

// of sets the round's call.
func (r *Round) of(call *Call) {
	c := r.comm
	r.call = call
	r.Round = coll.Round{Call: call, Rank: c.Rank, Size: c.Group.Size(), Peers: c.Peers.Size(), Comm: c}
	if c.IsInter() {
		r.Inter, r.Line = true, func() coll.Call { return r.line() }
	}
}

// nextRound is Next for intra- and intercommunicators.
func (c *Comm) nextRound(ctx context.Context) (*Round, error) {
	r, err := c.Begin()
	if err == nil {
		err = r.call.ready(ctx)
	}
	return r, err
}

// Begin assigns a collective call its place in the order of a communicator's calls; so this rank's
// next call has the next place. The ranks of a group need not give an intercommunicator's calls the
// same arguments, so only the calls' names are compared.
func (c *Comm) Begin(args ...debug.Args) (*Round, error) {
	if !c.IsInter() {
		call, err := c.begin(args)
		if err != nil {
			return nil, err
		}
		call.round.comm = c
		call.round.of(call)
		return &call.round, nil
	}
	if err := c.Usable(); err != nil {
		return nil, err
	}
	var same []debug.Args
	for _, a := range args {
		same = append(same, debug.Args{Name: a.Name, Alone: a.Alone})
	}
	call, err := c.Inner.begin(same)
	if err != nil {
		return nil, err
	}
	call.whole = c // a rank that waits on this side may depend on the other
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &Round{comm: c, tag: int(c.calls) * schedule.Slots}
	r.of(call)
	c.calls = (c.calls + 1) & lastCall
	return r, nil
}

// Reserve allocates the contexts that this process contributes to the call, so that they follow the order of the program's
// calls. A call that goes on in the background would otherwise allocate them at any time, and replicas of a rank in
// different orders.
func (r *Round) Reserve() {
	if r.call.Rank() == r.call.Allocator() {
		r.call.reserved = r.comm.World.Contexts.Reserve()
	}
	if r.comm.IsInter() && r.comm.Rank == 0 {
		r.reserved = r.comm.World.Contexts.Reserve()
	}
}

// line connects to the other side; both leaders have rank 0.
func (r *Round) line() *Call {
	return &Call{comm: r.comm, context: r.comm.Context + comm.Collective, Tag: r.tag, seen: r.call.seen}
}

// IDs are the contexts of a new communicator.
type IDs struct {
	Comm, Inner uint32 // Inner: of an intercommunicator's local group
}

// exchangeWith is the exchange of this process, the leader of c's group, with the other side's leader.
func (c *Comm) exchangeWith(line *Call, to int) *settle.LeaderExchange {
	return &settle.LeaderExchange{Line: line, To: to, Us: c.Group, Self: c.Engine.Rank(), NewContext: c.World.Contexts.New}
}

// settle is settle.Settle for intra- and intercommunicators.
func (r *Round) settle(ctx context.Context, t settle.Terms) (IDs, error) {
	ids, _, err := r.settleBoth(ctx, t, 0)
	return ids, err
}

// settleBoth also sends a word to the other side and returns its word. Each side agrees internally;
// then the leaders compare the results, and pass them to their sides.
func (r *Round) settleBoth(ctx context.Context, t settle.Terms, word uint32) (ids IDs, theirs uint32, err error) {
	id, err := settle.Settle(ctx, r.call, t)
	if !r.comm.IsInter() {
		return IDs{Comm: id}, 0, err
	}
	var s settle.Side
	if r.comm.Rank == 0 {
		exchange := r.comm.exchangeWith(r.line(), 0)
		if r.reserved != nil {
			exchange.NewContext = r.reserved
		}
		s = exchange.Run(ctx, t.Kind, word, err)
	}
	if err != nil { // on all of this side
		return IDs{}, 0, err
	}
	if err := s.Broadcast(ctx, r.call, 0); err != nil {
		return IDs{}, 0, err
	}
	return IDs{Comm: s.Comm, Inner: id}, s.Word, nil
}
