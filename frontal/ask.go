package frontal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// asking is one meeting that the gateway asks for on behalf of a node.
type asking struct {
	f         *Frontal
	request   *controlpb.IntroduceRequest // the node's
	technique overlay.Technique
	asker     overlay.ProcessName
	target    overlay.ProcessName
	peer      string // the target's node
	uplink    *control.Session
	end       end

	ctx     context.Context         // of the node's call
	abort   context.CancelCauseFunc // ends the technique, because the target's side failed
	current *introducing            // the introduction that the technique is at

	telling  sync.Mutex // held while telling the node: a call's events go one by one
	tell     func(*controlpb.IntroduceEvent) error
	assigned bool // the node was sent what follows ASSIGNED, or that
}

// told is an error that names who speaks.
type told struct{ error }

func (t told) Unwrap() error { return t.error }

// says gives an error the frontal's name, unless it has a speaker's.
func (f *Frontal) says(err error) error {
	if t, ok := errors.AsType[told](err); ok {
		return t.error
	}
	return fmt.Errorf("%s: %w", f.who, err)
}

// askMeeting is Introduce for a node that cannot be the asker's end itself.
func (f *Frontal) askMeeting(ctx context.Context, id control.Identity, req *controlpb.IntroduceRequest, tell func(*controlpb.IntroduceEvent) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if req.SmallPackets {
		ctx = carrier.WithSmallPackets(ctx)
	}
	a, err := f.newAsking(ctx, req, tell)
	if err != nil {
		return f.says(err)
	}
	defer a.endCurrent()
	c, err := f.reserveMeeting(a, id)
	if err != nil {
		return f.says(err)
	}
	conn, err := a.connect(id.Name)
	if err != nil {
		f.meetings.failed.Add(1)
		f.mu.Lock()
		f.carries.take(c.id)
		f.mu.Unlock()
		err = f.says(err)
		f.logLink(c.link, "not carried", err)
		return err
	}
	f.meetings.connected.Add(1)
	f.work.Go(func() { f.runCarry(c, conn) }) // Serve waits for this call, and then for that
	return a.handOver(c)
}

func (f *Frontal) newAsking(ctx context.Context, req *controlpb.IntroduceRequest, tell func(*controlpb.IntroduceEvent) error) (*asking, error) {
	a := &asking{f: f, request: req, tell: tell, ctx: ctx}
	var err error
	if a.technique, err = control.TechniqueFromPB(req.Technique); err != nil {
		return nil, fmt.Errorf("%w: %w", wire.ErrMalformed, err)
	}
	if a.asker, err = control.ProcessFromPB(req.Asker); err != nil {
		return nil, fmt.Errorf("%w: asker: %w", wire.ErrMalformed, err)
	}
	if a.target, err = control.ProcessFromPB(req.Target); err != nil {
		return nil, fmt.Errorf("%w: target: %w", wire.ErrMalformed, err)
	}
	switch {
	case a.asker.Job != a.target.Job:
		return nil, fmt.Errorf("%w: %v asks for %v of another job", overlay.ErrForbidden, a.asker, a.target)
	case req.Port > math.MaxUint16:
		return nil, fmt.Errorf("%w: port %d to dial from", wire.ErrMalformed, req.Port)
	}
	a.peer = f.resolver.NodeOf(a.target)
	if a.uplink, err = f.up.Get(ctx); err != nil {
		return nil, told{err}
	}
	if a.end, err = f.newEnd(ctx, req.Ipv6); err != nil {
		return nil, told{err}
	}
	return a, nil
}

// reserveMeeting takes the place of the connection that is to come.
func (f *Frontal) reserveMeeting(a *asking, id control.Identity) (*carry, error) {
	c := &carry{link: link{
		kind: "meeting", technique: a.technique, job: a.asker.Job, ranks: []uint32{a.asker.Rank, a.target.Rank},
		node: id.Name, peer: a.peer, id: fmt.Sprintf("%x", a.request.Link),
	}, lan: make(chan lanEnd, 1), gone: make(chan struct{})}
	rand.Read(c.id[:])
	c.principal = f.registry.Principal(a.asker)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.links.room(id.Name); err != nil {
		return nil, err
	}
	return c, f.carries.add(c.id, c)
}

// connect carries the technique out.
func (a *asking) connect(node string) (net.Conn, error) {
	if err := a.f.spare(a.technique); err != nil {
		return nil, err
	}
	ctx, cancel := a.f.boundMeeting(a.ctx)
	defer cancel()
	leave, err := a.f.meetings.enter(ctx, node)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, a.abort = context.WithCancelCause(ctx)
	defer a.abort(nil)
	conn, err := a.end.Ask(ctx, a.technique, a.peer, uint16(a.request.Port), a.exchange)
	if err == nil {
		return conn, nil
	}
	if t, ok := errors.AsType[told](context.Cause(ctx)); ok {
		return nil, t // whatever the technique made of being aborted
	}
	return nil, err
}

// handOver tells the node that the gateway has its connection, and passes on
// how the target's side ended. A connection that the node has not fetched when
// its call ends without CONNECTED is closed.
func (a *asking) handOver(c *carry) error {
	connected := false
	defer func() {
		if !connected {
			close(c.gone)
		}
	}()
	if err := a.pass(&controlpb.IntroduceEvent{Kind: controlpb.IntroduceEvent_ACCEPTED, CarryId: c.id[:]}); err != nil {
		return err
	}
	in := a.current
	<-in.done // with the node's call, at the latest
	if in.err != nil {
		return a.f.says(in.err)
	}
	connected = in.last.Kind == controlpb.IntroduceEvent_CONNECTED
	if connected {
		a.end.Keep(a.peer, in.last.Answer)
	}
	return a.pass(&controlpb.IntroduceEvent{Kind: in.last.Kind, Fault: in.last.Fault})
}

// pass tells the node. Of several introductions it sees one: ASSIGNED once, and
// not after ACCEPTED.
func (a *asking) pass(e *controlpb.IntroduceEvent) error {
	a.telling.Lock()
	defer a.telling.Unlock()
	if e.Kind == controlpb.IntroduceEvent_ASSIGNED && a.assigned {
		return nil
	}
	a.assigned = true
	return a.tell(e)
}
