package frontal

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

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
	tell      func(*controlpb.IntroduceEvent) error
	uplink    *control.Session
	end       end

	ctx      context.Context         // of the node's call
	abort    context.CancelCauseFunc // ends the technique, because the target's side failed
	assigned bool                    // the node was sent ASSIGNED
	current  *introducing            // the introduction that the technique is at
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
	a, err := f.newAsking(ctx, req, tell)
	if err != nil {
		return f.says(err)
	}
	defer a.endCurrent()
	c, err := f.reserveMeeting(a, id)
	if err != nil {
		return f.says(err)
	}
	conn, err := a.connect()
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
	a.peer = f.resolver.nodeOf(a.target)
	if a.uplink, err = f.up.get(ctx); err != nil {
		return nil, told{err}
	}
	if a.end, err = f.newEnd(ctx); err != nil {
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
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.links.room(); err != nil {
		return nil, err
	}
	return c, f.carries.add(c.id, c)
}

// connect carries the technique out.
func (a *asking) connect() (net.Conn, error) {
	ctx, cancel := a.f.boundMeeting(a.ctx)
	defer cancel()
	leave, err := a.f.meetings.enter(ctx)
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
	if err := a.tell(&controlpb.IntroduceEvent{Kind: controlpb.IntroduceEvent_ACCEPTED, CarryId: c.id[:]}); err != nil {
		return err
	}
	in := a.current
	<-in.done // with the node's call, at the latest
	if in.err != nil {
		return in.err
	}
	connected = in.last.Kind == controlpb.IntroduceEvent_CONNECTED
	if connected {
		a.end.Keep(a.peer, in.last.Answer)
	}
	return a.tell(&controlpb.IntroduceEvent{Kind: in.last.Kind, Fault: in.last.Fault})
}

// introducing is one introduction under way at the broker.
type introducing struct {
	stream grpc.ServerStreamingClient[controlpb.IntroduceEvent]
	cancel context.CancelFunc

	done chan struct{}             // closed when the fields below are known
	last *controlpb.IntroduceEvent // CONNECTED or FAILED
	err  error                     // why there is no last
}

// exchange is the meeting.Exchange: it has the target's side introduced with an
// offer and returns the answer. What follows the answer is read on, and a
// failure of the target's side ends the technique here, too.
func (a *asking) exchange(ctx context.Context, offer []byte) ([]byte, error) {
	a.endCurrent() // the introduction before only prepared this one
	if err := a.f.checkNegotiation("offer", offer); err != nil {
		return nil, told{err}
	}
	req := proto.CloneOf(a.request)
	req.Offer, req.Port = offer, 0
	life, cancel := context.WithCancel(a.ctx)
	in := &introducing{cancel: cancel, done: make(chan struct{})}
	detach := context.AfterFunc(ctx, cancel) // until the answer is there
	answer, err := a.start(life, in, req)
	if !detach() && err == nil {
		err = context.Canceled
	}
	if err != nil {
		cancel()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("waiting for the target's answer: %w", context.Cause(ctx))
		}
		return nil, err
	}
	a.current = in
	a.f.work.Go(func() { a.follow(life, in) }) // endCurrent waits for it
	return answer, nil
}

// start opens the introduction and reads until the target's side accepted.
func (a *asking) start(ctx context.Context, in *introducing, req *controlpb.IntroduceRequest) (answer []byte, err error) {
	if in.stream, err = controlpb.NewDirectoryClient(a.uplink.Conn()).Introduce(ctx, req); err != nil {
		return nil, told{a.f.up.callError(a.uplink, err)}
	}
	for {
		e, err := a.next(in)
		if err != nil {
			return nil, err
		}
		switch e.Kind {
		case controlpb.IntroduceEvent_ASSIGNED:
			if !a.assigned {
				a.assigned = true
				if err := a.tell(e); err != nil {
					return nil, fmt.Errorf("%w: the asker's helper is gone: %w", overlay.ErrUnreachable, err)
				}
			}
		case controlpb.IntroduceEvent_ACCEPTED:
			return e.Answer, nil
		case controlpb.IntroduceEvent_FAILED:
			return nil, failure(e)
		default:
			return nil, fmt.Errorf("%w: the target's side says %v before it accepted", wire.ErrMalformed, e.Kind)
		}
	}
}

// next reads one event.
func (a *asking) next(in *introducing) (*controlpb.IntroduceEvent, error) {
	e, err := in.stream.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%w: the broker ended the introduction without a result", overlay.ErrUnreachable)
	case err != nil:
		return nil, told{a.f.up.callError(a.uplink, err)}
	}
	if err := a.f.checkNegotiation("answer", e.Answer); err != nil {
		return nil, told{err}
	}
	return e, nil
}

// follow reads how the target's side fares after it accepted.
func (a *asking) follow(ctx context.Context, in *introducing) {
	defer close(in.done)
	e, err := a.next(in)
	if err == nil && e.Kind != controlpb.IntroduceEvent_CONNECTED && e.Kind != controlpb.IntroduceEvent_FAILED {
		err = told{fmt.Errorf("%s: %w: the target's side says %v after it accepted", a.f.who, wire.ErrMalformed, e.Kind)}
	}
	switch {
	case ctx.Err() != nil: // nobody wants to know
		in.err = ctx.Err()
	case err != nil:
		in.err = a.f.says(err)
		a.abort(told{in.err})
	default:
		in.last = e
		if e.Kind == controlpb.IntroduceEvent_FAILED {
			a.abort(failure(e))
		}
	}
}

// endCurrent ends the introduction that the technique was at, if there is one.
func (a *asking) endCurrent() {
	if a.current != nil {
		a.current.cancel()
		<-a.current.done
		a.current = nil
	}
}

func failure(e *controlpb.IntroduceEvent) error {
	if e.Fault == nil {
		return fmt.Errorf("%w: the target's side gave no reason", overlay.ErrRefused)
	}
	return told{control.FaultErr(e.Fault)}
}
