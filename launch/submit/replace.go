package submit

// This file replaces lost processes: each by a submission of its own, for one process, whose driver runs in a goroutine of
// the job's. The job's driver owns what is in replaced; it says to the other one what it says to its nodes, and
// hears of it by events.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/gossip"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/overlay"
)

// replaced is the processes of a job that replace lost ones.
type replaced struct {
	ranked  []uint32            // the process, of those that the job began with, in whose place the process with spare number i is
	all     []*replacement      // by the same index
	joined  []*nodepb.NodeOfJob // hosts that have joined for them
	tried   []overlay.NodeID    // hosts at which one was started, whether it ran or not
	running int                 // submissions that have not ended, or not begun
	waiting []*replacement      // those that have not begun

	// books is the one whose process does not run yet, nil for none: the next one begins after that, so that two do not
	// book one host.
	books *replacement
}

// send says a message to the hosts of the replacements.
func (r *replaced) send(m *nodepb.ToNode) {
	for _, one := range r.all {
		if slices.Contains(r.waiting, one) {
			continue // it gets all when it begins
		}
		select {
		case one.out <- m:
		default: // it has ended, or is far behind: its node learns of deaths and hosts from the others
		}
	}
}

// end ends the replacements.
func (r *replaced) end(cause error) {
	for _, one := range r.all {
		one.stop(cause)
	}
}

// A replacement is a process that goes on with the rank of a lost one, and the submission that starts it.
type replacement struct {
	number   int // of the process
	rank     int
	ranked   []uint32            // of all replacements up to this one: replaced.ranked
	ranks    int                 // of the job
	replicas uint32              // of its ranks
	spares   int                 // likewise
	env      []string            // of the job's processes
	nodes    []*nodepb.NodeOfJob // of the job
	out      chan *nodepb.ToNode // what the job's driver says to all nodes
	tell     func(event)         // tells the job's driver
	ctx      context.Context     // of the submission
	stop     context.CancelCauseFunc
	held     []*nodepb.ToNode // said before the process was launched
	at       *Placed          // of the job's driver: where it runs
}

// ending is how a replacement's submission ended.
type ending struct {
	err    error
	noHost bool                     // no host was asked
	tried  []overlay.NodeID         // where the process was started
	lost   map[overlay.NodeID]error // driver.lost
}

// messages returns what the job's driver says; nil for the job's own driver.
func (r *replacement) messages() <-chan *nodepb.ToNode {
	if r == nil {
		return nil
	}
	return r.out
}

// replaces returns the number of the process that is to replace p: outcome.replaces.
func (d *driver) replaces(allocate.Process) (number int, ok bool) {
	used := len(d.replaced.ranked)
	return d.firstSpare() + used, d.cause == nil && d.sub.Phase() < reserve.Cancelling && used < d.job.Replace
}

// firstSpare returns the lowest spare number.
func (d *driver) firstSpare() int { return d.place.job.Ranks * int(d.replicas()) }

// seatOf returns the process that the job began with in whose place a process is.
func (d *driver) seatOf(p allocate.Process) allocate.Process {
	if i := p.Rank - d.firstSpare(); i >= 0 {
		began := int(d.replaced.ranked[i])
		return allocate.Process{Rank: began % d.place.job.Ranks, Copy: began / d.place.job.Ranks}
	}
	return p
}

// replace starts the submission for a process that replaces a lost one.
func (d *driver) replace(lost allocate.Process, number int) {
	seat := d.seatOf(lost)
	d.replaced.ranked = append(d.replaced.ranked, d.number(seat))
	if d.replicas() > 1 {
		d.sink.joins(number, seat)
	}
	ctx, stop := context.WithCancelCause(d.ctx)
	r := &replacement{
		number: number, rank: seat.Rank, replicas: d.replicas(), ranked: slices.Clone(d.replaced.ranked), ranks: d.place.job.Ranks, spares: d.job.Replace, env: d.environment(),
		out: make(chan *nodepb.ToNode, 2*d.job.Replace+64), ctx: ctx, stop: stop,
		tell: func(e event) {
			select {
			case d.events <- e:
			case <-d.ctx.Done():
			}
		},
	}
	d.replaced.all = append(d.replaced.all, r)
	d.replaced.running++
	d.replaced.waiting = append(d.replaced.waiting, r)
	d.bookNext()
}

