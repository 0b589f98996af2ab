// Package measure keeps a site's profile: as its admin declared it, with what was left open
// taken from a measurement, which it has made again in time and when it is doubted. It knows
// neither who is told of a profile nor how a measurement is carried out.
//
// One lock guards the last measurement. It is never held while measuring, nor while its
// owner is told.
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

// probing is what Run, which owns it, remembers from one measurement
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

// Settings is what a site's admin says of the profile.
type Settings struct {
	Every    time.Duration       // between two measurements; 0 is never
	Declared overlay.SiteProfile // what was left open is what a closed site has
	Unset    []string            // the fields that were left open
	Ports    overlay.Ports       // to listen in while measuring
}

// Options is what a Keeper needs of its frontal.
type Options struct {
	Site      overlay.SiteID
	Settings  func() Settings // in effect
	Log       *slog.Logger
	Grid      probe.Grid // for a gateway that measures itself
	HTTPProxy carrier.HTTPProxy
	TLS       func() *tls.Config // for asking reflectors inside of TLS

	AwaitBroker func(context.Context) bool // reports whether there is one before the context ends
	AwaitHelper func(context.Context) (node string, s *control.Session, err error)
	IsReached   func() bool        // whether a gateway listens for other sites
	Adopted     func(changed bool) // is called when there is a measurement, perhaps with another profile
}

// Keeper keeps the profile of one site.
type Keeper struct {
	Options

	// The waits after a measurement before a doubt brings the next, and after an idle
	// measurement that failed before it is tried again. They are set before Run.
	DoubtAfter, IdleAfter time.Duration

	current atomic.Pointer[overlay.SiteProfile] // see Profile
	probing probing
	work    sync.WaitGroup // what Run waits for

	mu       sync.Mutex      // guards measured
	measured *probe.Measured // nil: not yet; not changed
}

// New returns the keeper of a site that was not measured yet.
func New(o Options) *Keeper {
	k := &Keeper{Options: o, DoubtAfter: measureAgain, IdleAfter: measureAgain, probing: newProbing()}
	k.take(o.Settings().Declared)
	return k
}

// Profile is the site's profile as it is at present: declared, with what was left
// open taken from the measurement.
func (k *Keeper) Profile() overlay.SiteProfile { return *k.current.Load() }

// Measured returns the last measurement, nil if there was none.
func (k *Keeper) Measured() *probe.Measured {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.measured
}

// Reload puts new settings into effect and reports whether the profile is another now.
func (k *Keeper) Reload() (changed bool) {
	profile := k.Settings().Declared
	if m := k.Measured(); m != nil {
		profile = k.filled(*m)
	}
	was := k.Profile()
	k.take(profile)
	return differ(profile, was)
}

// take makes a profile the present one.
func (k *Keeper) take(profile overlay.SiteProfile) {
	k.current.Store(&profile)
	carrier.LimitMTU(profile.MTU)
}

// differ reports whether others are told of one profile what they are not told of the
// other.
func differ(a, b overlay.SiteProfile) bool {
	return control.ProfileToPB(a).String() != control.ProfileToPB(b).String()
}

func newProbing() probing {
	return probing{
		doubted: make(chan struct{}, 1), idle: make(chan []probe.Finding, 1),
		waits: probe.IdleWaits(),
	}
}

// Run measures the site once there is somebody to do it, and again every
// Settings.Every or when the outcome is in doubt, until ctx ends. It returns when
// everything it started has ended.
func (k *Keeper) Run(ctx context.Context) {
	defer k.work.Wait()
	soonest := k.DoubtAfter
	for k.Settings().Every > 0 {
		next := k.Settings().Every
		if !k.AwaitBroker(ctx) {
			return // the frontal ends
		}
		m, err := k.Measure(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			k.Log.Warn("the site's profile was not measured", "error", err, "retry_in", measureAgain.String())
			next = min(next, measureAgain)
		case k.Adopt(k.WithIdle(m)):
			soonest = k.DoubtAfter
			k.beginIdle(ctx, m)
		default: // what is as it was is doubted less and less often
			soonest = min(2*soonest, k.Settings().Every)
			k.beginIdle(ctx, m)
		}
		if !k.awaitDoubt(ctx, min(soonest, next), next) {
			return
		}
	}
}

