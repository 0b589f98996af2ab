package frontal

import (
	"context"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
)

// nodesServer serves the calls of helpers that are not directory calls.
type nodesServer struct {
	controlpb.UnimplementedNodesServer
	f *Frontal
}

// Enter returns to a helper how its site connects and where the gateway accepts data.
func (n *nodesServer) Enter(ctx context.Context, req *controlpb.EnterRequest) (*controlpb.EnterResponse, error) {
	id, err := n.f.helperOf(ctx, "Enter")
	if err != nil {
		return nil, control.Status(err)
	}
	if err := n.f.hostEntered(control.SessionOf(ctx), req.Offer); err != nil {
		n.f.log.Warn("a helper's offer is not listed", "node", id.Node().String(), "error", err)
	}
	n.f.log.Info("helper entered", "node", id.Node().String(), "software", req.Software)
	return &controlpb.EnterResponse{
		Profile: control.ProfileToPB(n.f.profile()), Site: string(n.f.site),
		DataAddress: addrText(n.f.gateway.DataAddr), Epoch: n.f.epoch, Encryption: control.EncryptionToPB(n.f.config().Encryption.policy()),
		GatewayNetworks: control.NetworksToPB(n.f.config().networks()), Nodes: uint32(len(n.f.registry.Sessions())),
	}, nil
}

// SessionLimit records that the NAT before the site lets no new connection of a node through, as the node says.
func (n *nodesServer) SessionLimit(ctx context.Context, req *controlpb.SessionLimitRequest) (*controlpb.SessionLimitResponse, error) {
	id, err := n.f.helperOf(ctx, "SessionLimit")
	if err != nil {
		return nil, control.Status(err)
	}
	node := id.Name
	if !slices.ContainsFunc(n.f.registry.Sessions(), func(s *control.Session) bool { return s.Peer() != id }) {
		node = ownWord
	}
	n.f.sessions.seen(node, int(min(req.Connections, maxSessions)), time.Now())
	return &controlpb.SessionLimitResponse{}, nil
}

// Carry dials for a node and returns the id under which the node joins.
func (n *nodesServer) Carry(ctx context.Context, req *controlpb.CarryRequest) (*controlpb.CarryResponse, error) {
	id, err := n.f.helperOf(ctx, "Carry")
	if err != nil {
		return nil, control.Status(err)
	}
	resp, err := n.f.gateway.Carry(ctx, id, req)
	return resp, control.Status(err)
}
