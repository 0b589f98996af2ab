package frontal

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/internal/nat/traverse"
	"github.com/isthmus-grid/isthmus/overlay"
)

// How the site is measured: by the gateway itself where nodes have no route
// out, and else by one helper, which the frontal appoints. The outcome fills
// what the admin left open, is shown beside what the admin said, and is told
// to the broker.
const (
	measureBound = 40 * time.Second // for one measurement
	measureAgain = time.Minute      // after one that failed, and at least after one that is doubted
	idleEvery    = 6 * time.Hour    // for how long the site remembers what is idle
	idleTries    = 3                // of which the next begins measureAgain after one that failed
)

// probing is what keepMeasuring, which owns it, remembers from one measurement
// to the next.
type probing struct {
	doubted chan struct{}        // anybody's: holds a value after a technique failed that should work
	idle    chan []probe.Finding // the outcome of an idle measurement, which runs beside the others

	waits   []time.Duration // to be idle for
	found   []probe.Finding // by the last idle measurement
	since   time.Time       // when that was begun
	state   [2]string       // what remembered connections then, and whether addresses were translated
	running bool            // one is under way
	warned  string          // the differences that were logged last
}

func newProbing() probing {
	return probing{
		doubted: make(chan struct{}, 1), idle: make(chan []probe.Finding, 1),
		waits: probe.IdleWaits(),
	}
}

// profile is the site's profile as it is at present: declared, with what was
// left open taken from the measurement.
func (f *Frontal) profile() overlay.SiteProfile { return *f.current.Load() }

// joinRequest is what the broker is told of the site.
func (f *Frontal) joinRequest() *controlpb.JoinRequest {
	req := &controlpb.JoinRequest{Profile: control.ProfileToPB(f.declared()), Unset: f.config().unset(), Policy: f.policyText()}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.measured != nil {
		req.Measured = f.measured.ToPB()
	}
	return req
}

// keepMeasuring measures the site once there is somebody to do it, and again
// every cfg.Measure or when the outcome is in doubt, until the frontal ends.
func (f *Frontal) keepMeasuring() {
	soonest := f.bounds.doubt
	for f.config().Measure > 0 {
		next := f.config().Measure
		s := f.up.Await(f.ctx)
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
		case f.adopt(f.withIdle(m)):
			soonest = f.bounds.doubt
			f.beginIdle(m)
		default: // what is as it was is doubted less and less often
			soonest = min(2*soonest, f.config().Measure)
			f.beginIdle(m)
		}
		if !f.awaitDoubt(min(soonest, next), next) {
			return
		}
	}
}

// awaitDoubt waits until the site is to be measured again: when last is over, or
// after soonest if the profile is doubted. It takes over what idle measurements
// find meanwhile, and reports whether the frontal goes on.
func (f *Frontal) awaitDoubt(soonest, last time.Duration) bool {
	early, late := time.NewTimer(soonest), time.NewTimer(last)
	defer early.Stop()
	defer late.Stop()
	ripe, doubted := false, false
	for {
		doubts := f.probing.doubted
		if doubted {
			doubts = nil
		}
		select {
		case <-f.ctx.Done():
			return false
		case <-late.C:
			return true
		case <-early.C:
			ripe = true
		case <-doubts:
			doubted = true
		case found := <-f.probing.idle:
			f.adoptIdle(found)
		}
		if ripe && doubted {
			f.log.Info("measuring the site again, since what the plan promised has failed")
			return true
		}
	}
}

// doubtProfile has the site measured again soon: a technique failed that its
// profile says should work. It never blocks; doubts that come at once count as
// one, and a measurement that only confirms the profile makes the next wait
// longer.
func (f *Frontal) doubtProfile() {
	select {
	case f.probing.doubted <- struct{}{}:
	default: // it is doubted already
	}
}

// withIdle returns m with what is known of idle mappings.
func (f *Frontal) withIdle(m probe.Measured) probe.Measured {
	f.mu.Lock()
	if f.measured != nil {
		m = m.Steady(*f.measured)
	}
	f.mu.Unlock()
	p := &f.probing
	if none, stateless := m.Stateless(); stateless {
		p.found, p.since = none, time.Time{}
	}
	return m.With(p.found)
}

// beginIdle measures idle mappings anew, beside everything else, if what is
// known of them is old or m says that the site has changed. It comes after
// adopt, which may end the session of the helper that measures.
func (f *Frontal) beginIdle(m probe.Measured) {
	p := &f.probing
	state := m.State()
	_, stateless := m.Stateless()
	fresh := time.Since(p.since) < idleEvery && state == p.state
	if stateless || fresh || p.running {
		return
	}
	p.running, p.since, p.state = true, time.Now(), state
	f.work.Go(func() { p.idle <- f.tryIdle(p.waits) }) // there is room, and only one at a time
}

// tryIdle is measureIdle, and again for some times if it fails: it takes
// minutes, in which whoever measures may be cut off, as by a profile that
// changes. It returns nil when nothing was found.
func (f *Frontal) tryIdle(waits []time.Duration) []probe.Finding {
	for left := idleTries - 1; ; left-- {
		found, err := f.measureIdle(waits)
		if err == nil {
			return found
		}
		if f.ctx.Err() != nil {
			return nil
		}
		f.log.Warn("how long the site remembers idle connections was not measured", "error", err, "tries_left", left)
		if left == 0 {
			return nil
		}
		uplink.Pause(f.ctx, f.bounds.idle)
	}
}

