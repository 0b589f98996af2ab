package submit

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/job/marks"
	"github.com/isthmus-grid/isthmus/internal/job/places"
	"github.com/isthmus-grid/isthmus/internal/job/ranks"
	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Time limits.
const (
	answerTime = 5 * time.Second         // for a host to answer an Ask; the path to it may have to be set up first
	bookTime   = 15 * time.Second        // for all hosts to do so, with others in the place of those that do not
	beginTime  = 20 * time.Second        // for all hosts to start, and to commit or cancel,
	beginEach  = 20 * time.Millisecond   // plus this for each of them, as this machine handles one after the other; leases are renewed meanwhile
	grace      = 2 * time.Second         // from SIGTERM to SIGKILL
	killTime   = 2500 * time.Millisecond // from SIGKILL until unresponsive nodes are given up
	stallTime  = time.Minute             // for a host to accept any part of the files
	partTime   = 2 * time.Second         // for conversations to end after the job has
	askedTime  = 500 * time.Millisecond  // the same, with hosts that have not answered
)

// driver runs one submission and monitors the job. All of it belongs to run's goroutine, except
// what conversations share.
type driver struct {
	job    *Job
	place  *placement
	sub    *reserve.Submission
	grid   *Grid
	sink   *sink
	stdin  *stdin
	events chan event
	talks  map[overlay.NodeID]*conversation
	keys   map[overlay.NodeID]reserve.Key
	cancel context.CancelFunc
	ctx    context.Context // of the conversations
	begun  time.Time
	wg     sync.WaitGroup

	bytes  counter
	stages map[overlay.NodeID]*staging
	phase  reserve.Phase // the phase seen last

	places    []Placed
	outcome   *outcome
	over      map[overlay.NodeID]error // nodes of the plan that will send no more, and why their unreported processes have ended
	broken    map[overlay.NodeID]bool  // nodes that are tried again, or were without success
	lost      map[overlay.NodeID]error // nodes that were lost, and how
	unreached []string                 // nodes that received no request, and why
	dead      []uint32                 // numbers of the replicas that have died
	endedBy   []string                 // why nodes ended processes by themselves

	replaced    replaced
	replacement *replacement // the process that this submission is for; nil: it is the job's first one
	detected    detected

	cause  error     // why the job must end early; nil: it need not
	killAt time.Time // when to send SIGKILL; zero: never, or done
	quitAt time.Time // when to give up waiting for its end
}

// newDriver prepares a submission of the job to the hosts of a placement, which are booked within a time.
func newDriver(g *Grid, j *Job, p *placement, book time.Duration) (*driver, error) {
	d := &driver{
		job: j, place: p, grid: g, stdin: newStdin(), sink: newSink(j.Output, j.FetchTo, p.replicas), events: make(chan event, 64),
		talks: map[overlay.NodeID]*conversation{}, keys: map[overlay.NodeID]reserve.Key{},
		bytes:  counter{of: map[overlay.NodeID]int64{}},
		stages: map[overlay.NodeID]*staging{}, outcome: newOutcome(p.job.Processes(), p.replicas, j.Survive), over: map[overlay.NodeID]error{}, broken: map[overlay.NodeID]bool{}, detected: detected{silent: map[overlay.NodeID]time.Time{}}, lost: map[overlay.NodeID]error{},
	}
	if j.Replace > 0 {
		d.outcome.replaces = d.replaces
	}
	if j.Replace > 0 && d.replicas() > 1 {
		d.outcome.seat, d.outcome.replicated, d.sink.secret = d.sink.seat, true, marks.NewSecret()
	}
	var candidates []reserve.Candidate
	for _, h := range p.hosts {
		var key reserve.Key
		rand.Read(key[:])
		d.keys[h.Node] = key
		candidates = append(candidates, reserve.Candidate{Node: h.Node, Latency: h.Latency, Power: h.Power, Key: key})
	}
	var err error
	d.sub, err = reserve.New(j.Key.ID(), p.job, p.strategy, candidates, reserve.Config{Answer: answerTime, Book: book, Begin: beginBound(len(candidates)), Spares: 2, Queue: j.Queue || j.Wait > 0, Waited: p.waited})
	return d, err
}

