package debug

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/mpi"
	"github.com/isthmus-grid/isthmus/mpilib/internal/waitfor"
)

// This file finds ranks that wait for each other. A rank that has done nothing for a while,
// although its goroutines wait for others, reports that at every tick to the first live rank, which
// decides (package waitfor).

// deadlocks is the Watcher's state about waiting ranks; its mu guards it.
type deadlocks struct {
	acts       uint64 // state of the Watcher at the last tick
	active     time.Time
	reports    map[int]datedReport // at the deciding rank
	found      []int               // found at the last tick
	times      int                 // in a row
	lastReport string              // the last reported deadlock
}

type datedReport struct {
	report waitfor.Report
	at     time.Time
}

func (d *deadlocks) init() { d.active, d.reports = time.Now(), map[int]datedReport{} }

// ticksOfPatience is the number of a Watcher's checks within its patience.
const ticksOfPatience = 5

// checkWaits checks for waiting goroutines until ctx ends.
func (w *Watcher) checkWaits(ctx context.Context) {
	every := w.cfg.Patience / ticksOfPatience
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		w.recheck()
		if !w.enabled(Deadlocks) {
			continue
		}
		if r, stuck := w.stuck(time.Now()); stuck {
			w.sendWaits(r)
		}
		w.decide(time.Now(), every)
	}
}

// sendWaits sends the report to the first live rank, which may be this one.
func (w *Watcher) sendWaits(r waitfor.Report) {
	for rank := range w.cfg.Engine.Size() {
		if w.send(rank, note{Kind: noteStuck, Stuck: &r}) == nil {
			return
		}
	}
}

// maxCalls bounds the communicators whose calls a report lists. A rank with more does not report.
const maxCalls = 8192

// stuck returns what this rank waits for, if it has done nothing for a long time and no data moves.
func (w *Watcher) stuck(now time.Time) (r waitfor.Report, stuck bool) {
	moving := w.hasBytesInTransit()
	w.mu.Lock()
	defer w.mu.Unlock()
	d := &w.deadlock
	if acts := w.acts.Load(); acts != d.acts || moving {
		d.acts, d.active = acts, now
	}
	if len(w.waits) == 0 && !w.audit.waiting || now.Sub(d.active) < w.cfg.Patience || len(w.comms) > maxCalls {
		return r, false
	}
	r = waitfor.Report{Rank: w.cfg.Engine.Rank(), Finalizing: w.audit.waiting, Calls: map[uint32]int32{}}
	if place := w.cfg.Here(); place.Name != "" {
		r.Node = place.String()
	}
	if w.audit.waiting {
		r.Waits = append(r.Waits, waitfor.Wait{Text: "Finalize", Site: w.audit.call.line, Seconds: now.Sub(w.audit.since).Seconds()})
	}
	for x := range w.waits {
		if !x.blocked() {
			return r, false
		}
		r.Waits = append(r.Waits, w.describe(x, now))
	}
	slices.SortFunc(r.Waits, func(a, b waitfor.Wait) int { return int(b.Seconds*1e3) - int(a.Seconds*1e3) })
	for id, c := range w.comms {
		if calls := c.comm.Calls(); calls > 0 {
			r.Calls[id] = calls
		}
	}
	return r, true
}

// hasBytesInTransit reports whether bytes of this rank are in transit.
func (w *Watcher) hasBytesInTransit() bool {
	for _, l := range w.cfg.Engine.Links() {
		for _, c := range l.Link.Carriers() {
			if c.InFlight > 0 {
				return true
			}
		}
	}
	return false
}

// blocked reports whether only another process of this world can end the wait.
func (x *waiting) blocked() bool {
	return !x.elsewhere && !slices.ContainsFunc(x.requests, func(r Request) bool { return !r.Handle().Unmatched() })
}

// describe returns a text for what is waited for.
func (w *Watcher) describe(x *waiting, now time.Time) waitfor.Wait {
	out := waitfor.Wait{Site: x.call.line, Seconds: now.Sub(x.since).Seconds()}
	switch {
	case x.coll != nil:
		c := x.coll.comm
		out.Collective, out.Context, out.Call = true, x.coll.key.Context, x.coll.key.Call
		out.Text = fmt.Sprintf("%s on %s, until all ranks call it", x.call.name, c.Name())
		if x.coll.alone {
			out.Text = fmt.Sprintf("%s of %s, until all ranks call it", x.call.name, x.what()) + x.coll.call.At()
		}
		out.Peers = slices.Collect(c.Group.WorldRanks())
	case x.probe != nil:
		out.Text = x.call.name + ": " + x.what()
		out.Peers = w.peers(*x.probe)
	default:
		out.Text = x.call.name + ": " + x.what()
		if started := x.requests[0].Observation().Line(); started != "" && started != " ("+x.call.line+")" {
			out.Text += started
		}
		for _, r := range x.requests {
			out.Peers = append(out.Peers, w.peers(r.Transfer())...)
		}
	}
	return out
}

// peers returns the world ranks any of which can complete the transfer.
func (w *Watcher) peers(t comm.Transfer) []int {
	if t.Call != "" {
		self := w.cfg.Engine.Rank()
		return slices.DeleteFunc(slices.Collect(t.Comm.AllMembers().WorldRanks()), func(r int) bool { return r == self })
	}
	if t.Peer != mpi.AnySource {
		return []int{t.Comm.Global(t.Peer)}
	}
	return slices.Collect(t.Comm.Peers.WorldRanks())
}

// collect handles a rank's report of its waits.
func (w *Watcher) collect(r waitfor.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadlock.reports[r.Rank] = datedReport{r, time.Now()}
}

// steady is how many times in a row a deadlock must be found: reports may cross data in transit,
// and ranks report at different times.
const steady = 3

// decide looks for a deadlock in the reports, and reports it once.
func (w *Watcher) decide(now time.Time, every time.Duration) {
	w.mu.Lock()
	d := &w.deadlock
	reports := map[int]waitfor.Report{}
	for rank, s := range d.reports {
		if now.Sub(s.at) > 3*every {
			delete(d.reports, rank) // it continues, or has left
			continue
		}
		reports[rank] = s.report
	}
	found := waitfor.Deadlocked(maps.Clone(reports))
	if d.times++; !slices.Equal(found, d.found) {
		d.found, d.times = found, 1
	}
	if found == nil || d.times < steady {
		w.mu.Unlock()
		return
	}
	what := signatureOf(reports, waitfor.Cycle(reports, found)) // others may still begin to wait for these
	if what == d.lastReport {
		w.mu.Unlock()
		return
	}
	d.lastReport = what
	w.mu.Unlock()
	w.report("deadlock: %s can never go on; nothing has moved for %v\n%s", ranksText(found), w.cfg.Patience, waitfor.Describe(reports, found))
}

// signatureOf identifies a deadlock, regardless of its age.
func signatureOf(reports map[int]waitfor.Report, ranks []int) string {
	s := ""
	for _, rank := range ranks {
		for _, wait := range reports[rank].Waits {
			s += fmt.Sprintf("%d %s %s\n", rank, wait.Text, wait.Site)
		}
	}
	return s
}
