package frontal

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Reserve requests a relay from the broker that the two ends keep for outages of their daemons. A
// gateway dials it for as long as its ticket is valid.
func (d *directoryServer) Reserve(ctx context.Context, req *controlpb.SignalRequest) (*controlpb.Reserved, error) {
	ctx, cancel := context.WithTimeout(ctx, maxSignalling)
	defer cancel()
	id, err := d.f.helperOf(ctx, "Reserve")
	if err != nil {
		return nil, control.Status(err)
	}
	if req.Technique != uint32(overlay.Relay) {
		return nil, control.Status(fmt.Errorf("%s: %w: technique %d is not kept in reserve", d.f.who, wire.ErrMalformed, req.Technique))
	}
	release, err := d.f.completeSignal(id, req)
	if err != nil {
		return nil, control.Status(err)
	}
	defer release()
	s, err := d.f.up.Get(ctx)
	if err != nil {
		return nil, control.Status(err)
	}
	r, err := controlpb.NewDirectoryClient(s.Conn()).Reserve(ctx, req)
	if err != nil {
		return nil, control.Status(d.f.up.CallError(s, err))
	}
	d.f.gateway.AllowReserve(r.Relay, r.LifeMs)
	return r, nil
}

// Reserve passes the target's end of a reserve relay to the helper of the process that it names.
func (t *targetServer) Reserve(ctx context.Context, in *controlpb.Signal) (*controlpb.ReserveResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, maxSignalling)
	defer cancel()
	point, s, err := t.check(ctx, in, "Reserve")
	if err != nil {
		return nil, control.Status(err)
	}
	t.f.gateway.AllowReserve(in.Relay, in.LifeMs)
	t.f.log.Info("reserve", "link", fmt.Sprintf("%x", in.Link), "job", point.Process.Job, "asker", in.Asker.GetRank(), "asker_node", in.AskerSite+"/"+in.AskerNode,
		"target", point.Process.Rank, "node", point.Node.String(), "proxy", in.Relay.GetProxy())
	r, err := controlpb.NewTargetClient(s.Conn()).Reserve(ctx, in)
	if err != nil {
		return nil, control.Status(t.f.helperError(s, point, err))
	}
	return r, nil
}