// beginBound returns how long the hosts of a job may take to start, for this many candidates.
func beginBound(hosts int) time.Duration {
	return beginTime + time.Duration(hosts)*beginEach
}

// run runs the submission to its end. When it returns, the conversations have ended.
func (d *driver) run(ctx context.Context) (*Result, error) {
	d.ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer d.wg.Wait()
	defer d.cancel()
	defer d.stdin.close()
	d.begun = time.Now()
	d.do(d.sub.Begin(d.begun))
	timer := time.NewTimer(0)
	defer timer.Stop()
	stop := ctx.Done()
	for !d.done() {
		timer.Reset(time.Until(d.next()))
		select {
		case e := <-d.events:
			d.handleEvent(e)
		case s := <-d.job.Signals:
			d.signalled(s)
		case m := <-d.replacement.messages():
			d.sendNodes(m)
		case <-stop:
			stop = nil
			d.stop(context.Cause(ctx))
		case <-timer.C:
			d.checkDeadlines(time.Now())
		}
		d.advance()
	}
	err := d.verdict()
	d.closeAll()
	_, sent, _ := d.bytes.read(overlay.NodeID{})
	r := &Result{Places: d.places, Staged: sent, Hosts: len(d.talks), Sources: d.outcome.sources(d.places, d.broken)}
	d.addReplaced(r)
	d.cancel()
	d.wg.Wait() // no more output and files come
	d.dropFiles(r)
	if d.replacement != nil {
		return r, err
	}
	for _, fault := range d.sink.close() {
		if err == nil {
			err = fault
		} else if d.cause == nil {
			d.progress(Progress{Step: "diverged", Who: fault.Error()})
		}
	}
	return r, err
}

// stop handles that whoever waits for the job does so no longer, or that the process of this submission is given up.
func (d *driver) stop(cause error) {
	if errors.Is(cause, errTakenForDead) && d.sub.Phase() == reserve.Launched {
		for _, p := range d.places {
			d.giveUp(p.Node, cause)
		}
		return
	}
	d.end(fmt.Errorf("the job was ended: %w", cause))
}

// dropFiles drops the files of the hosts that are no rank's source. Where no rank has ended, all
// are kept, to show what went wrong.
func (d *driver) dropFiles(r *Result) {
	if d.job.FetchTo == nil || d.job.Independent || len(d.outcome.well) == 0 {
		return
	}
	used := map[overlay.NodeID]bool{}
	for _, node := range r.Sources {
		used[node] = true
	}
	places := d.places
	if d.replicas() > 1 {
		places = r.Places // with those that came in place of lost replicas
	}
	for _, p := range places {
		if !used[p.Node] {
			d.job.FetchTo.Drop(p.Node)
		}
	}
}

// do sends the messages of the submission.
func (d *driver) do(sends []reserve.Send) {
	for len(sends) > 0 {
		s := sends[0]
		sends = sends[1:]
		c := d.talks[s.To]
		if c == nil {
			ask, ok := s.Message.(reserve.Ask)
			if !ok {
				continue
			}
			d.startConversation(s.To, ask)
			continue
		}
		if cancel, ok := s.Message.(reserve.Cancel); ok && c.hasEnded() {
			sends = append(sends, d.sub.Receive(s.To, reserve.Cancelled(cancel), time.Now())...)
			continue
		}
		c.sendMessage(nodepb.RequestOf(s.Message, d.start(s)))
	}
}

// start returns the job's part of a Start; nil for other messages.
func (d *driver) start(s reserve.Send) *nodepb.Start {
	m, ok := s.Message.(reserve.Start)
	if !ok {
		return nil
	}
	run := m.Processes
	if d.place.ranks != nil {
		run = d.place.ranks[s.To]
	}
	if d.replacement != nil {
		return d.replacement.start(d, s.To)
	}
	return &nodepb.Start{
		JobKey: d.job.Key.String(), Processes: nodepb.ProcessesOf(run), Size: uint32(d.place.job.Ranks), Spares: uint32(d.job.Replace),
		Argv: nodepb.Bytes(d.job.Argv), Environment: nodepb.Bytes(d.environment()), Groups: d.job.groups(), Limits: d.job.Limits, Outputs: nodepb.Bytes(d.job.Fetch),
		Input: d.job.Stdin != nil && d.hasInput(run), Nodes: d.nodes(),
		HangMs: uint32(d.job.Hang.Milliseconds()), Replicas: d.replicas(),
	}
}

