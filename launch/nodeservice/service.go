package nodeservice

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/gatepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// service serves Gate for the node service of this node, and forwards calls for other nodes.
type service struct {
	gatepb.UnimplementedGateServer
	node      *NodeService
	distances *distances
	echoes    chan struct{} // holds one token for each Echo in progress
	caller    func(context.Context) (Asker, error)

	// Used only at the local socket.
	reach func(ctx context.Context, node overlay.NodeID) (gatepb.GateClient, func(), error) // nil: nothing is forwarded
}

// addressee returns the caller, and the node that the call addresses if it is another one.
func (s *service) addressee(ctx context.Context) (who Asker, node overlay.NodeID, away bool, err error) {
	who, err = s.caller(ctx)
	if err != nil || s.reach == nil {
		return who, node, false, control.Status(err)
	}
	node, err = target(ctx, s.node.opts.Node)
	return who, node, err == nil && node != s.node.opts.Node, control.Status(err)
}

// withNode calls f with a client of a node's service. The session may have died unnoticed, for
// instance with the node's helper: if so, withNode calls f once more, with a new session.
func (s *service) withNode(ctx context.Context, node overlay.NodeID, f func(gatepb.GateClient) error) error {
	for again := false; ; again = true {
		there, done, err := s.reach(ctx, node)
		if err != nil {
			return control.Status(err)
		}
		err = f(there)
		done()
		if midway, is := err.(midwayError); is {
			return midway.error
		}
		if again || !errors.Is(control.FromStatus(err), overlay.ErrNoSession) {
			return err
		}
	}
}

// midwayError is an error in a call that can no longer be repeated.
type midwayError struct{ error }

// unary handles a call here or forwards it to the node service that it addresses. Forwarded calls
// may be repeated.
func unary[R any](s *service, ctx context.Context, here func(Asker) (*R, error), there func(gatepb.GateClient, context.Context) (*R, error)) (r *R, err error) {
	who, node, away, err := s.addressee(ctx)
	if err != nil {
		return nil, err
	}
	if !away {
		return here(who)
	}
	err = s.withNode(ctx, node, func(g gatepb.GateClient) (err error) {
		r, err = there(g, onBehalf(ctx, who))
		return err
	})
	return r, err
}

// Ping implements gatepb.GateServer.
func (s *service) Ping(ctx context.Context, q *gatepb.PingRequest) (*gatepb.PingResponse, error) {
	return unary(s, ctx, func(Asker) (*gatepb.PingResponse, error) {
		if len(q.Payload) > 64<<10 {
			return nil, status.Error(codes.InvalidArgument, "a ping carries at most 64 KiB")
		}
		n, err := s.node.count()
		return &gatepb.PingResponse{Payload: q.Payload, Jobs: uint32(n)}, control.Status(err)
	}, func(g gatepb.GateClient, ctx context.Context) (*gatepb.PingResponse, error) { return g.Ping(ctx, q) })
}

// Measure implements gatepb.GateServer.
func (s *service) Measure(ctx context.Context, q *gatepb.MeasureRequest) (*gatepb.MeasureResponse, error) {
	return unary(s, ctx, func(who Asker) (*gatepb.MeasureResponse, error) {
		if err := requireUser(who); err != nil {
			return nil, control.Status(err)
		}
		return s.distances.measureAll(ctx, q)
	}, func(g gatepb.GateClient, ctx context.Context) (*gatepb.MeasureResponse, error) {
		return g.Measure(ctx, q)
	})
}

// Gossip implements gatepb.GateServer.
func (s *service) Gossip(ctx context.Context, q *gatepb.GossipRequest) (*gatepb.GossipResponse, error) {
	return unary(s, ctx, func(who Asker) (*gatepb.GossipResponse, error) {
		switch {
		case len(q.Message) > 1<<20:
			return nil, status.Error(codes.InvalidArgument, "gossip of more than 1 MiB")
		case q.From != "" && q.From != who.Node.Key():
			return nil, status.Errorf(codes.PermissionDenied, "%v gossips as %.300s", who.Node, q.From)
		}
		return &gatepb.GossipResponse{}, control.Status(s.node.receiveGossip(overlay.JobID(q.Job), who.Node, q.Message))
	}, func(g gatepb.GateClient, ctx context.Context) (*gatepb.GossipResponse, error) {
		return g.Gossip(ctx, q)
	})
}

