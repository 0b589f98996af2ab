package frontal

import (
	"context"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
)

// nodesServer is what helpers ask of their frontal beside the directory.
type nodesServer struct {
	controlpb.UnimplementedNodesServer
	f *Frontal
}

// Enter tells a helper how its site connects and where the gateway carries.
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
	}, nil
}

// Carry dials for a node and gives it the id under which to be joined.
func (n *nodesServer) Carry(ctx context.Context, req *controlpb.CarryRequest) (*controlpb.CarryResponse, error) {
	id, err := n.f.helperOf(ctx, "Carry")
	if err != nil {
		return nil, control.Status(err)
	}
	resp, err := n.f.gateway.Carry(ctx, id, req)
	return resp, control.Status(err)
}
