package control

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/overlay"
)

// watch ends the session when it is known to be dead: the peer is silent while calls wait for it,
// or this host has lost the session's address; or when the peer exceeds its budget too far. It
// returns when the session has ended.
func (s *Session) watch() {
	var pings sync.WaitGroup
	defer pings.Wait()
	var look <-chan time.Time
	own := s.LocalAddr().Addr()
	if s.has != nil && own.IsValid() && s.has(own) {
		t := time.NewTicker(carrier.AddressEvery)
		defer t.Stop()
		look = t.C
	}
	ping := func() {
		if trip, err := s.mux.Ping(); err == nil {
			s.pulse.took(trip)
		}
	}
	pings.Go(ping) // ends with the session at the latest; at the start, it measures the path
	again := time.NewTimer(0)
	defer again.Stop()
	_, lists := s.creds.lists.Now()
	if s.endIfRevoked() { // since the handshake
		return
	}
	for {
		select {
		case <-s.Done():
			return
		case err := <-s.excess:
			s.end(err)
			return
		case <-lists:
			_, lists = s.creds.lists.Now()
			if s.endIfRevoked() {
				return
			}
			continue
		case <-look:
			if !s.has(own) {
				s.end(fmt.Errorf("its own end, %v, is %w", own, errAddressGone))
				return
			}
			continue
		case <-s.pulse.wake:
		case <-again.C:
		}
		do, wait := s.pulse.look()
		switch do {
		case ask:
			pings.Go(ping)
		case part:
			s.end(s.pulse.silent())
			return
		}
		again.Reset(wait)
	}
}

// unary and stream are the interceptors of all calls on the session: they count the calls that wait
// for the peer, and replace the error of a call that the session's end cut short by the reason for
// that end.
func (s *Session) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	defer s.pulse.call()()
	answer := s.newShare()
	defer answer.release(true)
	return s.explain(ctx, answer.receive(reply, func(reply any) error { return invoke(ctx, method, req, reply, cc, opts...) }))
}

func (s *Session) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	over, answer := s.pulse.call(), s.newShare()
	end := func() {
		over()
		answer.release(true)
	}
	c, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		end()
		return nil, s.explain(ctx, err)
	}
	context.AfterFunc(ctx, end) // for callers that do not read to the end
	return &watchedStream{c, ctx, s, answer, end}, nil
}

// watchedStream is a call with several answers.
type watchedStream struct {
	grpc.ClientStream
	ctx     context.Context
	session *Session
	answer  *share
	end     func() // of the pulse's call, and of the share
}

func (w *watchedStream) SendMsg(m any) error {
	return w.session.explain(w.ctx, w.ClientStream.SendMsg(m))
}

func (w *watchedStream) RecvMsg(m any) error {
	err := w.answer.receive(m, w.ClientStream.RecvMsg)
	if err != nil {
		w.end()
	}
	if err == io.EOF {
		return err
	}
	return w.session.explain(w.ctx, err)
}

// explain replaces the error of a call that the session's end cut short, and returns other errors
// unchanged.
func (s *Session) explain(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	select {
	case <-s.Done():
	default:
		return err
	}
	switch st := status.Convert(err); {
	case len(st.Details()) > 0: // the peer's own text
		return err
	case st.Code() == codes.Unavailable, st.Code() == codes.Canceled, st.Code() == codes.Unknown:
		return Status(fmt.Errorf("%w: %w", overlay.ErrNoSession, s.Err()))
	}
	return err
}