// Jobs implements gatepb.GateServer.
func (s *service) Jobs(ctx context.Context, q *gatepb.JobsRequest) (*gatepb.JobsResponse, error) {
	return unary(s, ctx, s.node.list,
		func(g gatepb.GateClient, ctx context.Context) (*gatepb.JobsResponse, error) { return g.Jobs(ctx, q) })
}

// Kill implements gatepb.GateServer.
func (s *service) Kill(ctx context.Context, q *gatepb.KillRequest) (*gatepb.KillResponse, error) {
	return unary(s, ctx, func(who Asker) (*gatepb.KillResponse, error) {
		if err := requireUser(who); err != nil {
			return nil, control.Status(err)
		}
		return s.node.killJob(who, overlay.JobID(q.Job))
	},
		func(g gatepb.GateClient, ctx context.Context) (*gatepb.KillResponse, error) { return g.Kill(ctx, q) })
}

// Converse implements gatepb.GateServer.
func (s *service) Converse(stream gatepb.Gate_ConverseServer) error {
	who, node, away, err := s.addressee(stream.Context())
	if err != nil {
		return err
	}
	if away {
		return s.pass(stream, node, who)
	}
	if err := requireUser(who); err != nil {
		return control.Status(err)
	}
	return s.node.Converse(who, stream)
}

// pass forwards a conversation between a submitter here and a node elsewhere. It waits for the
// answer to the first message before it forwards others, and repeats the message if the session
// turns out to be dead: ask, attach and cancel may be repeated.
func (s *service) pass(near Stream, node overlay.NodeID, who Asker) error {
	first, err := near.Recv()
	if err != nil {
		return err
	}
	return s.withNode(near.Context(), node, func(there gatepb.GateClient) error {
		ctx, cancel := context.WithCancel(onBehalf(near.Context(), who))
		defer cancel()
		far, err := there.Converse(ctx)
		if err != nil {
			return err
		}
		if err := far.Send(first); err != nil && !errors.Is(err, io.EOF) { // on io.EOF, Recv returns the cause
			return err
		}
		answer, err := far.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := near.Send(answer); err != nil {
			return midwayError{err}
		}
		go passUp(near, far, cancel) // ends with the near stream, which ends when this returns
		if err := passDown(near, far); err != nil {
			return midwayError{err}
		}
		return nil
	})
}

// passUp forwards the submitter's messages.
func passUp(near Stream, far gatepb.Gate_ConverseClient, cancel func()) {
	for {
		m, err := near.Recv()
		switch {
		case errors.Is(err, io.EOF):
			far.CloseSend()
			return
		case err != nil:
			cancel()
			return
		}
		if far.Send(m) != nil { // passDown gets the cause
			return
		}
	}
}

// passDown forwards the node's messages, until the last.
func passDown(near Stream, far gatepb.Gate_ConverseClient) error {
	for {
		m, err := far.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = near.Send(m)
		}
		if err != nil {
			return err
		}
	}
}

// hostsServer implements gatepb.DeskServer.
type hostsServer struct {
	gatepb.UnimplementedDeskServer
	hosts func(context.Context, *gatepb.HostsRequest) (*gatepb.HostsResponse, error)
}

// Hosts implements gatepb.DeskServer.
func (d *hostsServer) Hosts(ctx context.Context, q *gatepb.HostsRequest) (*gatepb.HostsResponse, error) {
	if d.hosts == nil {
		return nil, control.Status(fmt.Errorf("%w: this helper has no list of hosts", overlay.ErrUnreachable))
	}
	return d.hosts(ctx, q)
}
