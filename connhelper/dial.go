package connhelper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/connhelper/race"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/limit/dialwindow"
	"github.com/isthmus-grid/isthmus/internal/nat/signalling"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// readyConn is a connection that is ready for its process.
type readyConn struct {
	conn   socket
	path   overlay.Path
	limits []string                                    // what limits the connection
	commit func(context.Context) error                 // if not nil, to be called when the connection is taken
	handed func(p *process, carrier uint64, err error) // if not nil, called when p got the connection, or did not
	settle func(err error)                             // if not nil, called with the result of the link's handshake on it

	useless func() // if not nil, called when the link's handshake fails on it
}

// Drop closes a connection that is not wanted, by a reset: a NAT forgets it sooner than one that
// ended.
func (c readyConn) Drop() {
	if c.conn != nil {
		carrier.Reset(c.conn)
	}
	if c.handed != nil {
		c.handed(nil, 0, errDropped)
	}
}

var errDropped = errors.New("another technique was faster")

// target is where a process is, by the directory's answer.
type target struct {
	point  overlay.AccessPoint
	plan   overlay.Plan
	digest uint64 // of the plan; 0 inside the site
	memory memory
	ways   overlay.Ways // what the process asked for
}

// memory is what the site has learned about the plan's techniques.
type memory struct {
	winner   race.DialResult              // connected last
	barred   map[overlay.Technique]string // failed lately, and why: tried last
	inferior map[overlay.Technique]string // carry far less than another: tried when nothing else connects
}

// dialler carries out plans from the asker's side.
type dialler struct {
	*common
	sizes      *sizes
	paths      *race.Cache
	reports    *reports
	delivery   *delivery
	traversals *traversals
	reserves   *reserves
}

// dial connects p to another process of its job, by any technique that works. Its errors do not
// name the process; the caller does. dial waits for a process that has not started yet and for a
// frontal that is away. When every technique failed it asks the directory without caches and
// retries for a while: a cached answer may be of an earlier generation of the process, and a daemon
// on the way may be restarting.
func (d *dialler) dial(ctx context.Context, p *process, name overlay.ProcessName, ways overlay.Ways) (readyConn, error) {
	if name == p.name {
		return readyConn{}, fmt.Errorf("%v: %w: a process does not dial itself", name, overlay.ErrRefused)
	}
	release, err := d.budgets.admit(p)
	if err != nil {
		return readyConn{}, err
	}
	defer release()
	if ways == overlay.Reserved {
		return d.reserves.dial(ctx, p, name.Rank)
	}
	fresh := p.askedBefore(name.Rank)
	var failed time.Time // the first attempt
	var before error     // of the last attempt that ended by itself
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, longestPause) {
		m, err := d.dialOnce(ctx, p, name, ways, fresh)
		if err != nil && before != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return readyConn{}, before // it says more than that the deadline passed during another attempt
		}
		if before = err; failed.IsZero() {
			failed = time.Now()
		}
		if err == nil || !isTransient(err) || ctx.Err() != nil || !sleepFor(ctx, pause, failed.Add(patienceWith(err))) {
			return m, err
		}
		fresh = true
	}
}

func (d *dialler) dialOnce(ctx context.Context, p *process, name overlay.ProcessName, ways overlay.Ways, fresh bool) (readyConn, error) {
	if q := d.here.get(name); q != nil {
		return d.delivery.pair(p, q)
	}
	at, err := d.locate(ctx, name, fresh)
	if err != nil {
		return readyConn{}, err
	}
	at.ways = ways
	if err := d.sizes.fullAllowed(at, time.Now()); err != nil {
		return readyConn{}, err
	}
	return d.connect(ctx, p, at)
}

// patienceWith returns for how long a dial that failed so is tried again. A daemon that is away comes
// back, when it has been started again or has noticed that its session is dead. A NAT without room for
// another session, which drops every SYN, has room again when it has forgotten those that lost races.
func patienceWith(err error) time.Duration {
	for _, class := range []error{overlay.ErrTimeout, overlay.ErrNoSession, overlay.ErrUnknownSite} {
		if errors.Is(err, class) {
			return longPersistence
		}
	}
	return persistence
}

// isTransient reports whether a failure may be transient.
func isTransient(err error) bool {
	if errors.Is(err, signalling.ErrUnanswered) || errors.Is(err, dialwindow.ErrNoSlot) {
		return true // nothing was tried
	}
	for _, class := range []error{overlay.ErrNoPath, overlay.ErrForbidden, overlay.ErrEnded, overlay.ErrOverloaded, wire.ErrVersion, wire.ErrMalformed} {
		if errors.Is(err, class) {
			return false
		}
	}
	return true
}

// sleepFor pauses between two attempts, and reports whether to make another.
func sleepFor(ctx context.Context, pause time.Duration, giveUp time.Time) bool {
	next := time.Now().Add(pause)
	if deadline, ok := ctx.Deadline(); next.After(giveUp) || ok && next.After(deadline) {
		return false
	}
	return sleep.For(ctx, pause) == nil
}

