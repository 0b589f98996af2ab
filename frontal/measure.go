package frontal

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/siteprobe"
	"github.com/isthmus-grid/isthmus/overlay"
)

// How the site is measured: by the gateway itself where nodes have no route
// out, and else by one helper, which the frontal appoints. The outcome fills
// what the admin left open, is shown beside what the admin said, and is told
// to the broker.
const (
	measureBound = 40 * time.Second // for one measurement
	measureAgain = time.Minute      // after one that failed
)

// profile is the site's profile as it is at present: declared, with what was
// left open taken from the measurement.
func (f *Frontal) profile() overlay.SiteProfile { return *f.current.Load() }

// joinRequest is what the broker is told of the site.
func (f *Frontal) joinRequest() *controlpb.JoinRequest {
	req := &controlpb.JoinRequest{Profile: control.ProfileToPB(f.profile()), Unset: f.cfg.unset()}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.measured != nil {
		req.Measured = f.measured.ToPB()
	}
	return req
}

// keepMeasuring measures the site once there is somebody to do it, and again
// every cfg.Measure, until the frontal ends.
func (f *Frontal) keepMeasuring() {
	for f.cfg.Measure > 0 {
		next := f.cfg.Measure
		s := f.up.come(f.ctx)
		if s == nil {
			return // the frontal ends
		}
		m, err := f.measure()
		switch {
		case f.ctx.Err() != nil:
			return
		case err != nil:
			f.log.Warn("the site's profile was not measured", "error", err, "retry_in", measureAgain.String())
			next = min(next, measureAgain)
		default:
			f.adopt(m)
		}
		if !pauseFor(f.ctx, next) {
			return
		}
	}
}

// pauseFor waits for d and reports whether ctx is still going on.
func pauseFor(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// measure lets whoever stands where the site's connections begin measure it.
func (f *Frontal) measure() (siteprobe.Measured, error) {
	if !f.cfg.Profile.GatewayOnly {
		return f.measureByHelper()
	}
	ctx, cancel := context.WithTimeout(f.ctx, measureBound)
	defer cancel()
	o, err := siteprobe.Measure(ctx, siteprobe.Options{Grid: askBroker{f}, Ports: f.cfg.ports(), HTTPProxy: f.httpProxy})
	if err != nil {
		return siteprobe.Measured{}, err
	}
	return siteprobe.Infer(o).MeasuredBy("gateway", time.Now()), nil
}

// askBroker is the grid as a frontal reaches it.
type askBroker struct{ f *Frontal }

func (a askBroker) Bearings(ctx context.Context, req *controlpb.BearingsRequest) (*controlpb.BearingsResponse, error) {
	return a.f.bearings(ctx, req)
}

func (a askBroker) CallBack(ctx context.Context, req *controlpb.CallBackRequest) (*controlpb.CallBackResponse, error) {
	return a.f.callBack(ctx, req)
}

// measureByHelper appoints the first helper that there is, waiting for one to
// come, and has it measure.
func (f *Frontal) measureByHelper() (siteprobe.Measured, error) {
	node, s := f.someHelper()
	for s == nil {
		select {
		case <-f.came:
		case <-f.ctx.Done():
			return siteprobe.Measured{}, f.ctx.Err()
		}
		node, s = f.someHelper()
	}
	ctx, cancel := context.WithTimeout(f.ctx, measureBound)
	defer cancel()
	ports := f.cfg.ports()
	pb, err := controlpb.NewTargetClient(s.Conn()).Measure(ctx, &controlpb.MeasureRequest{FirstPort: uint32(ports.First), LastPort: uint32(ports.Last)})
	if err != nil {
		return siteprobe.Measured{}, fmt.Errorf("helper %s/%s: %w", f.site, node, control.FromStatus(err))
	}
	m, err := siteprobe.FromPB(pb)
	m.Node = node // by its session, whatever it says
	return m, err
}

// someHelper returns the first helper by name that has a session, or nil.
func (f *Frontal) someHelper() (string, *control.Session) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, node := range f.roster.nodes() {
		if s := f.roster.helpers[node].session; s != nil {
			return node, s
		}
	}
	return "", nil
}

// adopt takes a measurement over: what the admin left open follows it, and
// broker and helpers learn what changed.
func (f *Frontal) adopt(m siteprobe.Measured) {
	declared, old := f.cfg.SiteProfile(), f.profile()
	profile := m.Fill(declared, f.cfg.unset())
	if profile.GatewayOnly && !f.publicAddr.IsValid() {
		profile.Inbound, profile.Ports = overlay.InboundNone, overlay.Ports{} // nothing listens there
	}
	f.mu.Lock()
	f.measured = &m
	f.mu.Unlock()
	f.current.Store(&profile)
	for _, d := range m.Differences(profile) {
		f.log.Warn("the declared profile is not what was measured; the declared one holds", "field", d.Field,
			"declared", d.Declared, "measured", d.Measured, "how", d.How, "node", m.Node)
	}
	changed := control.ProfileToPB(profile).String() != control.ProfileToPB(old).String()
	f.log.Info("site measured", "node", m.Node, "changed", changed, "findings", fmt.Sprint(m.Findings))
	f.joinAgain()
	if changed {
		f.enterAgain()
	}
}

// joinAgain tells the broker of the new profile, if there is a session; a
// later one tells it anyway.
func (f *Frontal) joinAgain() {
	s := f.up.current()
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(f.ctx, brokerCall)
	defer cancel()
	if _, err := controlpb.NewSitesClient(s.Conn()).Join(ctx, f.joinRequest()); err != nil {
		f.log.Warn("the broker was not told what was measured", "error", f.up.callError(s, err))
	}
}

// enterAgain has every helper enter again, so that it learns the new profile:
// it comes back at once, and links do not notice.
func (f *Frontal) enterAgain() {
	f.mu.Lock()
	var sessions []*control.Session
	for _, h := range f.roster.helpers {
		if h.session != nil {
			sessions = append(sessions, h.session)
		}
	}
	f.mu.Unlock()
	for _, s := range sessions {
		s.Close()
	}
}
