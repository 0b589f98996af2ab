package nodeservice

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Settings of a Server.
type Settings struct {
	Options
	Credentials *control.Credentials // of the helper

	// The Server sets Reach of the Options itself.

	Bounds

	// Hosts returns the grid's hosts, for Submitters.
	Hosts func(context.Context, *nodepb.HostsRequest) (*nodepb.HostsResponse, error)
}

// Bounds limit what others may use of a node service; 0 is unlimited.
type Bounds struct {
	Door, DoorPerUser           int // connections of local programs, of all accounts and of one
	DoorCalls, DoorCallsPerUser int // unanswered calls on these
	DoorBytes, DoorBytesPerUser int // bytes of their unread messages
	NodeBytes, AllNodesBytes    int // the same for the calls of one other node, and of all
}

// Server is the launching part of a helper: the node service of its node, the sessions with other
// nodes' services, and the local socket. Make it with New, run it with Serve.
type Server struct {
	*NodeService
	settings Settings
	end      *control.Endpoint
	sessions *sessions
	local    *grpc.Server
	callers  *limit.Counter[account] // connections at the local socket
	meter    *control.Meter          // of the local socket
}

// New returns a server; run it with Serve.
func New(settings Settings) (*Server, error) {
	g := &Server{settings: settings, callers: newCallers(settings.Door, settings.DoorPerUser)}
	settings.Reach = g.Reach
	nodeService, err := NewNodeService(settings.Options)
	if err != nil {
		return nil, err
	}
	g.NodeService = nodeService
	far := newDistances(Pinger(settings.Node, g.Reach), bandwidthBy(settings.Node, g.Reach))
	g.end = control.NewEndpoint(settings.Credentials, settings.Log, func(r grpc.ServiceRegistrar) {
		nodepb.RegisterNodeServiceServer(r, &service{node: nodeService, distances: far, echoes: make(chan struct{}, echoes), caller: remoteCaller})
	})
	g.end.SetStreaming()
	g.end.SetBudget(settings.budget(settings.Policy.Jobs))
	g.end.OverBudget = g.auditOverBudget
	g.sessions = newSessions(settings.Node, settings.Helper, g.end, settings.Log)
	g.meter = g.newLocalMeter()
	g.local = g.newLocalServer()
	nodepb.RegisterNodeServiceServer(control.Counted(g.local), &service{
		node: nodeService, distances: far, caller: localCaller,
		reach: g.sessions.reach,
	})
	nodepb.RegisterSubmittersServer(control.Counted(g.local), &hostsServer{hosts: settings.Hosts})
	return g, nil
}

// callsBesides is how many calls of one node are served concurrently besides those about jobs, of
// which there are two for each job.
const callsBesides = 64

// budget returns what one other node may have in flight here, at a node that accepts this many
// jobs.
func (b Bounds) budget(jobs int) control.Budget {
	return control.Budget{Streams: control.StandardBudget.Streams, Calls: callsBesides + 2*jobs, Bytes: b.NodeBytes, AllBytes: b.AllNodesBytes}
}

// SetPolicy is NodeService.SetPolicy.
func (g *Server) SetPolicy(policy reserve.Policy) error {
	err := g.NodeService.SetPolicy(policy)
	if err == nil {
		g.end.SetBudget(g.settings.budget(policy.Jobs))
	}
	return err
}

// Reach returns a client of another node's service for the helper's own calls, over a session that
// is opened if needed. Call done when it is no longer needed. Such calls are on behalf of no user:
// a node answers Ping, Echo and Gossip.
func (g *Server) Reach(ctx context.Context, node overlay.NodeID) (client nodepb.NodeServiceClient, done func(), err error) {
	return g.sessions.reach(ctx, node)
}

// Serve serves local programs on ln, and other node services, until ctx ends or ln fails.
// It closes ln. It returns when nothing is left of the local jobs and of the sessions.
func (g *Server) Serve(ctx context.Context, ln *net.UnixListener) error {
	keeping, letGo := context.WithCancel(ctx)
	reaching, stop := context.WithCancelCause(context.WithoutCancel(ctx)) // so that the jobs' remaining events are still sent
	cancel := func() { stop(ErrStopping) }
	var parts sync.WaitGroup
	defer parts.Wait()
	defer g.end.Close()
	defer g.sessions.wait()
	defer cancel()
	defer letGo()
	g.sessions.open(reaching)
	kept := make(chan struct{})
	parts.Go(func() {
		defer close(kept)
		g.NodeService.Serve(keeping)
	})
	parts.Go(func() { g.sessions.answer(reaching) }) // even without an offer, to answer that there is none
	parts.Go(func() {
		<-kept
		cancel()
		g.local.Stop()
	})
	err := g.serveLocal(ctx, ln)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("nodeservice: the local socket %v: %w", ln.Addr(), err)
}