// environment returns what the processes get in their environment, the same for all of them.
func (d *driver) environment() []string {
	if d.replacement != nil {
		return d.job.Env
	}
	env := slices.Clone(d.job.environment())
	if d.sink.secret != "" {
		env = append(env, marks.Env+"="+d.sink.secret)
	}
	if d.replicas() > 1 {
		env = append(env, places.Env+"="+places.Text(d.place.nodesOfRanks(d.sub.Plan())))
	}
	return env
}

// replicas returns how many processes of a rank act as one.
func (d *driver) replicas() uint32 {
	if d.job.Independent {
		return 1
	}
	return uint32(d.place.job.Copies)
}

// nodes returns the nodes of the job, which watch each other, and their processes by number:
// replica c of rank k has c*n + k.
func (d *driver) nodes() (all []*nodepb.NodeOfJob) {
	if d.job.Independent && d.place.job.Copies > 1 {
		return nil // the hosts need not learn of deaths
	}
	for _, p := range d.place.processes(d.sub.Plan()) {
		n := &nodepb.NodeOfJob{Node: p.Node.Key()}
		for _, q := range p.Processes {
			n.Ranks = append(n.Ranks, d.number(q))
		}
		slices.Sort(n.Ranks)
		all = append(all, n)
	}
	return all
}

// hasInput reports whether all includes a process that reads the input.
func (d *driver) hasInput(all []allocate.Process) bool {
	return slices.ContainsFunc(all, func(p allocate.Process) bool { return p.Rank == 0 && (p.Copy == 0 || !d.job.Independent) })
}

// startConversation starts the conversation with a node.
func (d *driver) startConversation(node overlay.NodeID, ask reserve.Ask) {
	c := &conversation{
		node: node, key: ask.Key, ask: nodepb.RequestOf(ask, nil), events: d.events, sink: d.sink,
		out: make(chan *nodepb.ToNode, 64), wake: make(chan struct{}, 1), done: make(chan struct{}),
		open: func(ctx context.Context) (stream, error) { return d.grid.Client().Converse(nodeservice.At(ctx, node)) },
	}
	if d.job.Stdin != nil {
		c.feed = &feeder{in: d.stdin, poke: c.poke}
	}
	c.stage = &stager{files: d.job.Files, count: func(missing, sent int64) { d.bytes.add(node, missing, sent) }}
	d.talks[node] = c
	d.wg.Go(func() {
		defer close(c.done)
		c.serve(d.ctx)
	})
}

// handleEvent handles an event of a conversation.
func (d *driver) handleEvent(e event) {
	now, node := time.Now(), e.node()
	switch {
	case e.replacement != nil:
		d.replacementEvent(e)
	case e.unreachable != nil:
		d.unreached = append(d.unreached, fmt.Sprintf("%s: %v", node, e.unreachable))
		d.do(d.sub.Lost(node, now))
		d.conversationEnded(e.from, e.unreachable)
	case e.broken != nil:
		d.broken[node], d.detected.silent[node] = true, now
		d.progress(Progress{Step: "broken", Who: node.String(), Left: retryTime})
	case e.back:
		delete(d.broken, node)
		delete(d.detected.silent, node)
		d.progress(Progress{Step: "back", Who: node.String()})
		d.sendDeaths(e.from)
		d.sendJoined(e.from)
	case e.lost != nil:
		d.conversationEnded(e.from, e.lost)
	case e.staged:
		d.ready(node)
	case e.fault != nil:
		d.failed(e.fault)
	case e.output != nil:
		d.failed(outputError(e.rank(), e.output))
	default:
		d.handleMessage(e.from, e.say, now)
	}
}

