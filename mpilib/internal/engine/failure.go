package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/link"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine/protocol"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// This file handles failed processes.
//
// A process has failed when its link ends without a goodbye: the link has tried
// other carriers by then, unless both processes run on one node, where a socket ends
// only with its process. A process that detects a failure, or receives the report of
// one, reports it over all its links, also over later ones, so that the report reaches
// all live processes. Links to the sources of pending receives are set up (seek.go),
// since no other process might detect their failure.
//
// A process that was reported failed stays so, for all processes, even if it is alive: its links are closed.

var (
	// ErrProcFailedPending is the error of waiting for a receive from any source when
	// a possible source has failed: the receive stays pending, and can be waited for
	// again once the failure is acknowledged. It is an ErrProcFailed.
	ErrProcFailedPending = fmt.Errorf("the receive goes on, but a possible source is lost (acknowledge that, or cancel): %w", ErrProcFailed)
	// ErrRevoked is the error of an operation in a revoked context.
	ErrRevoked = protocol.ErrRevoked
)

const (
	// maxNote bounds a note in bytes, and maxNotes the number of notes of one peer
	// that were not reported to the owner yet.
	maxNote  = eagerShared
	maxNotes = 1 << 14
)

// announceFailure reports the failure of a process to all peers with a link. mu is held.
func (e *Engine) announceFailure(p *peer) {
	e.failed = append(e.failed, p.process)
	if !e.outcast {
		e.broadcastEnvelope(wire.Envelope{Kind: wire.EnvelopeFailed, ID: uint32(p.process)})
	}
	if e.replicas != nil {
		e.replicas.processFailed(p)
	} else {
		e.rankFailed(p.rank, p.proto.Failed)
	}
}

// rankFailed ends the requests that need all members of a group that contains a failed rank. mu is held.
func (e *Engine) rankFailed(rank int, err error) {
	e.dead = append(e.dead, rank)
	e.failRequests(func(r *Request) error {
		if r.group.Whole() && r.group.Member(rank) {
			return err
		}
		return nil
	})
	e.core.PostedReceives(func(r *protocol.Request) bool { // waiters for any source check again
		if o := owner(r); r.Peer == AnySource && o.group.Member(rank) {
			o.wakeWaiters()
		}
		return true
	})
}

// broadcastEnvelope sends an envelope to all peers with a link; carryOut has it written. mu is held.
func (e *Engine) broadcastEnvelope(env wire.Envelope) {
	for _, p := range e.peers {
		if p != nil && p.transport.connected() && !p.proto.Gone {
			p.queueControl(env)
			e.dispatches = append(e.dispatches, p)
		}
	}
}

// sendHistory sends a peer whose link is new the reports that it may have missed. mu is held.
func (p *peer) sendHistory() {
	if !p.e.outcast {
		for _, process := range p.e.failed {
			p.queueControl(wire.Envelope{Kind: wire.EnvelopeFailed, ID: uint32(process)})
		}
	}
	for first, n := range p.e.core.Revocations() {
		p.queueControl(wire.Envelope{Kind: wire.EnvelopeRevoked, Context: first, Tag: n})
	}
}

// rejectLink closes a link that is not used, after an envelope with the reason, so that its
// peer does not consider this process failed. A replica that is taken for dead is told so also at the end: it
// must not take a goodbye for that of an equal.
func (e *Engine) rejectLink(l *link.Link) {
	why := wire.Envelope{Kind: wire.EnvelopeGoodbye}
	e.mu.Lock()
	q := int(l.Peer.Rank)
	failed := q < len(e.peers) && e.peers[q] != nil && e.peers[q].proto.Failed != nil
	if e.core.Closed() != nil { // Close fails all peers
		failed = e.replicas != nil && slices.Contains(e.failed, q)
	}
	if failed {
		why = wire.Envelope{Kind: wire.EnvelopeFailed, ID: l.Peer.Rank}
	}
	e.mu.Unlock()
	l.Conn.Append(stream.Copy, why.Append(nil), nil)
	l.Conn.Close() // which has it written
}

// connectFailed handles the failure of setting up a link. mu is held.
func (p *peer) connectFailed(err error) {
	p.connecting = false
	switch ended := errors.Is(err, overlay.ErrEnded); {
	case p.transport.connected() || p.proto.Failed != nil || p.proto.Gone:
	case errors.Is(err, overlay.ErrLeft): // its goodbye went to those that had links with it, if it sent one
		p.leftBefore = true
		p.goodbyeReceived()
		p.fail(err)
	case ended:
		p.fail(fmt.Errorf("%v: %w: %w", p, ErrProcFailed, err))
	case p.transport.queued() || p.proto.Backlog() > 0 || p.notesAwaited || p.slots.used() || p.e.core.AwaitsSource(p.rank),
		p.rank == p.e.cfg.Rank && p.e.replicas.awaitsDecision():
		p.fail(fmt.Errorf("%v: %w", p, err))
	default: // it is only one of the possible senders, and may still start
		p.e.wakeProbes()
	}
}

