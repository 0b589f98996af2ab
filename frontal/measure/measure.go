// Package measure keeps a site's profile: the one its admin declared, with the fields set to auto
// taken from a measurement, which it repeats periodically and when the profile is in doubt. It
// knows neither the recipients of a profile nor how a measurement is carried out.
//
// One lock guards the last measurement. It is held neither while measuring nor during a callback to
// its owner.
package measure

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/internal/nat/simopen"
	"github.com/isthmus-grid/isthmus/internal/nat/traverse"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/overlay"
)

// The site is measured by the gateway itself if nodes have no route out, and otherwise by one
// helper, which the frontal appoints. The result fills the fields that the admin set to auto, is
// shown beside the declared values, and is sent to the broker.
const (
	measureBound = 100 * time.Second // for one measurement; it takes as long only on a path of seconds
	measureAgain = time.Minute       // after a failed one, and at least after a doubted one
	idleEvery    = 6 * time.Hour     // idle times whose mappings are tested
	idleTries    = 3                 // each starts measureAgain after a failed one

	// workedFor is how long a connection with another site outweighs a measurement that found nothing. Two
	// measurements, measureAgain apart, are over by then.
	workedFor = 5 * time.Minute
)

// probing is the state of Run, which owns it, between measurements.
type probing struct {
	doubted chan struct{}        // shared: holds a value after a technique failed that should work
	idle    chan []probe.Finding // the result of an idle measurement, which runs concurrently

	waits   []time.Duration // the idle times to test
	found   []probe.Finding // by the last idle measurement
	since   time.Time       // when that measurement began
	state   [2]string       // which state was kept then, and whether addresses were translated
	running bool            // one is running
	warned  string          // the differences that were logged last

	last     probe.Measured // the latest measurement, as it was made; zero before the first
	doubtful bool           // it waits for another that agrees
}

// Settings is what a site's admin sets for the profile.
type Settings struct {
	Every    time.Duration       // between two measurements; 0 is never
	Declared overlay.SiteProfile // fields set to auto have the values of a closed site
	Unset    []string            // the fields set to auto
	Ports    overlay.Ports       // to listen on while measuring
}

// Options are the dependencies of a Monitor.
type Options struct {
	Site      overlay.SiteID
	Settings  func() Settings // in effect
	Log       *slog.Logger
	Grid      probe.Grid // for a gateway that measures itself
	HTTPProxy carrier.HTTPProxy
	TLS       func() *tls.Config // for queries to reflectors inside TLS

	AwaitBroker func(context.Context) bool                                                               // reports whether there is one before the context ends
	AwaitHelper func(ctx context.Context, otherThan string) (node string, s *control.Session, err error) // of another node if there is one
	IsReached   func() bool                                                                              // whether a gateway listens for other sites
	Adopted     func(changed bool)                                                                       // called after each measurement, with a possibly changed profile
}

// Monitor measures one site and holds its profile.
type Monitor struct {
	Options

	// The wait after a measurement before a doubt triggers the next, and the wait after a failed
	// idle measurement before it is retried. Set before Run.
	DoubtAfter, IdleAfter time.Duration

	current atomic.Pointer[overlay.SiteProfile] // see Profile
	probing probing
	work    sync.WaitGroup // what Run waits for

	mu        sync.Mutex      // guards the fields below
	measured  *probe.Measured // nil before the first; immutable
	connected time.Time       // when a node of the site last connected to another site
	datagrams time.Time       // when one last did so by datagrams
}

// New returns the Monitor of a site that has not been measured.
func New(o Options) *Monitor {
	mo := &Monitor{Options: o, DoubtAfter: measureAgain, IdleAfter: measureAgain, probing: newProbing()}
	mo.take(o.Settings().Declared)
	return mo
}

// Profile returns the current profile of the site: declared, with the fields set to auto taken from
// the measurement.
func (mo *Monitor) Profile() overlay.SiteProfile { return *mo.current.Load() }

// Measured returns the last measurement, nil if there is none.
func (mo *Monitor) Measured() *probe.Measured {
	mo.mu.Lock()
	defer mo.mu.Unlock()
	return mo.measured
}

// Reload applies new settings and reports whether the profile changed.
func (mo *Monitor) Reload() (changed bool) {
	profile := mo.Settings().Declared
	if m := mo.Measured(); m != nil {
		profile = mo.filled(*m)
	}
	was := mo.Profile()
	mo.take(profile)
	return differ(profile, was)
}

// take makes a profile the current one.
func (mo *Monitor) take(profile overlay.SiteProfile) {
	mo.current.Store(&profile)
	carrier.LimitMTU(profile.MTU)
}

// differ reports whether two profiles differ in what others are sent.
func differ(a, b overlay.SiteProfile) bool {
	return control.ProfileToPB(a).String() != control.ProfileToPB(b).String()
}

func newProbing() probing {
	return probing{
		doubted: make(chan struct{}, 1), idle: make(chan []probe.Finding, 1),
		waits: probe.IdleWaits(),
	}
}