// handleMessage handles a message from a node.
func (d *driver) handleMessage(c *conversation, m *nodepb.ToSubmitter, now time.Time) {
	switch say := m.Say.(type) {
	case *nodepb.ToSubmitter_Exited:
		d.ended(d.outcome.exited(c.node, say.Exited))
		d.stopUnneeded()
		d.progress(Progress{Step: "ended", Have: len(d.outcome.ended), Need: d.outcome.need})
	case *nodepb.ToSubmitter_Over:
		d.over[c.node] = errors.New(cmp.Or(string(say.Over.Ended), "the node does not say how it ended"))
		// Short processes may end before all nodes have started; their node is then no longer there
		// to report that it committed.
		d.do(d.sub.Receive(c.node, reserve.Started{Key: c.key}, now))
		d.do(d.sub.Receive(c.node, reserve.Committed{Key: c.key}, now))
		if len(say.Over.Ended) > 0 {
			d.endedBy = append(d.endedBy, fmt.Sprintf("%s ended it: %s", c.node, say.Over.Ended))
		}
		d.markMissing(c.node)
	case *nodepb.ToSubmitter_Fault:
		d.faulty(c, say.Fault, now)
	case *nodepb.ToSubmitter_TakenForDead:
		d.takenForDead(c.node, say.TakenForDead, now)
	default:
		if r := nodepb.MessageOf(c.key, m, d.isOutdated); r != nil {
			d.do(d.sub.Receive(c.node, r, now))
		}
	}
}

// faulty handles a node's fault: before the start another node may take its place.
func (d *driver) faulty(c *conversation, f *nodepb.Fault, now time.Time) {
	why := fmt.Errorf("%s: %s %s", c.node, f.Text, f.Name)
	if d.sub.Phase() == reserve.Planned {
		d.drop(c.node, why, now)
	} else if d.sub.Phase() > reserve.Planned && f.Code != nodepb.Fault_REPLACED {
		d.failed(why)
	}
}

// conversationEnded handles the end of a conversation: the node will answer nothing more.
func (d *driver) conversationEnded(c *conversation, why error) {
	d.lost[c.node] = why
	if d.sub.Phase() < reserve.Launched {
		d.do(d.sub.Receive(c.node, reserve.Refused{Key: c.key, Reason: reserve.Unknown, Text: why.Error()}, time.Now()))
		return
	}
	if d.over[c.node] == nil {
		d.over[c.node] = why
		d.markMissing(c.node)
	}
}

// markMissing counts as lost the processes of a node whose end was not reported, when nothing more
// will be reported.
func (d *driver) markMissing(node overlay.NodeID) {
	if c := d.talks[node]; c != nil && c.feed != nil {
		c.feed.leave()
	}
	for _, p := range d.places {
		if p.Node != node {
			continue
		}
		for _, process := range p.Processes {
			if err := d.sink.ended(process, nil); err != nil {
				d.failed(outputError(process.Rank, err))
			}
			d.ended(d.outcome.lost(node, process, d.over[node]))
		}
	}
}

// ended does what the end of a process requires: it ends the job, or says that a replica has died.
func (d *driver) ended(bad *ranks.ExitError, died *death) {
	if bad != nil {
		d.failed(bad)
	}
	if died != nil && d.cause == nil {
		d.progress(Progress{Step: "died", Who: died.String()})
		d.reportDead(d.number(died.process))
		if died.next > 0 {
			d.replace(died.process, died.next)
		}
	}
}

// reportDead says to all nodes that a process has died.
func (d *driver) reportDead(number uint32) {
	d.dead = append(d.dead, number)
	for _, p := range d.place.processes(d.sub.Plan()) {
		d.sendDeaths(d.talks[p.Node])
	}
	d.replaced.send(deadMessage(d.dead))
}

// sendDeaths says to a node which replicas have died. A process that looks for one of them learns
// it so even where that one died before it had joined the job.
func (d *driver) sendDeaths(c *conversation) {
	if len(d.dead) > 0 && !d.job.Independent && !c.hasEnded() {
		c.sendMessage(deadMessage(d.dead))
	}
}

