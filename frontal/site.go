package frontal

import (
	"context"
	"crypto/tls"

	"github.com/isthmus-grid/isthmus/frontal/gateway"
	"github.com/isthmus-grid/isthmus/frontal/measure"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/pace"
	"github.com/isthmus-grid/isthmus/overlay"
)

// profile is the site's profile as it is at present: declared, with what was
// left open taken from the measurement.
func (f *Frontal) profile() overlay.SiteProfile { return f.measure.Profile() }

// newMeasure makes what keeps the site's profile measured.
func (f *Frontal) newMeasure() *measure.Keeper {
	return measure.New(measure.Options{
		Site: f.site, Settings: f.measureSettings, Log: f.log,
		AwaitBroker: func(ctx context.Context) bool { return f.up.Await(ctx) != nil }, AwaitHelper: f.registry.AwaitHelper,
		Grid: askBroker{f}, HTTPProxy: f.httpProxy, TLS: f.dataTLS,
		IsReached: func() bool { return f.gateway.PublicAddr.IsValid() },
		Adopted: func(changed bool) {
			f.joinAgain()
			if changed {
				f.enterAgain()
			}
		},
	})
}

// newGateway makes what carries the data of nodes without a route out.
func (f *Frontal) newGateway(quota *pace.Keeper) *gateway.Gateway {
	cfg := f.config()
	return gateway.New(gateway.Options{
		Site: f.site, Who: f.who, Log: f.log,
		Settings: func() gateway.Settings {
			cfg := f.config()
			return gateway.Settings{Rule: cfg.rule(), Dial: cfg.Dial}
		},
		Profile: f.profile, Limits: cfg.Limits.gateway(), Quota: quota,
		HTTPProxy: f.httpProxy, ProxyTLS: func() *tls.Config { return f.creds.DataClient(control.RoleProxy) },
		Registry: f.registry, Resolver: f.resolver, Up: f.up,
		Bearings: func(ctx context.Context) (*controlpb.BearingsResponse, error) {
			return f.bearings(ctx, &controlpb.BearingsRequest{})
		},
		Life: f.ctx, Open: f.open, Work: &f.work,
	})
}

// measureSettings is what the settings in effect say of the profile.
func (f *Frontal) measureSettings() measure.Settings {
	cfg := f.config()
	return measure.Settings{Every: cfg.Measure, Declared: cfg.SiteProfile(), Unset: cfg.unset(), Ports: cfg.ports()}
}

// joinRequest is what the broker is told of the site.
func (f *Frontal) joinRequest() *controlpb.JoinRequest {
	req := &controlpb.JoinRequest{Profile: control.ProfileToPB(f.declared()), Unset: f.config().unset(), Policy: f.permit.Text()}
	if m := f.measure.Measured(); m != nil {
		req.Measured = m.ToPB()
	}
	return req
}

// dataTLS is for asking vantage points inside of TLS.
func (f *Frontal) dataTLS() *tls.Config {
	return f.creds.DataClient(control.RoleBroker, control.RoleProxy)
}

// askBroker is the grid as a frontal reaches it.
type askBroker struct{ f *Frontal }

func (a askBroker) Bearings(ctx context.Context, req *controlpb.BearingsRequest) (*controlpb.BearingsResponse, error) {
	return a.f.bearings(ctx, req)
}

func (a askBroker) CallBack(ctx context.Context, req *controlpb.CallBackRequest) (*controlpb.CallBackResponse, error) {
	return a.f.up.CallBack(ctx, req)
}

// joinAgain tells the broker of the new profile, if there is a session; a
// later one tells it anyway.
func (f *Frontal) joinAgain() {
	err := f.up.JoinAgain(f.ctx, f.joinRequest)
	if err != nil {
		f.log.Warn("the broker was not told what is new of the site", "error", err)
	}
}

// enterAgain has every helper enter again, so that it learns the new profile:
// it comes back at once, and links do not notice.
func (f *Frontal) enterAgain() {
	for _, s := range f.registry.Sessions() {
		s.Close()
	}
}
