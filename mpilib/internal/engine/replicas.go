package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/isthmus-grid/isthmus/mpilib/internal/copypool"
	"github.com/isthmus-grid/isthmus/mpilib/internal/replica"
	"github.com/isthmus-grid/isthmus/wire"
)

// replicas is what an engine does where ranks have several processes: package replica decides, and this
// carries it out. A nil *replicas is an engine of ranks with one process each. The engine's lock guards all of it.
//
// A send of the program is copied, and complete as package replica says; what goes to a process is a send of its own
// (an orphan: no caller waits for it). A receive is posted when package replica says so. Links carry
// everything: a waiter reads that of the process that serves its rank, and their own goroutines read the others.
type replicas struct {
	e        *Engine
	process  *replica.Process
	queue    []replica.Effect // to be carried out, in order
	spare    []replica.Effect
	calls    uint64            // sends of the program, for reports of divergence
	open     map[*sending]bool // sends that are not complete for the program
	unposted map[*Request]bool // receives
	ending   bool              // the program is over
	failure  error             // why this process cannot go on; nil: it can
	waiting  int               // points that wait for a decision
	woken    chan struct{}     // closed when points may be ready, or the process may have come to its end
	traffic  replica.Traffic
	copies   copypool.Pool
	hold     bool    // what is sent now its caller writes, see writeHeld
	held     []*peer // with something to write for such callers
}

// sending is a message of the program that not all have acknowledged.
type sending struct {
	replica.Send
	request *Request // to be completed; nil: it is complete
	group   Group
	buf     []byte
	sent    []*Request // its transmissions
}

// maxReplicaNote bounds a message of package replica.
const maxReplicaNote = 64 << 20

func newReplicas(e *Engine) *replicas {
	return &replicas{
		e: e, open: map[*sending]bool{}, unposted: map[*Request]bool{}, woken: make(chan struct{}),
		process: replica.New(replica.Config{
			Layout: replica.Layout{Ranks: e.cfg.Size, Replicas: e.cfg.Replicas, Spares: e.cfg.Newcomers},
			Seat:   replica.Seat{Rank: e.cfg.Rank, Replica: e.cfg.Replica}, Process: e.cfg.process(), Table: e.cfg.Table, MaxKept: e.cfg.MaxKept, SendDeterministic: e.cfg.SendDeterministic,
			Kinds: e.cfg.Kinds,
		}),
	}
}

// haveEffects reports whether there is something to carry out. mu is held, as in all that follows.
func (s *replicas) haveEffects() bool {
	return s != nil && (len(s.queue) > 0 || s.process.HasEffects())
}

// carryOutNext carries out one effect, and reports whether there was any. The caller carries out the protocol's before the next one,
// so that all are in order; others may come here meanwhile.
func (s *replicas) carryOutNext() bool {
	if !s.haveEffects() {
		return false
	}
	if s.process.HasEffects() {
		list := s.process.Effects(s.spare)
		s.queue = append(s.queue, list...)
		clear(list)
		s.spare = list
	}
	f := s.queue[0]
	s.queue[0] = replica.Effect{}
	s.queue = s.queue[1:]
	s.carryOut(&f)
	return true
}

func (s *replicas) carryOut(f *replica.Effect) {
	switch f.Kind {
	case replica.Transmit:
		s.transmit(f.Process, f.Send.Owner.(*sending))
	case replica.SendControl:
		b := f.Message.Append(nil)
		s.sendTo(f.Process, func(p *peer) {
			s.traffic.CountControl(f.Message.Kind, len(b), s.isOtherReplica(f.Process))
			p.transport.send(wire.Envelope{Kind: wire.EnvelopeReplica, Length: uint64(len(b))}, b)
		})
	case replica.Copy, replica.Complete:
		s.complete(f.Send.Owner.(*sending), nil)
	case replica.Undelivered:
		s.complete(f.Send.Owner.(*sending), s.e.core.SourceError(f.Send.To))
	case replica.Release:
		s.release(f.Send.Owner.(*sending))
	case replica.Post:
		s.post(f.Receive)
	case replica.Cancel:
		r := f.Receive.Owner.(*Request)
		delete(s.unposted, r)
		r.Got.Cancelled = true
		r.finish(nil)
	case replica.Wake:
		s.wake()
	case replica.Condemn:
		p := s.e.peers[f.Process]
		p.markFailed(fmt.Errorf("%v: %w: others take it for failed", p, ErrProcFailed))
	case replica.Lost:
		s.rankLost(f.Rank)
	case replica.Diverge:
		if m := f.Divergence.Messages; m != nil {
			m.Own = s.inOrder(m.Context)
		}
		s.fail(f.Divergence.Explained(s.e.cfg.SendDeterministic))
	case replica.Seated:
		if p := s.e.peers[f.Process]; p != nil {
			p.rank, p.proto.Rank = f.Rank, f.Rank
		}
	case replica.Watch:
		s.e.peers[f.Process].notesAwaited = true
		s.e.peers[f.Process].wantLink()
	case replica.Expel:
		s.fail(errExpelled)
		if s.e.cfg.Expelled != nil {
			s.e.cfg.Expelled()
		}
	}
}

