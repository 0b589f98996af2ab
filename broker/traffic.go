package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// carriers implements the traffic service, by which frontals and proxies report the links that they
// carry.
type carriers struct {
	controlpb.UnimplementedTrafficServer
	b *Broker
}

// Report implements controlpb.TrafficServer.
func (c carriers) Report(ctx context.Context, req *controlpb.TrafficRequest) (*controlpb.TrafficResponse, error) {
	role := control.SessionOf(ctx).Peer().Role
	if role != control.RoleProxy {
		role = control.RoleFrontal
	}
	session, _, err := c.b.caller(ctx, role)
	if err != nil {
		return nil, c.b.fail(err)
	}
	report, err := traffic.FromPB(req)
	if err != nil {
		return nil, c.b.fail(malformed(err))
	}
	if role == control.RoleFrontal {
		if err := ofSite(report, session.Peer()); err != nil {
			return nil, c.b.fail(err)
		}
	}
	by := session.Peer().String()
	c.b.traffic.Fold(by, report, func(id overlay.SiteID) bool { _, err := c.b.registry.Site(id); return err == nil })
	c.b.traffic.Note(by, report, time.Now())
	resp := &controlpb.TrafficResponse{}
	for _, e := range report.Ask {
		resp.Sites = append(resp.Sites, c.sites(e))
	}
	return resp, nil
}

// ofSite refuses a frontal's report on links that cannot have passed through it.
func ofSite(r traffic.Report, peer control.Identity) error {
	for p := range r.Counts {
		if p.From != peer.Site && p.To != peer.Site && p != (traffic.Pair{From: traffic.Unknown, To: traffic.Unknown}) {
			return fmt.Errorf("%w: %v tells of bytes from %s to %s", overlay.ErrForbidden, peer, p.From, p.To)
		}
	}
	if len(r.Ask) > 0 {
		return fmt.Errorf("%w: %v asks for the sites of links; a proxy may", overlay.ErrForbidden, peer)
	}
	return nil
}

// sites returns the sites of a link's ends; empty names if either end is not registered.
func (c carriers) sites(e traffic.Ends) *controlpb.SitePair {
	var found [2]registry.Entry
	both := c.b.registry.Lookup(found[:0], []overlay.ProcessName{{Job: e.Job, Rank: e.Asker}, {Job: e.Job, Rank: e.Target}})
	if both[0].Site == nil || both[1].Site == nil {
		return &controlpb.SitePair{}
	}
	return &controlpb.SitePair{Asker: string(both[0].Point.Node.Site), Target: string(both[1].Point.Node.Site)}
}