// Run measures the site as soon as a helper can, and again every Settings.Every or when the result
// is in doubt, until ctx ends. It returns when everything it started has ended.
func (mo *Monitor) Run(ctx context.Context) {
	defer mo.work.Wait()
	soonest, witness := mo.DoubtAfter, "" // the node whose measurement another one is to confirm
	for mo.Settings().Every > 0 {
		next := mo.Settings().Every
		if !mo.AwaitBroker(ctx) {
			return // the frontal ends
		}
		m, err := mo.Measure(ctx, witness)
		witness = ""
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			mo.Log.Warn("the site's profile was not measured", "error", err, "retry_in", measureAgain.String())
			next = min(next, measureAgain)
		case mo.Adopt(mo.Steady(m)):
			soonest = mo.DoubtAfter
			mo.beginIdle(ctx, m)
		default: // an unchanged profile is doubted less and less often
			soonest = min(2*soonest, mo.Settings().Every)
			mo.beginIdle(ctx, m)
		}
		if mo.probing.doubtful {
			next, witness = min(next, mo.DoubtAfter), m.Node
		}
		if !mo.awaitDoubt(ctx, min(soonest, next), next) {
			return
		}
	}
}

// awaitDoubt waits until the next measurement is due: when last expires, or after soonest if the
// profile is doubted. It adopts the results of idle measurements in the meantime, and reports
// whether the frontal continues.
func (mo *Monitor) awaitDoubt(ctx context.Context, soonest, last time.Duration) bool {
	early, late := time.NewTimer(soonest), time.NewTimer(last)
	defer early.Stop()
	defer late.Stop()
	ripe, doubted := false, false
	for {
		doubts := mo.probing.doubted
		if doubted {
			doubts = nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-late.C:
			return true
		case <-early.C:
			ripe = true
		case <-doubts:
			doubted = true
		case found := <-mo.probing.idle:
			mo.adoptIdle(found)
		}
		if ripe && doubted {
			mo.Log.Info("measuring the site again, since what the plan predicted has failed")
			return true
		}
	}
}

// Doubt requests an early measurement: a technique failed that should work according to its
// profile. It never blocks; simultaneous doubts count as one, and a measurement that only confirms
// the profile makes the next wait longer.
func (mo *Monitor) Doubt() {
	select {
	case mo.probing.doubted <- struct{}{}:
	default: // it is doubted already
	}
}

// Doubted reports whether there is a doubt that Run has not handled yet.
func (mo *Monitor) Doubted() bool { return len(mo.probing.doubted) > 0 }

// Worked records that a node of the site and one of another site were connected by t, for which the site's own was
// the asker or the target. For some minutes that outweighs a measurement that finds nothing.
func (mo *Monitor) Worked(t overlay.Technique, asker bool) {
	mo.mu.Lock()
	defer mo.mu.Unlock()
	switch kind := t.Kind(); {
	case kind == overlay.BothSend:
		mo.datagrams = time.Now()
	case kind == overlay.AskerDials && !asker, kind == overlay.TargetDials && asker: // it was dialled
	default:
		mo.connected = time.Now()
	}
}

// Steady returns what to adopt of a measurement: with the known results about idle mappings, and with what must
// not be given up for one measurement. It is called once for each.
func (mo *Monitor) Steady(m probe.Measured) probe.Measured {
	var before probe.Measured
	if adopted := mo.Measured(); adopted != nil {
		before = *adopted
	}
	p, raw := &mo.probing, m
	mo.mu.Lock()
	works := probe.Working{Connections: isRecent(mo.connected), Datagrams: isRecent(mo.datagrams)}
	mo.mu.Unlock()
	m, p.doubtful = m.Steady(before, p.last, works)
	p.last = raw
	if p.doubtful {
		mo.Log.Info("the site was measured to permit less than before, which a second measurement must confirm", "node", m.Node, "in", mo.DoubtAfter.String(), "findings", fmt.Sprint(raw.Findings))
	}
	if none, stateless := m.Stateless(); stateless {
		p.found, p.since = none, time.Time{}
	}
	return m.With(p.found)
}

// isRecent reports whether what happened then still outweighs a measurement.
func isRecent(then time.Time) bool { return !then.IsZero() && time.Since(then) < workedFor }

// beginIdle starts a new measurement of idle mappings, concurrent with everything else, if the
// known results are old or m shows that the site has changed. It runs after adopt, which may end
// the session of the measuring helper.
func (mo *Monitor) beginIdle(ctx context.Context, m probe.Measured) {
	p := &mo.probing
	state := m.State()
	_, stateless := m.Stateless()
	fresh := time.Since(p.since) < idleEvery && state == p.state
	if stateless || fresh || p.running {
		return
	}
	p.running, p.since, p.state = true, time.Now(), state
	mo.work.Go(func() { p.idle <- mo.tryIdle(ctx, p.waits) }) // there is space, and only one at a time
}

// tryIdle is measureIdle with retries: it takes minutes, during which the measuring helper may be
// disconnected, for example because the profile changes. It returns nil without a result.
func (mo *Monitor) tryIdle(ctx context.Context, waits []time.Duration) []probe.Finding {
	for left := idleTries - 1; ; left-- {
		found, err := mo.measureIdle(ctx, waits)
		if err == nil {
			return found
		}
		if ctx.Err() != nil {
			return nil
		}
		mo.Log.Warn("how long the site remembers idle connections was not measured", "error", err, "tries_left", left)
		if left == 0 {
			return nil
		}
		sleep.For(ctx, mo.IdleAfter)
	}
}