var errExpelled = fmt.Errorf("the other processes take this one for failed, and go on without it: %w", ErrProcFailed)

// sendTo calls send with the peer of a process and has that written, unless the process has failed or left.
func (s *replicas) sendTo(process int, send func(p *peer)) {
	p := s.e.peers[process]
	if p == nil || p.proto.Failed != nil || p.proto.Gone {
		return
	}
	send(p)
	p.wantLink()
	if s.hold {
		s.held = append(s.held, p)
	} else {
		s.e.dispatches = append(s.e.dispatches, p)
	}
}

// writeHeld writes what was sent with hold, for a caller that would wait for it without replicas: otherwise the carriers'
// goroutines had to be woken. mu is held, and released meanwhile.
func (s *replicas) writeHeld(ctx context.Context) {
	for len(s.held) > 0 {
		t := &s.held[0].transport
		s.held = slices.Delete(s.held, 0, 1)
		t.dispatch(true)
		for pushes := 0; t.link.unflushed && pushes < maxPushes && ctx.Err() == nil; pushes++ {
			t.link.push()
		}
		t.dispatch(false)
	}
}

// requestLinks requests a link to each process of a rank: each gets acknowledgements of what was delivered, may be the next
// to send, or decides what this one waits for. Without a link its death would not be noticed.
func (s *replicas) requestLinks(rank int) {
	if s == nil || s.e.cfg.Connect == nil {
		return
	}
	for q := range s.layout().Holders(rank) {
		if p := s.e.peers[q]; p != nil && p.proto.Failed == nil && !p.proto.Gone {
			p.wantLink()
		}
	}
}

// linkToServe returns the link that is to be read for r: that of the process whose messages of the rank are accepted, until it
// fails. All else waits until the links' own goroutines have read something: sends for acknowledgements of several
// processes, and receives for a decision.
func (s *replicas) linkToServe(r *Request) *linkTransport {
	if r.IsSend || r.Peer == AnySource || r.Peer == s.e.cfg.Rank || s.unposted[r] {
		return nil
	}
	server := s.process.Server(r.Peer)
	if server < 0 || !s.e.peers[server].transport.connected() || s.e.peers[server].proto.Failed != nil {
		return nil
	}
	return &s.e.peers[server].transport.link
}

// awaitsDecision reports whether this process waits for what another of its rank decides.
func (s *replicas) awaitsDecision() bool { return s != nil && (s.waiting > 0 || len(s.unposted) > 0) }

// send sends r, a send of the program that waits. It copies the message. With hold the caller calls writeHeld.
func (s *replicas) send(r *Request, hold bool) {
	// A rank that has left has the message already, from another replica of this one, or wants none.
	if err := s.e.core.SourceError(r.Peer); err != nil && !errors.Is(err, ErrFinalized) {
		r.finish(err)
		return
	}
	s.calls++
	s.traffic.Sends++
	s.traffic.SendBytes += uint64(len(r.Buf))
	call, line := s.site()
	x := &sending{request: r, group: r.group, buf: s.copies.Clone(r.Buf)}
	x.Send = replica.Send{
		Context: r.Context, To: r.Peer, Tag: r.Tag, Bytes: len(x.buf), Digest: replica.Digest(x.buf), Call: s.calls, Name: call, Line: line,
		InOrder: s.inOrder(r.Context), Synchronous: r.Mode == Synchronous, Owner: x,
	}
	s.requestLinks(r.Peer)
	s.open[x] = true
	s.process.Send(&x.Send)
	if r.Mode == Buffered {
		s.complete(x, nil)
	}
	s.hold = hold
	s.e.carryOut()
	s.hold = false
}

// inOrder reports whether the program itself sends the messages of a context.
func (s *replicas) inOrder(context uint32) bool {
	return s.e.cfg.InOrder != nil && s.e.cfg.InOrder(context)
}

// site returns what the program called of the library, and where.
func (s *replicas) site() (call, line string) {
	if s.e.cfg.Site == nil {
		return "", ""
	}
	return s.e.cfg.Site()
}

// complete completes a send for the program.
func (s *replicas) complete(x *sending, err error) {
	if r := x.request; r != nil {
		x.request = nil
		delete(s.open, x)
		r.finish(err)
	}
}

