package frontal

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Reserve has the broker assign a relay that the two ends keep for the time when they can
// ask nobody. A gateway dials it for as long as its ticket is good.
func (d *directoryServer) Reserve(ctx context.Context, req *controlpb.IntroduceRequest) (*controlpb.Reserved, error) {
	ctx, cancel := context.WithTimeout(ctx, maxIntroduction)
	defer cancel()
	id, err := d.f.helperOf(ctx, "Reserve")
	if err != nil {
		return nil, control.Status(err)
	}
	if req.Technique != uint32(overlay.Relay) {
		return nil, control.Status(fmt.Errorf("%s: %w: technique %d is not kept in reserve", d.f.who, wire.ErrMalformed, req.Technique))
	}
	release, err := d.f.completeIntroduce(id, req)
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
	d.f.allowReserve(r.Relay, r.LifeMs)
	return r, nil
}

// Reserve passes the target's end of a reserve relay to the helper of the process that
// it names.
func (t *targetServer) Reserve(ctx context.Context, in *controlpb.Introduction) (*controlpb.ReserveResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, maxIntroduction)
	defer cancel()
	point, s, err := t.check(ctx, in, "Reserve")
	if err != nil {
		return nil, control.Status(err)
	}
	t.f.allowReserve(in.Relay, in.LifeMs)
	t.f.log.Info("reserve", "link", fmt.Sprintf("%x", in.Link), "job", point.Process.Job, "asker", in.Asker.GetRank(), "asker_node", in.AskerSite+"/"+in.AskerNode,
		"target", point.Process.Rank, "node", point.Node.String(), "proxy", in.Relay.GetProxy())
	r, err := controlpb.NewTargetClient(s.Conn()).Reserve(ctx, in)
	if err != nil {
		return nil, control.Status(t.f.helperError(s, point, err))
	}
	return r, nil
}

// allowReserve lets a reserve relay be dialled for the life of its ticket, and a little for
// the clocks. A gateway, which dials it itself, finds out how it is reached, which would
// take its time when it is to be dialled.
func (f *Frontal) allowReserve(a *controlpb.Assignment, lifeMS uint32) {
	life := min(time.Duration(lifeMS)*time.Millisecond, ticket.MaxLife) + ticket.Skew
	f.allowRelay(a, life)
	if !f.profile().GatewayOnly || f.proxies == nil {
		return
	}
	f.mu.Lock()
	addrs, err := f.checkAll(a.GetAddresses())
	f.mu.Unlock()
	if err != nil {
		return
	}
	f.work.Go(func() { // Serve waits for the call that this is part of, and then for that
		ctx, cancel := context.WithTimeout(f.ctx, f.config().Dial)
		defer cancel()
		route := f.wayOut()
		for _, addr := range addrs {
			if err := f.proxies.Prepare(ctx, addr.String(), route, life); err != nil {
				f.log.Debug("the proxy of a reserve does not answer", "proxy", a.Proxy, "error", err)
			}
		}
	})
}
