package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// signalling is one signalling request that the gateway asked the broker for. A
// goroutine reads its events until the last.
//
//	asked ---> ACCEPTED ---> CONNECTED or FAILED
//	   \----------\--------> err, or FAILED
//
// The technique may have connected before the news of ACCEPTED is here, so
// nothing but the node's call and the next signalling request ends this one.
type signalling struct {
	cancel   context.CancelFunc
	accepted chan struct{} // closed when answer is known
	answer   []byte
	done     chan struct{}          // closed when one of the fields below is set
	last     *controlpb.SignalEvent // CONNECTED or FAILED
	err      error                  // why there is no last
}

// exchange is the coordinate.Exchange: it signals the target's side with an
// offer and returns the answer, or ends with ctx. A failure after the answer also ends the
// technique.
func (a *asking) exchange(ctx context.Context, offer []byte) ([]byte, error) {
	a.endCurrent() // the previous signalling request only prepared this one
	if err := CheckNegotiation(a.g.who, "offer", offer); err != nil {
		return nil, attributed{err}
	}
	req := proto.CloneOf(a.request)
	req.Offer, req.Port, req.Ipv6 = offer, 0, false
	life, cancel := context.WithCancel(a.ctx)
	in := &signalling{cancel: cancel, accepted: make(chan struct{}), done: make(chan struct{})}
	a.current = in
	a.g.work.Go(func() { a.follow(life, in, req) }) // endCurrent waits for it
	select {
	case <-in.accepted:
		return in.answer, nil
	case <-in.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the target's answer: %w", context.Cause(ctx))
	}
	switch {
	case in.isAccepted(): // and has been over since
		return in.answer, nil
	case in.err != nil:
		return nil, in.err
	}
	return nil, failure(in.last)
}

func (in *signalling) isAccepted() bool {
	select {
	case <-in.accepted:
		return true
	default:
		return false
	}
}

// endCurrent ends the current signalling request of the technique, if there is one.
func (a *asking) endCurrent() {
	if a.current != nil {
		a.current.cancel()
		<-a.current.done
		a.current = nil
	}
}

// follow sends the request to the broker and reads the progress of the target's side.
func (a *asking) follow(ctx context.Context, in *signalling, req *controlpb.SignalRequest) {
	defer close(in.done)
	stream, err := controlpb.NewDirectoryClient(a.uplink.Conn()).Signal(ctx, req)
	if err != nil {
		err = attributed{a.g.up.CallError(a.uplink, err)}
	}
	for err == nil && in.last == nil {
		err = a.take(in, stream)
	}
	in.err = err
	switch {
	case ctx.Err() != nil || !in.isAccepted(): // no reader is left, or exchange reports it
	case err != nil:
		a.abort(attributed{a.g.attribute(err)})
	case in.last.Kind == controlpb.SignalEvent_FAILED:
		a.abort(attributed{a.g.attribute(failure(in.last))})
	}
}

// take processes one event.
func (a *asking) take(in *signalling, stream grpc.ServerStreamingClient[controlpb.SignalEvent]) error {
	e, err := stream.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the broker ended the signalling request without a result", overlay.ErrUnreachable)
	case err != nil:
		return attributed{a.g.up.CallError(a.uplink, err)}
	}
	if err := CheckNegotiation(a.g.who, "answer", e.Answer); err != nil {
		return attributed{err}
	}
	accepted := in.isAccepted()
	switch {
	case e.Kind == controlpb.SignalEvent_ASSIGNED && !accepted:
		if err := a.forward(e); err != nil {
			return fmt.Errorf("%w: the asker's helper is gone: %w", overlay.ErrUnreachable, err)
		}
	case e.Kind == controlpb.SignalEvent_ACCEPTED && !accepted:
		in.answer = e.Answer
		close(in.accepted)
	case e.Kind == controlpb.SignalEvent_CONNECTED && accepted, e.Kind == controlpb.SignalEvent_FAILED:
		in.last = e
	case accepted:
		return fmt.Errorf("%w: the target's side says %v after it accepted", wire.ErrMalformed, e.Kind)
	default:
		return fmt.Errorf("%w: the target's side says %v before it accepted", wire.ErrMalformed, e.Kind)
	}
	return nil
}

// failure is the error that the target's side reported.
func failure(e *controlpb.SignalEvent) error {
	if e.Fault == nil {
		return fmt.Errorf("%w: the target's side gave no reason", overlay.ErrRefused)
	}
	return attributed{control.FaultErr(e.Fault)}
}