// transmit sends a message to a process.
func (s *replicas) transmit(process int, x *sending) {
	s.sendTo(process, func(p *peer) {
		own := &Request{e: s.e, group: x.group, orphan: true}
		own.Begin(own, x.Context, process, x.Tag, x.buf)
		s.traffic.CountData(len(x.buf), s.isOtherReplica(process))
		own.IsSend, own.ByRTS, own.Got = true, x.Synchronous, Result{Source: s.e.cfg.Rank, Tag: x.Tag, Bytes: uint64(len(x.buf))}
		x.sent = append(x.sent, own)
		p.proto.Send(&own.Request, p.transport.eagerLimit())
	})
}

// receive posts r, a receive that waits, once it is known what it may get.
func (s *replicas) receive(r *Request) {
	if err := s.e.core.Closed(); err != nil {
		r.finish(err)
		return
	}
	r.posting = &replica.Receive{Context: r.Context, Source: r.Peer, Tag: r.Tag, Owner: r}
	s.unposted[r] = true
	if r.Peer == AnySource {
		_, r.posting.Line = s.site()
		s.requestLinks(s.e.cfg.Rank)
	}
	s.process.Post(r.posting)
	s.e.carryOut()
}

// post posts a receive.
func (s *replicas) post(f *replica.Receive) {
	r := f.Owner.(*Request)
	delete(s.unposted, r)
	if r.State != waiting {
		return // given up
	}
	if r.Peer, r.Tag = f.Source, f.Tag; r.Peer == AnySource {
		r.Point = f.Point()
	}
	if s.e.core.Receive(&r.Request) {
		s.e.seeker.seek(r.group, r.Peer, false)
	}
}

// receiveMatched says that a message has matched r, of which this process decides what it gets.
func (s *replicas) receiveMatched(r *Request) {
	at := r.Point
	r.Point = 0
	s.process.Decide(at, replica.Outcome{Source: r.Got.Source, Tag: r.Got.Tag})
}

// abandon gives r up, and reports whether that is all.
func (s *replicas) abandon(r *Request, err error) bool {
	switch {
	case r.task != nil || r.IsSend && r.Peer == s.e.cfg.Rank:
		return false
	case r.IsSend:
		for x := range s.open {
			if x.request == r {
				s.complete(x, err)
			}
		}
	case r.State == moving && r.From == nil && r.Got.Source != s.e.cfg.Rank:
		r.GiveUp = err
		s.e.core.GiveUpStranded(&r.Request)
		s.e.carryOut()
	case r.State == moving:
		return false
	default:
		s.withdraw(r)
		r.finish(err)
		s.e.carryOut()
	}
	return true
}

// cancel cancels r, if it is a receive that waits, and reports whether nothing else is to be done.
func (s *replicas) cancel(r *Request) bool {
	if !r.IsSend && r.State == waiting {
		s.withdraw(r)
		r.Got.Cancelled = true
		r.finish(nil)
	}
	return r.Peer != s.e.cfg.Rank || !r.IsSend
}

// withdraw takes back a receive that waits.
func (s *replicas) withdraw(r *Request) {
	delete(s.unposted, r)
	s.e.core.Withdraw(&r.Request)
	r.Point = 0
	s.process.Withdraw(r.posting)
}

// wake wakes the goroutines that wait for an outcome, or for the end.
func (s *replicas) wake() {
	close(s.woken)
	s.woken = make(chan struct{})
}

// replicaReceived begins a message of package replica.
func (p *peer) replicaReceived(env wire.Envelope) error {
	if p.e.replicas == nil || env.Length == 0 || env.Length > maxReplicaNote {
		return fmt.Errorf("%w: a message of %d bytes for replicas", wire.ErrMalformed, env.Length)
	}
	p.in.replicaNote = make([]byte, env.Length)
	msg := &p.proto.In
	msg.Size, msg.Left, msg.Into = env.Length, env.Length, p.in.replicaNote
	return nil
}

// noteArrived takes a message of package replica.
func (s *replicas) noteArrived(p *peer, b []byte) error {
	m, err := replica.Parse(b, s.layout())
	if err == nil {
		err = s.process.Receive(p.process, m)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", wire.ErrMalformed, err)
	}
	s.peerChanged()
	return nil
}

// peerChanged carries out what follows from a message of another process, or from its end.
func (s *replicas) peerChanged() {
	s.e.carryOut()
	if s.ending {
		s.wake()
	}
}

// processFailed says that a process has failed.
func (s *replicas) processFailed(p *peer) {
	s.requestLinks(p.rank) // the process that serves in its place may not know yet
	s.process.Fail(p.process)
	s.peerChanged()
}

// processLeft says that a process has said goodbye.
func (s *replicas) processLeft(p *peer) {
	s.process.Leave(p.process)
	s.peerChanged()
}

