package gate

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Settings of a Gate.
type Settings struct {
	Options
	Credentials *control.Credentials // of the helper

	// Reach of the Options is the Gate's own.

	// Hosts returns the grid's hosts, for Desk.
	Hosts func(context.Context, *gatepb.HostsRequest) (*gatepb.HostsResponse, error)
}

// Gate is all of a helper that has to do with launching: the keeper of its node, the
// sessions with those of other nodes, and the door for local programs. Make it with New,
// run it with Serve.
type Gate struct {
	*Keeper
	settings Settings
	end      *control.Endpoint
	sessions *sessions
	door     *grpc.Server
}

// New returns a gate that runs with Serve.
func New(settings Settings) (*Gate, error) {
	g := &Gate{settings: settings}
	settings.Reach = g.Reach
	keeper, err := NewKeeper(settings.Options)
	if err != nil {
		return nil, err
	}
	g.Keeper = keeper
	far := newDistances(Pinger(settings.Node, g.Reach), bandwidthBy(settings.Node, g.Reach))
	g.end = control.NewEndpoint(settings.Credentials, settings.Log, func(r grpc.ServiceRegistrar) {
		gatepb.RegisterGateServer(r, &service{keeper: keeper, distances: far, echoes: make(chan struct{}, echoes), caller: callerAway})
	})
	g.end.SetStreaming()
	g.sessions = newSessions(settings.Node, settings.Helper, g.end, settings.Log)
	g.door = grpc.NewServer(grpc.Creds(doorCredentials{}), grpc.WaitForHandlers(true), grpc.MaxConcurrentStreams(maxSessions))
	gatepb.RegisterGateServer(g.door, &service{
		keeper: keeper, distances: far, caller: func(ctx context.Context) (Asker, error) { return callerHere(ctx, settings.Node) },
		reach: g.sessions.reach,
	})
	gatepb.RegisterDeskServer(g.door, &desk{hosts: settings.Hosts})
	return g, nil
}

// Reach returns the gate of another node for calls of the helper's own, over a session
// that is made if need be. Call done when it is not needed any more. Such calls are for
// no user: a node answers Ping, Echo and Gossip.
func (g *Gate) Reach(ctx context.Context, node overlay.NodeID) (client gatepb.GateClient, done func(), err error) {
	return g.sessions.reach(ctx, node)
}

// Serve answers local programs on door, and other gate-keepers, until ctx ends or the door fails. It closes door. It returns when
// nothing is left of the jobs here and of the sessions.
func (g *Gate) Serve(ctx context.Context, door *net.UnixListener) error {
	keeping, letGo := context.WithCancel(ctx)
	reaching, stop := context.WithCancelCause(context.WithoutCancel(ctx)) // so that the jobs' last words are still said
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
		g.Keeper.Serve(keeping)
	})
	parts.Go(func() { g.sessions.answer(reaching) }) // also who offers nothing says so
	parts.Go(func() {
		<-kept
		cancel()
		g.door.Stop()
	})
	err := g.door.Serve(door)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("gate: the door at %v: %w", door.Addr(), err)
}
