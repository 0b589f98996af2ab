package nodeservice

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// service serves NodeService for the node service of this node, and forwards calls for other nodes.
type service struct {
	nodepb.UnimplementedNodeServiceServer
	node      *NodeService
	distances *distances
	echoes    chan struct{} // holds one token for each Echo in progress
	caller    func(context.Context) (Asker, error)

	// Used only at the local socket.
	reach func(ctx context.Context, node overlay.NodeID) (nodepb.NodeServiceClient, func(), error) // nil: nothing is forwarded
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
func (s *service) withNode(ctx context.Context, node overlay.NodeID, f func(nodepb.NodeServiceClient) error) error {
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
func unary[R any](s *service, ctx context.Context, here func(Asker) (*R, error), there func(nodepb.NodeServiceClient, context.Context) (*R, error)) (r *R, err error) {
	who, node, away, err := s.addressee(ctx)
	if err != nil {
		return nil, err
	}
	if !away {
		return here(who)
	}
	err = s.withNode(ctx, node, func(g nodepb.NodeServiceClient) (err error) {
		r, err = there(g, onBehalf(ctx, who))
		return err
	})
	return r, err
}

// Ping implements nodepb.NodeServiceServer.
func (s *service) Ping(ctx context.Context, q *nodepb.PingRequest) (*nodepb.PingResponse, error) {
	return unary(s, ctx, func(Asker) (*nodepb.PingResponse, error) {
		if len(q.Payload) > 64<<10 {
			return nil, status.Error(codes.InvalidArgument, "a ping carries at most 64 KiB")
		}
		n, err := s.node.count()
		return &nodepb.PingResponse{Payload: q.Payload, Jobs: uint32(n)}, control.Status(err)
	}, func(g nodepb.NodeServiceClient, ctx context.Context) (*nodepb.PingResponse, error) {
		return g.Ping(ctx, q)
	})
}

// Measure implements nodepb.NodeServiceServer.
func (s *service) Measure(ctx context.Context, q *nodepb.MeasureRequest) (*nodepb.MeasureResponse, error) {
	return unary(s, ctx, func(who Asker) (*nodepb.MeasureResponse, error) {
		if err := requireUser(who); err != nil {
			return nil, control.Status(err)
		}
		return s.distances.measureAll(ctx, q)
	}, func(g nodepb.NodeServiceClient, ctx context.Context) (*nodepb.MeasureResponse, error) {
		return g.Measure(ctx, q)
	})
}

// Gossip implements nodepb.NodeServiceServer.
func (s *service) Gossip(ctx context.Context, q *nodepb.GossipRequest) (*nodepb.GossipResponse, error) {
	return unary(s, ctx, func(who Asker) (*nodepb.GossipResponse, error) {
		switch {
		case len(q.Message) > 1<<20:
			return nil, status.Error(codes.InvalidArgument, "gossip of more than 1 MiB")
		case q.From != "" && q.From != who.Node.Key():
			return nil, status.Errorf(codes.PermissionDenied, "%v gossips as %.300s", who.Node, q.From)
		}
		return &nodepb.GossipResponse{}, control.Status(s.node.receiveGossip(overlay.JobID(q.Job), who.Node, q.Message))
	}, func(g nodepb.NodeServiceClient, ctx context.Context) (*nodepb.GossipResponse, error) {
		return g.Gossip(ctx, q)
	})
}

// Jobs implements nodepb.NodeServiceServer.
func (s *service) Jobs(ctx context.Context, q *nodepb.JobsRequest) (*nodepb.JobsResponse, error) {
	return unary(s, ctx, s.node.list,
		func(g nodepb.NodeServiceClient, ctx context.Context) (*nodepb.JobsResponse, error) {
			return g.Jobs(ctx, q)
		})
}

// Kill implements nodepb.NodeServiceServer.
func (s *service) Kill(ctx context.Context, q *nodepb.KillRequest) (*nodepb.KillResponse, error) {
	return unary(s, ctx, func(who Asker) (*nodepb.KillResponse, error) {
		if err := requireUser(who); err != nil {
			return nil, control.Status(err)
		}
		return s.node.killJob(who, overlay.JobID(q.Job))
	},
		func(g nodepb.NodeServiceClient, ctx context.Context) (*nodepb.KillResponse, error) {
			return g.Kill(ctx, q)
		})
}

// Converse implements nodepb.NodeServiceServer.
func (s *service) Converse(stream nodepb.NodeService_ConverseServer) error {
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
	return s.withNode(near.Context(), node, func(there nodepb.NodeServiceClient) error {
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
func passUp(near Stream, far nodepb.NodeService_ConverseClient, cancel func()) {
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
func passDown(near Stream, far nodepb.NodeService_ConverseClient) error {
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

// hostsServer implements nodepb.SubmittersServer.
type hostsServer struct {
	nodepb.UnimplementedSubmittersServer
	hosts func(context.Context, *nodepb.HostsRequest) (*nodepb.HostsResponse, error)
}

// Hosts implements nodepb.SubmittersServer.
func (d *hostsServer) Hosts(ctx context.Context, q *nodepb.HostsRequest) (*nodepb.HostsResponse, error) {
	if d.hosts == nil {
		return nil, control.Status(fmt.Errorf("%w: this helper has no list of hosts", overlay.ErrUnreachable))
	}
	return d.hosts(ctx, q)
}