// connect races the techniques of a plan, each bounded, and reports to the directory which failed.
func (d *dialler) connect(ctx context.Context, p *process, to target) (readyConn, error) {
	if to.point.Node == d.node {
		// Registered from here, but not in the table: this helper was restarted and the process has
		// not sent its hello yet.
		if q := d.here.wait(ctx, to.point.Process); q != nil {
			return d.delivery.pair(p, q)
		}
		return readyConn{}, fmt.Errorf("%w: it was on this node, %v, and has not come back", overlay.ErrUnknownProcess, d.node)
	}
	if len(to.plan.Steps) == 0 {
		return readyConn{}, noPath(to)
	}
	return d.follow(ctx, p, to)
}

// follow races the plan's techniques, those that failed recently last, and reports each result to
// the directory.
func (d *dialler) follow(ctx context.Context, p *process, to target) (readyConn, error) {
	fail := func(err error) (readyConn, error) {
		return readyConn{}, fmt.Errorf("at %v: %w", to.point.Node, err)
	}
	t, err := d.enterRace(ctx, to)
	if err != nil {
		return fail(err)
	}
	steps, resorts, tried := to.eligible(t)
	entries := race.LineUp(steps, resorts, t.Winner)
	got, won := race.Run(ctx, d.work.Go, entries, func(ctx context.Context, step overlay.Step) (readyConn, error) {
		return d.attempt(ctx, p, to, step)
	})
	failures, last, learned := d.reportOutcomes(to, entries, got, won)
	switch {
	case won >= 0:
		o := got[slices.IndexFunc(got, func(o race.Outcome[readyConn]) bool { return o.Entry == won })]
		t.Finish(race.DialResult{Technique: entries[won].Step.Technique, Took: o.Took})
		if o.Conn.commit != nil {
			if err := o.Conn.commit(ctx); err != nil {
				o.Conn.Drop()
				return fail(fmt.Errorf("%v: %w", entries[won].Step.Technique, err))
			}
		}
		o.Conn.path.Reason = withLimits(o.Conn.path.Reason, to.inferiorSteps(entries[won].Step.Technique))
		settle := d.onOutcome(t, p, to, o.Conn.path, o.Took)
		o.Conn.settle = func(err error) {
			if err != nil && o.Conn.useless != nil {
				o.Conn.useless()
			}
			settle(err)
		}
		return o.Conn, nil
	case learned || len(got) == 0:
		t.Finish(race.DialResult{})
	default:
		t.Leave()
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return readyConn{}, ctx.Err()
	}
	tried = append(append(tried, to.untried(entries, got)...), failures...)
	if last == nil { // nothing was worth trying: the techniques that the plan rejected are half of the answer
		last = overlay.ErrNoPath
		tried = append(tried, rejected(to.plan)...)
	}
	return fail(&attemptsError{tried, last})
}

// enterRace waits for a link's slot. A link that looks for a path other than the best does not
// wait, and its result is of no use to others.
func (d *dialler) enterRace(ctx context.Context, to target) (*race.Slot, error) {
	if to.ways != overlay.AllWays {
		return new(race.Slot), nil
	}
	return d.paths.Enter(ctx, to.point.Node.Site, to.digest, to.memory.winner)
}

// eligible returns the plan's steps to try at once, those to try last, and why others are not tried.
// The last resorts are what the links that t follows are trying, then the inferior steps, then the
// barred ones: while another technique works no time is spent on them, and what made them fail may be
// over. Where there is nothing else, the first of these come at once. They are not for a process that
// has a path and looks for a better one, nor for a dial with small packets, which accompanies another.
func (to target) eligible(t *race.Slot) (steps, last []overlay.Step, skipped []string) {
	var followed, inferior, barred []overlay.Step
	for _, s := range to.plan.Steps {
		reason := to.lastReason(s.Technique)
		_, isBarred := to.memory.barred[s.Technique]
		switch {
		case !to.ways.Allow(s.Technique):
			skipped = append(skipped, fmt.Sprintf("%v: not tried: %v is looked for", s.Technique, to.ways))
		case reason != "" && to.ways != overlay.AllWays:
			skipped = append(skipped, fmt.Sprintf("%v: not tried: %s", s.Technique, reason))
		case isBarred:
			barred = append(barred, s)
		case reason != "":
			inferior = append(inferior, s)
		case t.Follow && s.Technique != t.Winner.Technique:
			followed = append(followed, s)
		default:
			steps = append(steps, s)
		}
	}
	for _, group := range [][]overlay.Step{followed, inferior, barred} {
		if len(steps) == 0 {
			steps = group
		} else {
			last = append(last, group...)
		}
	}
	return steps, last, skipped
}

// lastReason returns why a technique is a last resort by what the site has learned; "" if it is none.
func (to target) lastReason(t overlay.Technique) string {
	if reason, barred := to.memory.barred[t]; barred {
		return reason
	}
	return to.memory.inferior[t]
}