// failedReceived handles a peer's report that a process has failed. mu is held.
func (p *peer) failedReceived(env wire.Envelope) error {
	e, process := p.e, int(env.ID)
	switch {
	case process >= len(e.peers):
		return fmt.Errorf("%w: process %d of %d has failed", wire.ErrMalformed, process, len(e.peers))
	case e.peers[process] == nil:
		if e.replicas != nil {
			e.replicas.process.Fail(e.cfg.process()) // the peer takes this process for failed
		}
		e.outcast = true // what this process takes for failures from now on is its own
		e.events.add(Event{Kind: Outcast, Rank: p.rank})
		p.fail(fmt.Errorf("%v: %w: it takes this process for failed, and has closed the link", p, ErrProcFailed))
	default:
		q := e.peers[process]
		q.markFailed(fmt.Errorf("%v: %w: rank %d says so", q, ErrProcFailed, p.rank))
	}
	return nil
}

// MarkFailed treats a process of the world as failed, with reason why, unless it has left.
func (e *Engine) MarkFailed(process int, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.peers[process]; p != nil {
		p.markFailed(fmt.Errorf("%v: %w: %w", p, ErrProcFailed, why))
	}
}

// markFailed fails a peer whose link may be working. If the process is alive it is notified,
// so that it does not consider the others failed. mu is held.
func (p *peer) markFailed(err error) {
	if p.leftBefore {
		p.leftBefore, p.proto.Gone = false, false
	}
	switch {
	case p.proto.Gone || p.e.core.Closed() != nil && p.e.replicas == nil: // with replicas, failures matter until the end
		return
	case p.proto.Failed != nil:
		if !slices.Contains(p.e.failed, p.process) { // it could not be reached, which alone is no failure
			p.proto.Failed = err
			p.e.announceFailure(p)
		}
		return
	}
	p.transport.sendNow(stream.Copy, wire.Envelope{Kind: wire.EnvelopeFailed, ID: uint32(p.process)}, nil) // it has no other way to learn of it
	p.fail(err)
}

// Outcast reports whether others treat this process as failed.
func (e *Engine) Outcast() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.outcast
}

// Dead returns the ranks of the world that are known to have failed, in the
// order in which this process learned of it. The slice is the caller's.
func (e *Engine) Dead() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.dead)
}

// Lost returns the ranks that were, or will be, reported as Lost to the owner. The slice
// is the caller's.
func (e *Engine) Lost() (ranks []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.peers {
		if p != nil && (p.proto.Failed != nil || p.proto.Gone) {
			ranks = append(ranks, p.rank)
		}
	}
	return ranks
}

// Revoke ends all pending and later operations in n contexts from first on, here and on every
// process that receives the revocation.
func (e *Engine) Revoke(first, n uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.revoke(first, n)
}

// Revoked reports whether a context is revoked.
func (e *Engine) Revoked(ctxID uint32) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.IsRevoked(ctxID)
}

func (e *Engine) revoke(first, n uint32) {
	if !e.core.Revoke(first, n) {
		return
	}
	e.broadcastEnvelope(wire.Envelope{Kind: wire.EnvelopeRevoked, Context: first, Tag: n})
	e.failRequests(func(r *Request) error {
		if e.core.IsRevoked(r.Context) {
			return ErrRevoked
		}
		return nil
	})
	e.core.DropRevoked(first, n)
	e.carryOut()
}

// maxRevoked is how many contexts one envelope may revoke.
const maxRevoked = 16

func (p *peer) revokedReceived(env wire.Envelope) error {
	if env.Tag == 0 || env.Tag > maxRevoked || env.Context+env.Tag < env.Context {
		return fmt.Errorf("%w: %d contexts from %d on are revoked", wire.ErrMalformed, env.Tag, env.Context)
	}
	p.e.revoke(env.Context, env.Tag)
	return nil
}

// StartError returns why no operation can be started for a group in a context, or nil.
func (e *Engine) StartError(g Group, ctxID uint32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.core.Closed() != nil {
		return e.core.Closed()
	}
	return e.startError(g, ctxID)
}

// startError returns why no operation can be started for a group in a context, or nil. mu is
// held.
func (e *Engine) startError(g Group, ctxID uint32) error {
	if e.core.IsRevoked(ctxID) {
		return ErrRevoked
	}
	if err := e.replicas.seatError(); err != nil {
		return err
	}
	if len(e.dead) > 0 && g.Whole() {
		for _, rank := range e.dead {
			if g.Member(rank) {
				return e.core.SourceError(rank)
			}
		}
	}
	return nil
}

