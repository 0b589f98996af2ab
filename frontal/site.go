package frontal

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/gateway"
	"github.com/isthmus-grid/isthmus/frontal/measure"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/overlay"
)

// profile is the current profile of the site: declared, with the fields set to auto taken from the
// measurement, and with what was observed of a NAT before the site.
func (f *Frontal) profile() overlay.SiteProfile {
	p := f.measure.Profile()
	p.Sessions = f.sessions.limit(time.Now())
	return p
}

// newMeasure returns the monitor of the site's profile.
func (f *Frontal) newMeasure() *measure.Monitor {
	return measure.New(measure.Options{
		Site: f.site, Settings: f.measureSettings, Log: f.log,
		AwaitBroker: func(ctx context.Context) bool { return f.sessions.awaitRoom(ctx) && f.up.Await(ctx) != nil }, AwaitHelper: f.registry.AwaitHelper,
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

// newGateway returns the gateway for the data of nodes without a route out.
func (f *Frontal) newGateway(quota *ratelimit.Limiter) *gateway.Gateway {
	cfg := f.config()
	return gateway.New(gateway.Options{
		Site: f.site, Who: f.who, Log: f.log,
		Settings: func() gateway.Settings {
			return f.config().gateway()
		},
		Profile: f.profile, Limits: cfg.Limits.gateway(), Quota: quota,
		HTTPProxy: f.httpProxy, ProxyTLS: func() *tls.Config { return f.creds.DataClient(control.RoleProxy) },
		Registry: f.registry, Resolver: f.resolver, Up: f.up,
		Reflectors: func(ctx context.Context) (*controlpb.ReflectorsResponse, error) {
			return f.reflectors(ctx, &controlpb.ReflectorsRequest{})
		},
		NATFull: func(connections int) { f.sessions.seen(ownWord, connections, time.Now()) },
		Life:    f.ctx, Open: f.open, Work: &f.work,
	})
}

// measureSettings is the part of the settings in effect about the profile.
func (f *Frontal) measureSettings() measure.Settings {
	cfg := f.config()
	return measure.Settings{Every: cfg.Measure, Declared: cfg.SiteProfile(), Unset: cfg.unset(), Ports: cfg.ports()}
}

// joinRequest is the site's registration at the broker.
func (f *Frontal) joinRequest() *controlpb.JoinRequest {
	req := &controlpb.JoinRequest{Profile: control.ProfileToPB(f.nodesSeen.with(f.declared())), Unset: f.config().unset(), Policy: f.permit.Text()}
	if m := f.measure.Measured(); m != nil {
		req.Measured = m.ToPB()
	}
	return req
}

// dataTLS is for queries to reflectors inside TLS.
func (f *Frontal) dataTLS() *tls.Config {
	return f.creds.DataClient(control.RoleBroker, control.RoleProxy)
}

// askBroker is the grid as a frontal reaches it.
type askBroker struct{ f *Frontal }

func (a askBroker) Reflectors(ctx context.Context, req *controlpb.ReflectorsRequest) (*controlpb.ReflectorsResponse, error) {
	return a.f.reflectors(ctx, req)
}

func (a askBroker) CallBack(ctx context.Context, req *controlpb.CallBackRequest) (*controlpb.CallBackResponse, error) {
	return a.f.up.CallBack(ctx, req)
}

// joinAgain sends the new profile to the broker if there is a session; a later session sends it
// anyway.
func (f *Frontal) joinAgain() {
	err := f.up.JoinAgain(f.ctx, f.joinRequest)
	if err != nil {
		f.log.Warn("cannot send the site's changes to the broker", "error", err)
	}
}

// enterAgain makes every helper reconnect, so that it gets the new profile. Helpers reconnect at
// once, and links are not affected.
func (f *Frontal) enterAgain() {
	for _, s := range f.registry.Sessions() {
		s.Close()
	}
}