// awaitDoubt waits until the site is to be measured again: when last is over, or
// after soonest if the profile is doubted. It takes over what idle measurements
// find meanwhile, and reports whether the frontal goes on.
func (k *Keeper) awaitDoubt(ctx context.Context, soonest, last time.Duration) bool {
	early, late := time.NewTimer(soonest), time.NewTimer(last)
	defer early.Stop()
	defer late.Stop()
	ripe, doubted := false, false
	for {
		doubts := k.probing.doubted
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
		case found := <-k.probing.idle:
			k.adoptIdle(found)
		}
		if ripe && doubted {
			k.Log.Info("measuring the site again, since what the plan promised has failed")
			return true
		}
	}
}

// Doubt has the site measured again soon: a technique failed that its
// profile says should work. It never blocks; doubts that come at once count as
// one, and a measurement that only confirms the profile makes the next wait
// longer.
func (k *Keeper) Doubt() {
	select {
	case k.probing.doubted <- struct{}{}:
	default: // it is doubted already
	}
}

// Doubted reports whether the profile is in doubt and nobody has heard of that yet.
func (k *Keeper) Doubted() bool { return len(k.probing.doubted) > 0 }

// WithIdle returns m with what is known of idle mappings.
func (k *Keeper) WithIdle(m probe.Measured) probe.Measured {
	if before := k.Measured(); before != nil {
		m = m.Steady(*before)
	}
	p := &k.probing
	if none, stateless := m.Stateless(); stateless {
		p.found, p.since = none, time.Time{}
	}
	return m.With(p.found)
}

// beginIdle measures idle mappings anew, beside everything else, if what is
// known of them is old or m says that the site has changed. It comes after
// adopt, which may end the session of the helper that measures.
func (k *Keeper) beginIdle(ctx context.Context, m probe.Measured) {
	p := &k.probing
	state := m.State()
	_, stateless := m.Stateless()
	fresh := time.Since(p.since) < idleEvery && state == p.state
	if stateless || fresh || p.running {
		return
	}
	p.running, p.since, p.state = true, time.Now(), state
	k.work.Go(func() { p.idle <- k.tryIdle(ctx, p.waits) }) // there is room, and only one at a time
}

// tryIdle is measureIdle, and again for some times if it fails: it takes
// minutes, in which whoever measures may be cut off, as by a profile that
// changes. It returns nil when nothing was found.
func (k *Keeper) tryIdle(ctx context.Context, waits []time.Duration) []probe.Finding {
	for left := idleTries - 1; ; left-- {
		found, err := k.measureIdle(ctx, waits)
		if err == nil {
			return found
		}
		if ctx.Err() != nil {
			return nil
		}
		k.Log.Warn("how long the site remembers idle connections was not measured", "error", err, "tries_left", left)
		if left == 0 {
			return nil
		}
		pause(ctx, k.IdleAfter)
	}
}

// adoptIdle takes over what an idle measurement found; nothing if it failed.
func (k *Keeper) adoptIdle(found []probe.Finding) {
	p := &k.probing
	p.running = false
	if found == nil {
		p.since = time.Time{} // the next measurement tries again
		return
	}
	p.found = found
	if m := k.Measured(); m != nil {
		k.Adopt(m.With(found))
	}
}