// bookNext starts the next submission for a replacement, if none is before its launch.
func (d *driver) bookNext() {
	if d.replaced.books != nil || len(d.replaced.waiting) == 0 {
		return
	}
	r := d.replaced.waiting[0]
	d.replaced.books, d.replaced.waiting = r, d.replaced.waiting[1:]
	r.nodes = d.liveNodes()
	r.out <- deadMessage(d.dead) // has room: what the driver has said until now is less
	without, last := d.usedNodes(), d.lastSites(r.rank)
	d.wg.Go(func() {
		defer r.stop(nil)
		r.tell(event{replacement: r, ended: r.run(d.grid, d.job, d.sink, without, last)})
	})
}

// liveNodes returns the nodes of the job that are not known to be lost, with their processes.
func (d *driver) liveNodes() []*nodepb.NodeOfJob {
	return slices.DeleteFunc(append(d.nodes(), d.replaced.joined...), func(n *nodepb.NodeOfJob) bool {
		return !slices.ContainsFunc(n.Ranks, func(p uint32) bool { return !slices.Contains(d.dead, p) })
	})
}

// usedNodes returns the nodes that run, or ran, processes of the job, or were to do so: no other process is started there.
func (d *driver) usedNodes() []overlay.NodeID {
	all := slices.Clone(d.replaced.tried)
	for _, p := range d.places {
		all = append(all, p.Node)
	}
	for _, r := range d.replaced.all {
		if r.at != nil {
			all = append(all, r.at.Node)
		}
	}
	return all
}

// lastSites returns the sites whose hosts are asked last for a process in the place of rank: those at which other replicas of it run,
// and those of which the driver has lost hosts and reaches none of the job. All of such a site may be lost, also hosts that are listed still.
func (d *driver) lastSites(rank int) (sites []overlay.SiteID) {
	for _, n := range d.liveNodes() {
		of := func(p uint32) bool {
			began := p
			if i := int(p) - d.firstSpare(); i >= 0 {
				began = d.replaced.ranked[i]
			}
			return int(began)%d.place.job.Ranks == rank && !slices.Contains(d.dead, p)
		}
		if node, err := overlay.ParseNodeID(n.Node); d.replicas() > 1 && err == nil && slices.ContainsFunc(n.Ranks, of) {
			sites = append(sites, node.Site)
		}
	}
	for _, node := range slices.AppendSeq(slices.Collect(maps.Keys(d.lost)), maps.Keys(d.broken)) {
		reached := func(p Placed) bool { return p.Node.Site == node.Site && d.over[p.Node] == nil && !d.broken[p.Node] }
		if !slices.ContainsFunc(d.places, reached) {
			sites = append(sites, node.Site)
		}
	}
	return sites
}

// job returns the job of the replacement alone.
func (r *replacement) job(of *Job, without []overlay.NodeID) *Job {
	j := *of
	j.Place = allocate.Job{Ranks: 1, Copies: 1, Memory: of.Place.Memory, CPU: of.Place.CPU}
	j.Strategy, j.Hosts, j.PinRank0, j.Replace, j.Survive = "", nil, false, 0, false
	j.Stdin, j.Signals, j.Progress, j.Env = nil, nil, nil, r.env
	for _, h := range of.Hosts {
		if h.Ranks == 0 && !slices.Contains(without, h.Node) { // these are the only candidates
			j.Hosts = append(j.Hosts, h)
		}
	}
	return &j
}

// run books a host, starts the process there and returns how it ended. Hosts of the sites in last are asked after all others.
func (r *replacement) run(g *Grid, of *Job, out *sink, without []overlay.NodeID, last []overlay.SiteID) *ending {
	j := r.job(of, without)
	how := &ending{lost: map[overlay.NodeID]error{}}
	for until := time.Now().Add(j.Wait); ; {
		how.err = r.attempt(g, j, out, without, last, how)
		if how.err == nil || !later(how.err) {
			return how
		}
		if !time.Now().Before(until) || wait(r.ctx, j, how.err, nil, until) != nil {
			how.noHost, how.err = true, fmt.Errorf("no other host for process %d, which is to replace a lost one of rank %d: %w", r.number, r.rank, how.err)
			return how
		}
	}
}