// anySourceError returns the failure that prevents waiting for a receive from any source of
// the group, or nil. mu is held.
func (e *Engine) anySourceError(g Group) error {
	for _, rank := range e.dead {
		if g.Member(rank) && !g.Acknowledged(rank) {
			return e.core.SourceError(rank)
		}
	}
	return nil
}

// blockedBy returns why r, which stays pending, cannot be waited for now, or nil. mu is held.
func (r *Request) blockedBy() error {
	if r.IsSend || r.Peer != AnySource || r.State != waiting || len(r.e.dead) == 0 {
		return nil
	}
	if err := r.e.anySourceError(r.group); err != nil {
		return fmt.Errorf("%w: %w", ErrProcFailedPending, err)
	}
	return nil
}

// BlockedBy returns an ErrProcFailedPending if r, a receive from any source, stays pending
// but cannot be waited for.
func (r *Request) BlockedBy() error {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	return r.blockedBy()
}

// FailBlocked completes r, if a failure blocks it, with that failure.
func (r *Request) FailBlocked() {
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	r.failBlocked()
}

func (r *Request) failBlocked() {
	e := r.e
	if r.blockedBy() != nil && e.core.Withdraw(&r.Request) {
		r.finish(e.anySourceError(r.group))
	}
}

// failRequests ends the requests for which why returns an error. Sends are ended a
// moment later, by a goroutine: to abandon a send that is being written takes time.
// mu is held.
func (e *Engine) failRequests(why func(*Request) error) {
	e.core.FailReceives(func(r *protocol.Request) error { return why(owner(r)) })
	e.carryOut()
	if e.ctx.Err() != nil {
		return
	}
	e.work.Go(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, r := range e.pendingSends() {
			// abandon releases mu: other requests may be complete by now, and their owners
			// may have started other operations with them, which may not be sends.
			if !r.IsSend || r.task != nil || r.State == complete || r.GiveUp != nil {
				continue
			}
			if err := why(r); err != nil {
				r.abandon(err)
			}
		}
	})
}

// pendingSends returns the sends that are not complete for the program. mu is held.
func (e *Engine) pendingSends() []*Request {
	all := map[*Request]bool{}
	add := func(r *Request) {
		if !r.orphan && r.Mode != Buffered {
			all[r] = true
		}
	}
	for _, p := range e.peers {
		if p == nil {
			continue
		}
		p.proto.PendingSends(func(r *protocol.Request) { add(owner(r)) })
		p.transport.requests(add)
	}
	e.core.UnexpectedMessages(func(_ uint32, m *protocol.Message) {
		if m.Sender != nil {
			add(owner(m.Sender))
		}
	})
	list := make([]*Request, 0, len(all))
	for r := range all {
		list = append(list, r)
	}
	return list
}

// SendNote sends the note b to the owner of a world rank's engine, outside of all contexts;
// for a lost rank it does nothing. b is copied.
func (e *Engine) SendNote(rank int, ctxID uint32, b []byte) error {
	if len(b) > maxNote {
		return fmt.Errorf("a note of %d bytes, at most %d are allowed", len(b), maxNote)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peers[rank]
	if p == nil || p.proto.Failed != nil || p.proto.Gone {
		return nil
	}
	p.transport.send(wire.Envelope{Kind: wire.EnvelopeNote, Context: ctxID, Length: uint64(len(b))}, b)
	p.wantLink()
	p.transport.dispatch(false)
	return nil
}

// AwaitNotes notes that the owner waits for notes of a world rank: if there is no link to
// it, one is requested after seekAfter, and if that fails the rank is Lost. It is in effect
// until there is a link.
func (e *Engine) AwaitNotes(rank int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.peers[rank]
	if p == nil || p.transport.connected() || p.proto.Failed != nil || p.proto.Gone || p.notesAwaited {
		return
	}
	p.notesAwaited = true
	e.seeker.start()
}

// noteReceived handles the envelope of a note. mu is held.
func (p *peer) noteReceived(env wire.Envelope) error {
	switch {
	case env.Length == 0 || env.Length > maxNote || env.Tag != 0:
		return fmt.Errorf("%w: a note of %d bytes, with tag %d", wire.ErrMalformed, env.Length, env.Tag)
	case p.notes >= maxNotes || p.noteBytes >= maxNoteBytes:
		return fmt.Errorf("%w: %d notes at a time, of %d bytes", wire.ErrMalformed, p.notes, p.noteBytes)
	}
	p.in.note, p.in.context = make([]byte, env.Length), env.Context
	msg := &p.proto.In
	msg.Size, msg.Left, msg.Into = env.Length, env.Length, p.in.note
	return nil
}

// noteArrived reports a complete note to the owner. mu is held.
func (p *peer) noteArrived(context uint32, note []byte) {
	p.notes++
	p.noteBytes += len(note)
	p.e.events.add(Event{Kind: Note, Rank: p.rank, Context: context, Note: note})
}
