// Package signalling is both sides of a signalling request, for helpers and for the gateways that stand in
// for nodes: an asker's, which makes it and follows its events (Call), and a target's, which tells by them
// what it does. By such requests it carries out the techniques of package coordinate, with Ask at the asker
// and Answer at the target.
//
// It knows neither who is where nor who may ask for what, and hands no connection to a process: its callers
// do. A Call has one goroutine, which ends with the request.
package signalling

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// ErrUnanswered marks the end of a wait for a signalling request that the target's side has not
// accepted: nothing was tried.
var ErrUnanswered = errors.New("the target's side has not begun")

// Attributed is an error that names its source.
type Attributed struct{ Err error }

// Error is that of Err.
func (a Attributed) Error() string { return a.Err.Error() }

// Unwrap returns Err.
func (a Attributed) Unwrap() error { return a.Err }

// Call is a signalling request, from the asker's side.
//
//	asked ---> ASSIGNED ---> ACCEPTED ---> CONNECTED
//	   \----------\-------------\--------> err, which FAILED may bring
//
// A technique may have connected before the news of ACCEPTED is here, so nothing but its owner ends a Call.
type Call struct {
	hooks  Hooks
	ctx    context.Context
	cancel context.CancelFunc
	events [controlpb.SignalEvent_FAILED + 1]*controlpb.SignalEvent
	seen   [controlpb.SignalEvent_FAILED + 1]chan struct{} // closed when the event of that kind is there
	done   chan struct{}                                   // closed at the end
	err    error                                           // why it ended without CONNECTED; valid after done
}

// Hooks are called by a Call's goroutine. Those that are nil are not called.
type Hooks struct {
	CallError func(error) error                  // says what an error of the call itself means; not nil
	Assigned  func(*controlpb.SignalEvent) error // gets ASSIGNED; an error ends the call
	Failed    func(error)                        // gets the reason if the call fails after ACCEPTED, unless its owner has ended it
}

// Start makes a signalling request, in a goroutine of spawn. It ends with ctx, or by End.
func Start(ctx context.Context, spawn func(func()), directory controlpb.DirectoryClient, request *controlpb.SignalRequest, hooks Hooks) *Call {
	c := &Call{hooks: hooks, done: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(ctx)
	for kind := range c.seen {
		c.seen[kind] = make(chan struct{})
	}
	spawn(func() { c.follow(directory, request) })
	return c
}

// End ends the call, and waits for its goroutine.
func (c *Call) End() {
	c.cancel()
	<-c.done
}

// Done returns a channel that is closed when the call is over.
func (c *Call) Done() <-chan struct{} { return c.done }

// Has reports whether the event of a kind is there.
func (c *Call) Has(kind controlpb.SignalEvent_Kind) bool {
	select {
	case <-c.seen[kind]:
		return true
	default:
		return false
	}
}

// Await returns the event of a kind, also when the call is over since. When ctx ends first the error is an ErrUnanswered.
func (c *Call) Await(ctx context.Context, kind controlpb.SignalEvent_Kind) (*controlpb.SignalEvent, error) {
	select {
	case <-c.seen[kind]:
	case <-c.done:
	case <-ctx.Done():
		return nil, Unanswered(ctx, kind)
	}
	switch {
	case c.Has(kind):
		return c.events[kind], nil
	case c.err != nil:
		return nil, c.err
	}
	return nil, fmt.Errorf("%w: the signalling request was never %v", overlay.ErrRefused, kind)
}

// Unanswered returns the error of a wait for an event of the given kind that ended with ctx.
func Unanswered(ctx context.Context, kind controlpb.SignalEvent_Kind) error {
	return fmt.Errorf("%w: waited for the signalling request to be %v: %w", context.Cause(ctx), kind, ErrUnanswered)
}

// Result waits for the end of the call. It returns CONNECTED, or why it did not come.
func (c *Call) Result() (*controlpb.SignalEvent, error) {
	<-c.done
	return c.events[controlpb.SignalEvent_CONNECTED], c.err
}

// follow makes the call and reads its events.
func (c *Call) follow(directory controlpb.DirectoryClient, request *controlpb.SignalRequest) {
	defer close(c.done)
	stream, err := directory.Signal(c.ctx, request)
	if err != nil {
		err = c.hooks.CallError(err)
	}
	for err == nil && !c.Has(controlpb.SignalEvent_CONNECTED) {
		err = c.take(stream)
	}
	c.err = err
	if err != nil && c.Has(controlpb.SignalEvent_ACCEPTED) && c.ctx.Err() == nil && c.hooks.Failed != nil {
		c.hooks.Failed(err)
	}
}

// take processes one event.
func (c *Call) take(stream grpc.ServerStreamingClient[controlpb.SignalEvent]) error {
	e, err := stream.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the signalling request ended without a result", overlay.ErrUnreachable)
	case err != nil:
		return c.hooks.CallError(err)
	}
	if err := CheckNegotiation("answer", e.Answer); err != nil {
		return err
	}
	accepted := c.Has(controlpb.SignalEvent_ACCEPTED)
	switch {
	case e.Kind == controlpb.SignalEvent_FAILED:
		return failure(e.Fault)
	case e.Kind == controlpb.SignalEvent_ASSIGNED && !accepted && !c.Has(e.Kind), e.Kind == controlpb.SignalEvent_ACCEPTED && !accepted, e.Kind == controlpb.SignalEvent_CONNECTED && accepted:
	case accepted:
		return fmt.Errorf("%w: the target's side says %v after it accepted", wire.ErrMalformed, e.Kind)
	default:
		return fmt.Errorf("%w: the target's side says %v before it accepted", wire.ErrMalformed, e.Kind)
	}
	if e.Kind == controlpb.SignalEvent_ASSIGNED && c.hooks.Assigned != nil {
		err = c.hooks.Assigned(e)
	}
	c.events[e.Kind] = e
	close(c.seen[e.Kind])
	return err
}