// adoptIdle takes over what an idle measurement found; nothing if it failed.
func (f *Frontal) adoptIdle(found []probe.Finding) {
	p := &f.probing
	p.running = false
	if found == nil {
		p.since = time.Time{} // the next measurement tries again
		return
	}
	p.found = found
	f.mu.Lock()
	m := f.measured
	f.mu.Unlock()
	if m != nil {
		f.adopt(m.With(found))
	}
}

// measure lets whoever stands where the site's connections begin measure it.
func (f *Frontal) measure() (probe.Measured, error) {
	if !f.config().Profile.GatewayOnly {
		return f.measureByHelper(nil, measureBound)
	}
	ctx, cancel := context.WithTimeout(f.ctx, measureBound)
	defer cancel()
	o, err := probe.Measure(ctx, probe.Options{
		Grid: askBroker{f}, Ports: f.config().ports(), HTTPProxy: f.httpProxy, Raw: traverse.Available,
		TLS: f.dataTLS(),
	})
	if err != nil {
		return probe.Measured{}, err
	}
	return probe.Infer(o).MeasuredBy("gateway", time.Now()), nil
}

// measureIdle is measure for idle mappings. It takes as long as the longest of
// waits.
func (f *Frontal) measureIdle(waits []time.Duration) ([]probe.Finding, error) {
	bound := probe.IdleBound(waits) + measureBound
	if !f.config().Profile.GatewayOnly {
		m, err := f.measureByHelper(waits, bound)
		return m.Idle(), err
	}
	ctx, cancel := context.WithTimeout(f.ctx, bound)
	defer cancel()
	o, err := probe.MeasureIdle(ctx, probe.Options{Grid: askBroker{f}, TLS: f.dataTLS()}, waits)
	if err != nil {
		return nil, err
	}
	return o.Findings(), nil
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

// measureByHelper appoints the first helper that there is, waiting for one to
// come, and has it measure; with waits, how long the site remembers.
func (f *Frontal) measureByHelper(waits []time.Duration, bound time.Duration) (probe.Measured, error) {
	node, s, err := f.registry.AwaitHelper(f.ctx)
	if err != nil {
		return probe.Measured{}, err
	}
	ctx, cancel := context.WithTimeout(f.ctx, bound)
	defer cancel()
	ports := f.config().ports()
	req := &controlpb.MeasureRequest{FirstPort: uint32(ports.First), LastPort: uint32(ports.Last)}
	for _, w := range waits {
		req.IdleS = append(req.IdleS, uint32(w/time.Second))
	}
	pb, err := controlpb.NewTargetClient(s.Conn()).Measure(ctx, req)
	if err != nil {
		return probe.Measured{}, fmt.Errorf("helper %s/%s: %w", f.site, node, control.FromStatus(err))
	}
	m, err := probe.FromPB(pb)
	m.Node = node // by its session, whatever it says
	return m, err
}

// adopt takes a measurement over: what the admin left open follows it, and
// broker and helpers learn what changed. It reports whether the profile did.
func (f *Frontal) adopt(m probe.Measured) (changed bool) {
	old, profile := f.profile(), f.filled(m)
	f.mu.Lock()
	first := f.measured == nil
	f.measured = &m
	f.mu.Unlock()
	f.current.Store(&profile)
	carrier.LimitMTU(profile.MTU)
	f.warnOf(m.Differences(profile), m.Node)
	changed = control.ProfileToPB(profile).String() != control.ProfileToPB(old).String()
	f.log.Info("site measured", "node", m.Node, "changed", changed, "findings", fmt.Sprint(m.Findings))
	if changed && !first {
		f.log.Warn("the site's profile was out of date and is corrected", "node", m.Node, "was", fmt.Sprintf("%+v", old), "is", fmt.Sprintf("%+v", profile))
	}
	f.joinAgain()
	if changed {
		f.enterAgain()
	}
	return changed
}

// filled is the site's profile as declared, with what is measured where nothing is.
func (f *Frontal) filled(m probe.Measured) overlay.SiteProfile {
	cfg := f.config()
	profile := m.Fill(cfg.SiteProfile(), cfg.unset())
	if profile.GatewayOnly && !f.publicAddr.IsValid() {
		profile.Inbound, profile.Ports = overlay.InboundNone, overlay.Ports{} // nothing listens there
	}
	return profile
}

// warnOf logs where the declared profile is not what was measured, when that
// is news.
func (f *Frontal) warnOf(differences []probe.Difference, node string) {
	var text strings.Builder
	for _, d := range differences {
		fmt.Fprintf(&text, "%s %s %s\n", d.Field, d.Declared, d.Measured)
	}
	if text.String() == f.probing.warned {
		return
	}
	f.probing.warned = text.String()
	for _, d := range differences {
		f.log.Warn("the declared profile is not what was measured; the declared one holds", "field", d.Field,
			"declared", d.Declared, "measured", d.Measured, "how", d.How, "node", node)
	}
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