// adoptIdle adopts the result of an idle measurement; nothing if it failed.
func (mo *Monitor) adoptIdle(found []probe.Finding) {
	p := &mo.probing
	p.running = false
	if found == nil {
		p.since = time.Time{} // the next measurement tries again
		return
	}
	p.found = found
	if m := mo.Measured(); m != nil {
		mo.Adopt(m.With(found))
	}
}

// Measure runs a measurement where the site's connections originate, at another node than that if it can.
func (mo *Monitor) Measure(ctx context.Context, otherThan string) (probe.Measured, error) {
	if !mo.Settings().Declared.GatewayOnly {
		return mo.measureByHelper(ctx, otherThan, nil, measureBound)
	}
	ctx, cancel := context.WithTimeout(ctx, measureBound)
	defer cancel()
	o, err := probe.Measure(ctx, probe.Options{
		Grid: mo.Grid, Ports: mo.Settings().Ports, HTTPProxy: mo.HTTPProxy, Raw: traverse.Available, Port443: simopen.MayBind443,
		TLS: mo.TLS(), Session: true, // without it there are no reflectors
	})
	if err != nil {
		return probe.Measured{}, err
	}
	return probe.Infer(o).MeasuredBy("gateway", time.Now()), nil
}

// measureIdle is measure for idle mappings. It takes as long as the longest of waits.
func (mo *Monitor) measureIdle(ctx context.Context, waits []time.Duration) ([]probe.Finding, error) {
	bound := probe.IdleBound(waits) + measureBound
	if !mo.Settings().Declared.GatewayOnly {
		m, err := mo.measureByHelper(ctx, "", waits, bound)
		return m.Idle(), err
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	o, err := probe.MeasureIdle(ctx, probe.Options{Grid: mo.Grid, TLS: mo.TLS()}, waits)
	if err != nil {
		return nil, err
	}
	return o.Findings(), nil
}

// measureByHelper appoints the first available helper, waiting for one if necessary, and lets it
// measure; with waits, it measures the idle timeouts.
func (mo *Monitor) measureByHelper(ctx context.Context, otherThan string, waits []time.Duration, bound time.Duration) (probe.Measured, error) {
	node, s, err := mo.AwaitHelper(ctx, otherThan)
	if err != nil {
		return probe.Measured{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	ports := mo.Settings().Ports
	req := &controlpb.MeasureRequest{FirstPort: uint32(ports.First), LastPort: uint32(ports.Last)}
	for _, w := range waits {
		req.IdleS = append(req.IdleS, uint32(w/time.Second))
	}
	pb, err := controlpb.NewTargetClient(s.Conn()).Measure(ctx, req)
	if err != nil {
		return probe.Measured{}, fmt.Errorf("helper %s/%s: %w", mo.Site, node, control.FromStatus(err))
	}
	m, err := probe.FromPB(pb)
	m.Node = node // from its session, regardless of its own claim
	return m, err
}

// Adopt adopts a measurement: the fields set to auto follow it, and broker and helpers are sent the
// changes. It reports whether the profile changed.
func (mo *Monitor) Adopt(m probe.Measured) (changed bool) {
	old, profile := mo.Profile(), mo.filled(m)
	mo.mu.Lock()
	first := mo.measured == nil
	mo.measured = &m
	mo.mu.Unlock()
	mo.take(profile)
	mo.warnOf(m.Differences(profile), m.Node)
	changed = differ(profile, old)
	mo.Log.Info("site measured", "node", m.Node, "changed", changed, "findings", fmt.Sprint(m.Findings))
	if changed && !first {
		mo.Log.Warn("the site's profile was out of date and is corrected", "node", m.Node, "was", fmt.Sprintf("%+v", old), "is", fmt.Sprintf("%+v", profile))
	}
	mo.Adopted(changed)
	return changed
}

// filled is the site's profile as declared, with measured values for undeclared fields.
func (mo *Monitor) filled(m probe.Measured) overlay.SiteProfile {
	s := mo.Settings()
	profile := m.Fill(s.Declared, s.Unset)
	if profile.GatewayOnly && !mo.IsReached() {
		profile.Inbound, profile.Ports = overlay.InboundNone, overlay.Ports{} // nothing listens there
	}
	return profile
}

// warnOf logs where the declared profile differs from the measurement, if the difference is new.
func (mo *Monitor) warnOf(differences []probe.Difference, node string) {
	var text strings.Builder
	for _, d := range differences {
		fmt.Fprintf(&text, "%s %s %s\n", d.Field, d.Declared, d.Measured)
	}
	if text.String() == mo.probing.warned {
		return
	}
	mo.probing.warned = text.String()
	for _, d := range differences {
		mo.Log.Warn("the declared profile is not what was measured; the declared one holds", "field", d.Field,
			"declared", d.Declared, "measured", d.Measured, "how", d.How, "node", node)
	}
}
