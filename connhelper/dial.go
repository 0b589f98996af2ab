package connhelper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/connhelper/race"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/dialwindow"
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

// dial connects p to another process of its job, by any technique that works. Its errors do not
// name the process; the caller does. dial waits for a process that has not started yet and for a
// frontal that is away. When every technique failed it asks the directory without caches and
// retries for a while: a cached answer may be of an earlier generation of the process, and a daemon
// on the way may be restarting.
func (h *Helper) dial(ctx context.Context, p *process, name overlay.ProcessName, ways overlay.Ways) (readyConn, error) {
	if name == p.name {
		return readyConn{}, fmt.Errorf("%v: %w: a process does not dial itself", name, overlay.ErrRefused)
	}
	release, err := h.admit(p)
	if err != nil {
		return readyConn{}, err
	}
	defer release()
	if ways == overlay.Reserved {
		return h.dialReserve(ctx, p, name.Rank)
	}
	fresh := p.askedBefore(name.Rank)
	var failed time.Time // the first attempt
	var before error     // of the last attempt that ended by itself
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, longestPause) {
		m, err := h.dialOnce(ctx, p, name, ways, fresh)
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

func (h *Helper) dialOnce(ctx context.Context, p *process, name overlay.ProcessName, ways overlay.Ways, fresh bool) (readyConn, error) {
	if q := h.here.get(name); q != nil {
		return h.pair(p, q)
	}
	at, err := h.locate(ctx, name, fresh)
	if err != nil {
		return readyConn{}, err
	}
	at.ways = ways
	if err := h.sizes.fullAllowed(at, time.Now()); err != nil {
		return readyConn{}, err
	}
	return h.connect(ctx, p, at)
}

// patienceWith returns for how long a dial that failed so is tried again. A daemon that is away comes
// back, when it has been started again or has noticed that its session is dead.
func patienceWith(err error) time.Duration {
	if errors.Is(err, overlay.ErrNoSession) || errors.Is(err, overlay.ErrUnknownSite) {
		return awayPersistence
	}
	return persistence
}

// isTransient reports whether a failure may be transient.
func isTransient(err error) bool {
	if errors.Is(err, errUnanswered) || errors.Is(err, dialwindow.ErrNoSlot) {
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
func (h *Helper) connect(ctx context.Context, p *process, to target) (readyConn, error) {
	if to.point.Node == h.node {
		// Registered from here, but not in the table: this helper was restarted and the process has
		// not sent its hello yet.
		if q := h.here.wait(ctx, to.point.Process); q != nil {
			return h.pair(p, q)
		}
		return readyConn{}, fmt.Errorf("%w: it was on this node, %v, and has not come back", overlay.ErrUnknownProcess, h.node)
	}
	if len(to.plan.Steps) == 0 {
		return readyConn{}, noPath(to)
	}
	return h.follow(ctx, p, to)
}

// follow races the plan's techniques, those that failed recently last, and reports each result to
// the directory.
func (h *Helper) follow(ctx context.Context, p *process, to target) (readyConn, error) {
	fail := func(err error) (readyConn, error) {
		return readyConn{}, fmt.Errorf("at %v: %w", to.point.Node, err)
	}
	t, err := h.enterRace(ctx, to)
	if err != nil {
		return fail(err)
	}
	steps, resorts, tried := to.eligible(t)
	entries := race.LineUp(steps, resorts, t.Winner)
	got, won := race.Run(ctx, h.work.Go, entries, func(ctx context.Context, step overlay.Step) (readyConn, error) {
		return h.attempt(ctx, p, to, step)
	})
	failures, last, learned := h.reportOutcomes(to, entries, got, won)
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
		settle := h.onOutcome(t, p, to, o.Conn.path, o.Took)
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
func (h *Helper) enterRace(ctx context.Context, to target) (*race.Slot, error) {
	if to.ways != overlay.AllWays {
		return new(race.Slot), nil
	}
	return h.paths.Enter(ctx, to.point.Node.Site, to.digest, to.memory.winner)
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
func (h *Helper) onOutcome(t *race.Slot, p *process, to target, path overlay.Path, took time.Duration) func(error) {
	technique, away := path.Technique, to.point.Node.Site != h.node.Site
	return func(err error) {
		if err == nil && away && !path.Small {
			h.sizes.largePassed(to)
		}
		if err == nil && path.Proxy != "" {
			h.relayWorked(p, to, path.Proxy)
		}
		switch {
		case away && !path.Small && errors.Is(err, overlay.ErrTimeout) && !p.relayedElsewhere(to.point.Process.Rank, path.Proxy):
			h.sizes.largeVanished(to, technique, err) // a dial with small packets shows whether the technique is to blame
		case err != nil:
			h.log.Info("path given up", "to", to.point.Process.String(), "node", to.point.Node.String(), "technique", technique.String(), "error", err)
			t.Disproved(technique)
			if path.Proxy != "" {
				err = &proxyError{path.Proxy, err}
			}
			h.report(to, technique, 0, err)
		case technique != to.memory.winner.Technique && to.ways.Techniques() != overlay.RelayOnly: // otherwise it is known already
			h.report(to, technique, took, nil)
		}
	}
}

// reportOutcomes reports to the directory which techniques failed in a race. It returns what
// failed, the last error that says something about a path or else the first of all, and whether
// anything was learned about the paths.
func (h *Helper) reportOutcomes(to target, entries []race.Entry, got []race.Outcome[readyConn], won int) (failures []string, last error, learned bool) {
	for _, o := range got {
		step := entries[o.Entry].Step
		switch {
		case o.Entry == won: // the process reports whether it is of use
		case o.Err != nil && !errors.Is(o.Err, context.Canceled):
			failures = append(failures, fmt.Sprintf("%v: %v", step.Technique, o.Err))
			if isSkipped(o.Err) {
				if last == nil || !isTransient(last) { // another of them may be transient
					last = o.Err
				}
				continue
			}
			last, learned = o.Err, true
			h.report(to, step.Technique, 0, o.Err)
		}
	}
	return failures, last, learned
}

// isSkipped reports whether a technique failed for a reason that says nothing about its path: a
// process or daemon is overloaded, a daemon that had to help is away, or the target process is.
// Such a failure must not be remembered for the technique.
func isSkipped(err error) bool {
	for _, class := range []error{
		overlay.ErrOverloaded, overlay.ErrPortRangeFull, errUnanswered, overlay.ErrNoSession,
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

// report reports the result of a technique to the directory. It must not delay the dial, nor fail
// it.
func (h *Helper) report(to target, t overlay.Technique, took time.Duration, cause error) {
	f, _ := h.uplink.currentFrontal()
	if f == nil {
		return
	}
	h.tell(reporting(f, reportOf(to, t, took, cause)))
}

// reportOf returns the report of the result of a technique.
func reportOf(to target, t overlay.Technique, took time.Duration, cause error) *controlpb.ReportRequest {
	request := &controlpb.ReportRequest{
		Target: control.ProcessToPB(to.point.Process), Generation: uint64(to.point.Generation), Technique: uint32(t),
		TargetSite: string(to.point.Node.Site), Plan: to.digest, SetupUs: uint32(min(took.Microseconds(), 1<<32-1)),
	}
	if cause != nil {
		request.Fault = control.Fault(cause)
	}
	if relayed, is := errors.AsType[*proxyError](cause); is {
		request.Proxy = relayed.proxy
	}
	return request
}

// reportCall reports to the directory that a process of another site has dialled one of this node: the
// network between the sites is there. Where the two ends agree through the frontal it has seen that.
func (h *Helper) reportCall(p *process, path overlay.Path) {
	f, _ := h.uplink.currentFrontal()
	if f == nil || path.Technique.Kind() != overlay.AskerDials || path.Peer.Site == h.node.Site || !h.calling.due(string(path.Peer.Site), time.Now()) {
		return
	}
	h.tell(reporting(f, &controlpb.ReportRequest{
		Target: control.ProcessToPB(p.name), Generation: uint64(p.generation), TargetSite: string(path.Peer.Site), Called: uint32(path.Technique),
	}))
}

// reportTimes says when something was last reported of a site or proxy. One report tells as much as the many of
// all ranks; and who dials names its site itself.
type reportTimes struct {
	mu   sync.Mutex // guards last
	last map[string]time.Time
}

const (
	reportPause    = time.Second // between two reports of one site or proxy
	maxReportTimes = 1024        // sites or proxies; then all are forgotten
)

// due reports whether to report something of a site or proxy now.
func (c *reportTimes) due(name string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, ok := c.last[name]; ok && now.Sub(last) < reportPause {
		return false
	}
	if c.last == nil || len(c.last) >= maxReportTimes {
		c.last = map[string]time.Time{}
	}
	c.last[name] = now
	return true
}

// reportFullNAT reports to the frontal, at most once in fullReportEvery, that the NAT before the site
// lets no new connection through.
func (h *Helper) reportFullNAT(connections int) {
	f, _ := h.uplink.currentFrontal()
	if f == nil {
		return
	}
	now := time.Now()
	if last := h.fullReported.Load(); now.Sub(time.Unix(0, last)) < fullReportEvery || !h.fullReported.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	h.tell(func(ctx context.Context) error {
		_, err := controlpb.NewNodesClient(f.session.Conn()).SessionLimit(ctx, &controlpb.SessionLimitRequest{Connections: uint32(connections)})
		return err
	})
}

// fullReportEvery is shorter than the time for which a frontal remembers a full NAT.
const fullReportEvery = time.Minute

// tell makes a call that tells the frontal something, in the background.
func (h *Helper) tell(call func(context.Context) error) {
	h.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := h.uplink.callBriefly(ctx, func() error { return control.FromStatus(call(ctx)) }); err != nil {
			h.log.Debug("cannot report", "error", err)
		}
	})
}

// reporting returns a call that reports an outcome.
func reporting(f *frontal, request *controlpb.ReportRequest) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := f.directory().Report(ctx, request)
		return err
	}
}