// Measure lets whoever stands where the site's connections begin measure it.
func (k *Keeper) Measure(ctx context.Context) (probe.Measured, error) {
	if !k.Settings().Declared.GatewayOnly {
		return k.measureByHelper(ctx, nil, measureBound)
	}
	ctx, cancel := context.WithTimeout(ctx, measureBound)
	defer cancel()
	o, err := probe.Measure(ctx, probe.Options{
		Grid: k.Grid, Ports: k.Settings().Ports, HTTPProxy: k.HTTPProxy, Raw: traverse.Available,
		TLS: k.TLS(),
	})
	if err != nil {
		return probe.Measured{}, err
	}
	return probe.Infer(o).MeasuredBy("gateway", time.Now()), nil
}

// measureIdle is measure for idle mappings. It takes as long as the longest of
// waits.
func (k *Keeper) measureIdle(ctx context.Context, waits []time.Duration) ([]probe.Finding, error) {
	bound := probe.IdleBound(waits) + measureBound
	if !k.Settings().Declared.GatewayOnly {
		m, err := k.measureByHelper(ctx, waits, bound)
		return m.Idle(), err
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	o, err := probe.MeasureIdle(ctx, probe.Options{Grid: k.Grid, TLS: k.TLS()}, waits)
	if err != nil {
		return nil, err
	}
	return o.Findings(), nil
}

// measureByHelper appoints the first helper that there is, waiting for one to
// come, and has it measure; with waits, how long the site remembers.
func (k *Keeper) measureByHelper(ctx context.Context, waits []time.Duration, bound time.Duration) (probe.Measured, error) {
	node, s, err := k.AwaitHelper(ctx)
	if err != nil {
		return probe.Measured{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	ports := k.Settings().Ports
	req := &controlpb.MeasureRequest{FirstPort: uint32(ports.First), LastPort: uint32(ports.Last)}
	for _, w := range waits {
		req.IdleS = append(req.IdleS, uint32(w/time.Second))
	}
	pb, err := controlpb.NewTargetClient(s.Conn()).Measure(ctx, req)
	if err != nil {
		return probe.Measured{}, fmt.Errorf("helper %s/%s: %w", k.Site, node, control.FromStatus(err))
	}
	m, err := probe.FromPB(pb)
	m.Node = node // by its session, whatever it says
	return m, err
}

// Adopt takes a measurement over: what the admin left open follows it, and
// broker and helpers learn what changed. It reports whether the profile did.
func (k *Keeper) Adopt(m probe.Measured) (changed bool) {
	old, profile := k.Profile(), k.filled(m)
	k.mu.Lock()
	first := k.measured == nil
	k.measured = &m
	k.mu.Unlock()
	k.take(profile)
	k.warnOf(m.Differences(profile), m.Node)
	changed = differ(profile, old)
	k.Log.Info("site measured", "node", m.Node, "changed", changed, "findings", fmt.Sprint(m.Findings))
	if changed && !first {
		k.Log.Warn("the site's profile was out of date and is corrected", "node", m.Node, "was", fmt.Sprintf("%+v", old), "is", fmt.Sprintf("%+v", profile))
	}
	k.Adopted(changed)
	return changed
}

// filled is the site's profile as declared, with what is measured where nothing is.
func (k *Keeper) filled(m probe.Measured) overlay.SiteProfile {
	s := k.Settings()
	profile := m.Fill(s.Declared, s.Unset)
	if profile.GatewayOnly && !k.IsReached() {
		profile.Inbound, profile.Ports = overlay.InboundNone, overlay.Ports{} // nothing listens there
	}
	return profile
}

// warnOf logs where the declared profile is not what was measured, when that
// is news.
func (k *Keeper) warnOf(differences []probe.Difference, node string) {
	var text strings.Builder
	for _, d := range differences {
		fmt.Fprintf(&text, "%s %s %s\n", d.Field, d.Declared, d.Measured)
	}
	if text.String() == k.probing.warned {
		return
	}
	k.probing.warned = text.String()
	for _, d := range differences {
		k.Log.Warn("the declared profile is not what was measured; the declared one holds", "field", d.Field,
			"declared", d.Declared, "measured", d.Measured, "how", d.How, "node", node)
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