// attempt makes one submission, and adds to how what became of hosts.
func (r *replacement) attempt(g *Grid, j *Job, out *sink, without []overlay.NodeID, last []overlay.SiteID, how *ending) error {
	p, err := find(r.ctx, g, j, without)
	if err != nil {
		return err
	}
	p.number = r.number
	isLast := func(h Host) bool { return slices.Contains(last, h.Node.Site) }
	first := slices.DeleteFunc(slices.Clone(p.hosts), isLast)
	p.hosts = append(first, slices.DeleteFunc(p.hosts, func(h Host) bool { return !isLast(h) })...)
	d, err := newDriver(g, j, p, bookTime)
	if err != nil {
		return err
	}
	d.sink, d.replacement = out, r
	_, err = d.run(r.ctx)
	maps.Copy(how.lost, d.lost)
	for _, p := range d.places {
		how.tried = append(how.tried, p.Node)
	}
	return err
}

// start returns the Start of the replacement on a node.
func (r *replacement) start(d *driver, at overlay.NodeID) *nodepb.Start {
	here := &nodepb.NodeOfJob{Node: at.Key(), Ranks: []uint32{uint32(r.number)}}
	return &nodepb.Start{
		JobKey: d.job.Key.String(), Processes: []*nodepb.Process{{Rank: uint32(r.number)}}, Size: uint32(r.ranks),
		Spares: uint32(r.spares), Replacements: r.ranked,
		Argv: nodepb.Bytes(d.job.Argv), Environment: nodepb.Bytes(d.environment()), Groups: d.job.groups(), Limits: d.job.Limits, Outputs: nodepb.Bytes(d.job.Fetch),
		Nodes: append(slices.Clone(r.nodes), here), HangMs: uint32(d.job.Hang.Milliseconds()), Replicas: r.replicas,
	}
}

// launched says to the replacement's node what was said before it could take it, and to the job's driver where the process runs.
func (r *replacement) launched(d *driver) {
	if r == nil {
		return
	}
	at := d.places[0]
	for _, m := range r.held {
		d.talks[at.Node].sendMessage(m)
	}
	r.held = nil
	r.tell(event{replacement: r, at: &at})
}

// sendNodes says to the replacement's node what the job's driver says to all.
func (d *driver) sendNodes(m *nodepb.ToNode) {
	if d.sub.Phase() != reserve.Launched || d.places == nil {
		d.replacement.held = append(d.replacement.held, m)
		return
	}
	for _, p := range d.places {
		d.talks[p.Node].sendMessage(m)
	}
}

// replacementEvent handles what a replacement's submission says.
func (d *driver) replacementEvent(e event) {
	r := e.replacement
	if e.dead != nil {
		d.detected.report(e.dead.by, e.dead.dead, time.Now())
		return
	}
	if e.at != nil {
		r.at = e.at
		d.outcome.joined[r.rank]++
		d.replaced.books = nil
		defer d.bookNext()
		d.progress(Progress{Step: "joined", Who: fmt.Sprintf("process %d goes on with rank %d at %s", r.number, r.rank, r.at.Node)})
		d.replaced.joined = append(d.replaced.joined, &nodepb.NodeOfJob{Node: r.at.Node.Key(), Ranks: []uint32{uint32(r.number)}})
		for _, p := range d.places {
			d.sendJoined(d.talks[p.Node])
		}
		d.replaced.send(joinMessage(d.replaced.joined[len(d.replaced.joined)-1]))
		return
	}
	d.replaced.running--
	d.replaced.tried = append(d.replaced.tried, e.ended.tried...)
	maps.Copy(d.lost, e.ended.lost)
	if d.replaced.books == r {
		d.replaced.books = nil
	}
	d.replacementEnded(r, e.ended)
	d.bookNext()
}