// failure is the error that the target's side reported.
func failure(f *controlpb.Fault) error {
	if f == nil {
		return fmt.Errorf("%w: the target's side gave no reason", overlay.ErrRefused)
	}
	err := control.FaultErr(f)
	if errors.Is(err, overlay.ErrOverloaded) { // the broker's own bounds fail the call
		err = fmt.Errorf("%w: %w", err, ErrUnanswered)
	}
	return Attributed{Err: err}
}

// CheckNegotiation bounds what one end sends to the other.
func CheckNegotiation(what string, text []byte) error {
	if n := len(text); n > control.MaxNegotiation {
		return fmt.Errorf("%w: an %s of %d bytes, at most %d are passed on", wire.ErrMalformed, what, n, control.MaxNegotiation)
	}
	return nil
}

// End is one end of coordinated traversals, a coordinate.Side; tests use others.
type End interface {
	Ask(ctx context.Context, t overlay.Technique, peer string, port uint16, ex coordinate.Exchange) (net.Conn, error)
	Answer(ctx context.Context, t overlay.Technique, peer string, offer []byte, reply func(answer []byte) error) (net.Conn, error)
	ReservePort(ctx context.Context, t overlay.Technique, peer string, offer []byte) []byte
	Keep(peer string, port []byte)
}

// Ask carries out a coordinated traversal from the asker's side. start makes a call for each of its offers, the last of which is that of
// the connection; a call that fails after it was accepted ends the traversal by failed. The caller ends the
// call that Ask returns; without a connection there is none.
func Ask(ctx context.Context, end End, t overlay.Technique, peer string, port uint16, start func(offer []byte, failed func(error)) *Call) (net.Conn, *Call, error) {
	var call *Call
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	conn, err := end.Ask(ctx, t, peer, port, func(ctx context.Context, offer []byte) ([]byte, error) {
		if call != nil {
			call.End() // it only prepared this one, or failed
		}
		if err := CheckNegotiation("offer", offer); err != nil {
			return nil, err
		}
		call = start(offer, func(err error) { abort(aborted{err}) })
		accepted, err := call.Await(ctx, controlpb.SignalEvent_ACCEPTED)
		return accepted.GetAnswer(), err
	})
	if err == nil && call == nil { // some process listens there, and the target knows nothing of it
		conn.Close()
		err = fmt.Errorf("%w: connected to %v, but the process there could not be notified", overlay.ErrUnreachable, peer)
	}
	if err == nil {
		return conn, call, nil
	}
	if call != nil {
		call.End()
	}
	if why, is := errors.AsType[aborted](context.Cause(ctx)); is {
		err = why.error // regardless of the error that the abort caused in the technique
	}
	return nil, nil, err
}

// aborted is the failure of a call that ended a traversal.
type aborted struct{ error }

// Peer returns the asker of a signal for a process, and its node.
func Peer(m *controlpb.Signal, target overlay.ProcessName) (asker overlay.ProcessName, node overlay.NodeID, err error) {
	node = overlay.NodeID{Site: overlay.SiteID(m.AskerSite), Name: m.AskerNode}
	if asker, err = control.ProcessFromPB(m.Asker); err != nil {
		return asker, node, fmt.Errorf("%w: asker: %w", wire.ErrMalformed, err)
	}
	if asker.Job != target.Job {
		return asker, node, fmt.Errorf("%w: %v asks for %v of another job", overlay.ErrForbidden, asker, target)
	}
	return asker, node, nil
}

// Answer carries out a coordinated traversal from the target's side, and tells the asker when it begins. deliver gets
// the connection. Answer returns the event to be sent at the end.
func Answer(ctx context.Context, end End, m *controlpb.Signal, tell func(*controlpb.SignalEvent) error, deliver func(net.Conn) error) (*controlpb.SignalEvent, error) {
	t, peer := overlay.Technique(m.Technique), overlay.NodeID{Site: overlay.SiteID(m.AskerSite), Name: m.AskerNode}.String()
	conn, err := end.Answer(ctx, t, peer, m.Offer, func(answer []byte) error {
		return tell(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_ACCEPTED, Answer: answer})
	})
	if err != nil {
		return nil, err
	}
	connected := &controlpb.SignalEvent{Kind: controlpb.SignalEvent_CONNECTED}
	if conn == nil {
		return connected, nil // the asker calls again to use what was prepared
	}
	if err := deliver(conn); err != nil {
		return nil, err
	}
	connected.Answer = end.ReservePort(ctx, t, peer, m.Offer)
	return connected, nil
}