// rankLost says that all processes of a rank have failed or left.
func (s *replicas) rankLost(rank int) {
	if err := s.e.core.SourceError(rank); !errors.Is(err, ErrFinalized) && s.e.core.Closed() == nil {
		s.e.rankFailed(rank, err)
	}
	s.e.events.addLost(rank)
}

// fail ends all that the program does, and will do, with err.
func (s *replicas) fail(err error) {
	if s.failure == nil {
		s.failure = err
	}
	s.e.core.Close(err)
	s.close(err)
}

// Expired is expired for a call that waits for something else than requests and messages.
func Expired(e *Engine, err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.replicas.expired(err)
}

// expired returns the error of a call that gives up with err as its context has ended. Replicas of a rank do so at different moments, and
// would go on with different messages: where there are any, nothing else succeeds in this process. mu is held.
func (s *replicas) expired(err error) error {
	if s == nil || s.e.core.Closed() != nil {
		return err
	}
	err = fmt.Errorf("%w: a call's context ended, which it does at another moment in each replica; wait without a bound, or with Waitany: %w", replica.ErrReplicated, err)
	s.fail(err)
	s.e.carryOut()
	return err
}

// endError returns why this process cannot go on, or nil.
func (s *replicas) endError() error {
	if s == nil {
		return nil
	}
	return s.failure
}

// close fails what waits for others.
func (s *replicas) close(err error) {
	if s == nil {
		return
	}
	for x := range s.open {
		s.complete(x, err)
	}
	for r := range s.unposted {
		delete(s.unposted, r)
		r.finish(err)
	}
	s.wake()
}

// end waits until no other process needs anything of this one, whose program is over. mu is given up meanwhile.
func (s *replicas) end(ctx context.Context) error {
	s.close(s.e.core.Closed())
	s.ending = true
	s.process.Drain()
	for {
		woken := s.woken // before carryOut, which may give mu up
		ended := s.process.Ended()
		s.e.carryOut()
		switch {
		case s.failure != nil:
			return s.failure
		case ended:
			return nil
		case s.e.ctx.Err() != nil: // Close was called meanwhile
			return s.e.core.Closed()
		case ctx.Err() != nil:
			return fmt.Errorf("other processes do not have all that this one sent, or another replica is not at its end: %w", ctx.Err())
		}
		s.e.wakeReaders()
		s.e.mu.Unlock()
		select {
		case <-woken:
		case <-ctx.Done():
		}
		s.e.mu.Lock()
	}
}

// Point lets the processes of a rank agree on something that may differ between them, in the order in which the program
// comes to such points: choose is called in one of them, and all return what it returned. kind says what is decided, from 1
// on. Where a rank has one process Point is choose.
func (e *Engine) Point(ctx context.Context, kind uint8, choose func() string) (string, error) {
	s := e.replicas
	if s == nil {
		return choose(), nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := s.seatError(); err != nil {
		return "", err
	}
	_, line := s.site()
	at := s.process.Begin(kind, line)
	for {
		woken := s.woken // before carryOut, which may give mu up
		o, answer := s.process.Outcome(at)
		e.carryOut()
		switch err := e.core.Closed(); {
		case err != nil:
			return "", err
		case answer == replica.Replay:
			return o.Data, nil
		case answer == replica.Choose:
			e.mu.Unlock()
			data := choose()
			e.mu.Lock()
			if err := e.core.Closed(); err != nil {
				return "", err
			}
			s.process.Decide(at, replica.Outcome{Data: data})
			e.carryOut()
			return data, nil
		}
		s.requestLinks(e.cfg.Rank) // who is to decide may die before it says anything
		s.waiting++
		e.wakeReaders()
		e.mu.Unlock()
		select {
		case <-woken:
		case <-ctx.Done():
		}
		e.mu.Lock()
		s.waiting--
		if ctx.Err() != nil {
			return "", s.expired(context.Cause(ctx))
		}
	}
}

// release keeps the copy of a message that all have acknowledged, unless a link may still refer to it.
func (s *replicas) release(x *sending) {
	refers := func(r *Request) bool { // complete: the link has let go of it
		if r.isUncopied() {
			r.takeBack()
		}
		return r.State != complete || r.Err != nil
	}
	if !slices.ContainsFunc(x.sent, refers) && s.copies.Put(x.buf) {
		x.buf = nil
	}
}

// isOtherReplica reports whether a process has another replica number.
func (s *replicas) isOtherReplica(process int) bool {
	return s.layout().Replica(process) != s.e.cfg.Replica
}

// TrafficOf returns the counters of an engine's process. They are zero where ranks have one process each.
func TrafficOf(e *Engine) replica.Traffic {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.replicas == nil {
		return replica.Traffic{}
	}
	return e.replicas.traffic
}