// replacementEnded handles the end of a replacement as that of a process. One that did not start is lost, too:
// its number may be in use, and another one is tried.
func (d *driver) replacementEnded(r *replacement, how *ending) {
	process := allocate.Process{Rank: r.number}
	defer d.stopUnneeded()
	if err := d.sink.ended(process, nil); err != nil { // also of one that nobody has heard of since it was to start
		d.failed(outputError(r.rank, err))
	}
	if how.noHost && d.replicas() > 1 {
		if d.cause == nil && context.Cause(r.ctx) != errUnneeded {
			d.progress(Progress{Step: "died", Who: how.err.Error() + "; the job goes on without it"})
		}
		return
	}
	d.outcome.ended[process] = true
	if how.err == nil {
		d.outcome.well[process] = true
		return
	}
	if how.noHost {
		d.failed(how.err)
		return
	}
	if context.Cause(r.ctx) == errUnneeded {
		return
	}
	if r.at == nil { // so that it counts as one that is lost
		d.outcome.joined[r.rank]++
	}
	end := lostError(how.err)
	var exit *ranks.ExitError
	if errors.As(how.err, &exit) {
		end = &ranks.ExitError{Status: exit.Status, Killed: exit.Killed, Err: exit.Err}
	}
	bad, died := d.outcome.bad(process, end)
	if bad != nil && d.replicas() == 1 {
		bad.Rank, bad.Err = r.rank, fmt.Errorf("process %d, which replaced a lost one: %w", r.number, bad.Err)
	}
	d.ended(bad, died)
}

// errUnneeded is why a process is ended that came in place of a lost replica, or was to.
var errUnneeded = errors.New("all ranks have ended")

// stopUnneeded ends the processes that came in place of lost replicas, or are to come, once each rank has ended well in
// another one: then all replicas that take part have come to the end of the program, and nobody is there to admit one.
func (d *driver) stopUnneeded() {
	if d.replicas() == 1 || d.replaced.running == 0 {
		return
	}
	for rank := range d.place.job.Ranks {
		if !d.outcome.endedWell(rank) {
			return
		}
	}
	d.replaced.end(errUnneeded)
}

// sendJoined says to a node which hosts have joined.
func (d *driver) sendJoined(c *conversation) {
	if c.hasEnded() {
		return
	}
	for _, n := range d.replaced.joined {
		c.sendMessage(joinMessage(n))
	}
}

func joinMessage(n *nodepb.NodeOfJob) *nodepb.ToNode {
	return &nodepb.ToNode{Say: &nodepb.ToNode_Join{Join: &nodepb.Join{Node: n}}}
}

// isOutdated reports whether a node lacks what the job needs.
func (d *driver) isOutdated(ok *nodepb.OK) bool {
	rejoins := d.job.Replace > 0 && d.replicas() > 1 || d.replacement != nil && d.replacement.replicas > 1
	return d.replicas() > 1 && !ok.Replicas || rejoins && !ok.Newcomers || (d.job.Replace > 0 || d.replacement != nil) && !(ok.Spares && ok.Detects)
}

// giveUpSilent takes the processes of nodes for lost that have been silent for as long as the job's hosts give each
// other, if they can be replaced: it does not wait until the nodes have ended them. What a
// node does that returns nevertheless is ended there. A node that is to run a process in the place of a lost one is given up sooner
// while that process does not run: it costs a number, and all others wait for it.
func (d *driver) giveUpSilent(now time.Time) {
	phase := d.sub.Phase()
	if phase > reserve.Launched || d.replacement == nil && (phase < reserve.Launched || d.job.Replace == 0) {
		return
	}
	hosts := len(d.places) + len(d.replaced.joined)
	if d.replacement != nil {
		hosts = len(d.replacement.nodes) + 1
	}
	bound := gossip.Config{Hang: d.job.Hang}.Bound(hosts)
	if phase < reserve.Launched {
		bound = min(bound, answerTime)
	}
	for node, since := range d.detected.silent {
		if now.Sub(since) < bound {
			continue
		}
		why := fmt.Errorf("no answer for %v", bound)
		if phase == reserve.Launched {
			d.giveUp(node, why)
			continue
		}
		delete(d.detected.silent, node)
		delete(d.stages, node)
		d.talks[node].abandon()
		d.conversationEnded(d.talks[node], why)
	}
}

// addReplaced enters the replacements into the job's result.
func (d *driver) addReplaced(r *Result) {
	for _, one := range d.replaced.all {
		if one.at != nil {
			r.Places = append(r.Places, *one.at)
			if d.replicas() == 1 || d.outcome.well[allocate.Process{Rank: one.number}] && !d.outcome.endedWellAt(d.places, one.rank, r.Sources[one.rank]) {
				r.Sources[one.rank] = one.at.Node
			}
		}
	}
}