// untried returns why the entries without an outcome were not tried before the race was over.
func (to target) untried(entries []race.Entry, got []race.Outcome[readyConn]) (why []string) {
	for i, e := range entries {
		if !slices.ContainsFunc(got, func(o race.Outcome[readyConn]) bool { return o.Entry == i }) {
			why = append(why, fmt.Sprintf("%v: no time was left to try it", e.Step.Technique))
			if reason := to.lastReason(e.Step.Technique); reason != "" {
				why[len(why)-1] += ", because it is tried last: " + reason
			}
		}
	}
	return why
}

// inferiorSteps says which techniques that precede taken in a plan were measured to carry less.
func (to target) inferiorSteps(taken overlay.Technique) (why []string) {
	for _, s := range to.plan.Steps {
		if reason, inferior := to.memory.inferior[s.Technique]; inferior && s.Technique.PreferredTo(taken) {
			why = append(why, reason)
		}
	}
	return why
}

// onOutcome returns the function to call when the process reports the result of its handshake: a
// technique has succeeded when both ends have authenticated themselves, not when the network has
// connected, because only the handshake shows that the connection carries data.
func (d *dialler) onOutcome(t *race.Slot, p *process, to target, path overlay.Path, took time.Duration) func(error) {
	technique, away := path.Technique, to.point.Node.Site != d.node.Site
	return func(err error) {
		if err == nil && away && !path.Small {
			d.sizes.largePassed(to)
		}
		if err == nil && path.Proxy != "" {
			p.noteRelay(to.point.Process.Rank, latestRelay{proxy: path.Proxy, works: true})
			d.reports.relayWorks(to, path.Proxy)
		}
		switch {
		case away && !path.Small && errors.Is(err, overlay.ErrTimeout) && !p.relayedElsewhere(to.point.Process.Rank, path.Proxy):
			d.sizes.largeVanished(to, technique, err) // a dial with small packets shows whether the technique is to blame
		case err != nil:
			d.log.Info("path given up", "to", to.point.Process.String(), "node", to.point.Node.String(), "technique", technique.String(), "error", err)
			t.Disproved(technique)
			if path.Proxy != "" {
				err = &proxyError{path.Proxy, err}
			}
			d.reports.outcome(to, technique, 0, err)
		case technique != to.memory.winner.Technique && to.ways.Techniques() != overlay.RelayOnly: // otherwise it is known already
			d.reports.outcome(to, technique, took, nil)
		}
	}
}

// reportOutcomes reports to the directory which techniques failed in a race. It returns what
// failed, the error by which that is judged (gist), and whether anything was learned about the
// paths.
func (d *dialler) reportOutcomes(to target, entries []race.Entry, got []race.Outcome[readyConn], won int) (failures []string, judged error, learned bool) {
	var errs []error
	for _, o := range got {
		step := entries[o.Entry].Step
		switch {
		case o.Entry == won: // the process reports whether it is of use
		case o.Err != nil && !errors.Is(o.Err, context.Canceled):
			failures = append(failures, fmt.Sprintf("%v: %v", step.Technique, o.Err))
			errs = append(errs, o.Err)
			if !isSkipped(o.Err) {
				learned = true
				d.reports.outcome(to, step.Technique, 0, o.Err)
			}
		}
	}
	return failures, gist(errs), learned
}

// gist returns by which of the failures of a race the whole is judged: the last that says something
// about its path; but one that may be transient goes before those that are not, whatever it says. A
// technique that is not planned any more does not mean that a daemon that is away, and was needed for
// another, will not come back.
func gist(errs []error) (judged error) {
	for _, err := range errs {
		if judged == nil || !isTransient(judged) || !isSkipped(err) && isTransient(err) {
			judged = err
		}
	}
	return judged
}

// isSkipped reports whether a technique failed for a reason that says nothing about its path: a
// process or daemon is overloaded, a daemon that had to help is away, or the target process is.
// Such a failure must not be remembered for the technique.
func isSkipped(err error) bool {
	for _, class := range []error{
		overlay.ErrOverloaded, overlay.ErrPortRangeFull, signalling.ErrUnanswered, overlay.ErrNoSession,
		overlay.ErrUnknownSite, overlay.ErrUnknownProcess, overlay.ErrStale,
	} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// attemptsError lists what was tried, and has the class of the last failure that says something
// about its path, if there is one.
type attemptsError struct {
	tried []string
	last  error
}

func (e *attemptsError) Error() string { return strings.Join(e.tried, "; ") }
func (e *attemptsError) Unwrap() error { return e.last }

func noPath(to target) error {
	return fmt.Errorf("at %v: %w: %s", to.point.Node, overlay.ErrNoPath, strings.Join(rejected(to.plan), "; "))
}

// rejected returns why the plan has no more techniques.
func rejected(p overlay.Plan) (why []string) {
	for _, r := range p.Rejected {
		why = append(why, fmt.Sprintf("%v: %s", r.Technique, r.Reason))
	}
	return why
}