func deadMessage(dead []uint32) *nodepb.ToNode {
	return &nodepb.ToNode{Say: &nodepb.ToNode_Dead{Dead: &nodepb.Dead{Processes: slices.Clone(dead), Why: "a signal ended it, or its host is lost"}}}
}

// number returns the number of a process: replica c of rank k of n ranks has c*n + k.
func (d *driver) number(p allocate.Process) uint32 { return uint32(p.Copy*d.place.job.Ranks + p.Rank) }

// advance does what the current phase requires.
func (d *driver) advance() {
	phase := d.sub.Phase()
	if phase != d.phase {
		d.phase = phase
		d.entered(phase)
	}
	switch phase {
	case reserve.Booking:
		d.progress(Progress{Step: "booking", Have: d.answered(), Need: len(d.talks)})
	case reserve.Planned:
		d.stageAll()
	}
}

// entered is called once for every phase reached.
func (d *driver) entered(phase reserve.Phase) {
	switch phase {
	case reserve.Starting, reserve.Committing, reserve.Launched:
		if d.places == nil {
			d.places = d.place.processes(d.sub.Plan())
			d.progress(Progress{Step: "starting", Need: d.place.job.Processes(), Who: d.state()})
		}
	}
	if phase == reserve.Launched {
		d.replacement.launched(d)
		d.feed()
		d.progress(Progress{Step: "running", Need: d.place.job.Processes(), Who: d.state()})
		for _, c := range d.talks { // one may have been lost after it had committed
			if d.lost[c.node] != nil {
				d.conversationEnded(c, d.lost[c.node])
			}
		}
		for node := range d.over {
			d.markMissing(node)
		}
	}
}

// answered returns how many hosts have accepted or refused.
func (d *driver) answered() (n int) {
	for _, c := range d.talks {
		c.mu.Lock()
		if c.hold != nil || c.ended {
			n++
		}
		c.mu.Unlock()
	}
	return n
}

// feed starts to send the input to the replicas of rank 0.
func (d *driver) feed() {
	if d.job.Stdin == nil {
		return
	}
	for _, p := range d.places {
		if d.hasInput(p.Processes) {
			d.talks[p.Node].feed.join()
		}
	}
	d.stdin.byLine, d.stdin.wanted = isTerminal(d.job.Stdin), isNull(d.job.Stdin)
	go d.stdin.read(d.job.Stdin) // ends with the input, or with d.stdin
}

// checkDeadlines does what is due.
func (d *driver) checkDeadlines(now time.Time) {
	d.do(d.sub.Tick(now))
	if d.sub.Phase() == reserve.Planned {
		d.stalled(now)
	}
	d.giveUpSilent(now)
	d.giveUpDetected(now)
	if d.replacement == nil && d.cause == nil {
		for _, fault := range d.sink.faults(now) {
			d.progress(Progress{Step: "diverged", Who: fault})
		}
	}
	if !d.killAt.IsZero() && !now.Before(d.killAt) {
		d.killAt = time.Time{}
		d.quitAt = now.Add(killTime)
		d.signal("KILL")
	}
}

// next returns the next deadline.
func (d *driver) next() time.Time {
	next := time.Now().Add(time.Second) // for progress, and for stalls
	for _, t := range []time.Time{d.sub.Next(), d.detected.due, d.killAt, d.quitAt} {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	return next
}

// state lists the sites of the plan.
func (d *driver) state() string {
	sites := map[overlay.SiteID]int{}
	var order []string
	for _, p := range d.places {
		if sites[p.Node.Site]++; sites[p.Node.Site] == 1 {
			order = append(order, string(p.Node.Site))
		}
	}
	if len(order) > 1 {
		return fmt.Sprintf("%d hosts of %d sites: %s", len(d.places), len(order), strings.Join(order, ", "))
	}
	return fmt.Sprintf("%d hosts of %s", len(d.places), strings.Join(order, ""))
}

func (d *driver) progress(p Progress) {
	if d.job.Progress != nil {
		d.job.Progress(p)
	}
}
