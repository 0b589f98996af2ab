package reserve

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Candidate is a host that a submitter may book.
type Candidate struct {
	Node    overlay.NodeID
	Latency time.Duration // as in allocate.Host
	Power   float64       // as there
	Key     Key           // fresh
}

// Config holds the time limits of a submitter. A zero field has its default.
type Config struct {
	Answer time.Duration // how long a host may take to answer an Ask before it counts as dead; 2 s
	Resend time.Duration // from a Renew, Start, Commit or Cancel without an answer to the next; 500 ms
	Book   time.Duration // how long all hosts may take to answer Asks, those asked later included; 0: not bounded
	Begin  time.Duration // how long all hosts may take to start, and then to commit or cancel; 10 s
	Spares int           // unused hosts to keep until Start, as replacements after Drop

	Queue  bool          // hosts without room hear that the job waits for it
	Waited time.Duration // how long it has done so
}

func (c Config) withDefaults() Config {
	c.Answer = cmp.Or(c.Answer, 2*time.Second)
	c.Resend = cmp.Or(c.Resend, 500*time.Millisecond)
	c.Begin = cmp.Or(c.Begin, 10*time.Second)
	return c
}

// longestLease bounds the lease that a submitter accepts.
const longestLease = time.Hour

// Phase is the phase of a Submission.
type Phase int

// The phases of a Submission.
const (
	Booking    Phase = iota // hosts are asked: steps 2 to 5
	Planned                 // enough hosts are held, and Plan has the placement; the caller stages files and calls Start
	Starting                // Start is sent to the hosts: steps 6 to 8
	Committing              // all have started, and are sent Commit
	Launched                // all have committed: the job runs
	Cancelling              // it failed; hosts are sent Cancel
	Failed                  // the cancellation is complete; Err has the reason
)

// String returns the phase's name.
func (p Phase) String() string {
	return [...]string{"booking", "planned", "starting", "committing", "launched", "cancelling", "failed"}[p]
}

// ErrCancelled is the error of a submission that its user cancelled.
var ErrCancelled = errors.New("cancelled")

// Send is a message to a node.
type Send struct {
	To      overlay.NodeID
	Message Message
}

// step is the state of a submitter's exchange with one host.
type step int

const (
	idle      step = iota // not asked
	asked                 // Ask was sent
	held                  // OK was received
	starting              // Start was sent
	started               // Started was received; Commit may have been sent
	committed             // Committed was received
	leaving               // Cancel was sent
	left                  // no reservation remains, or the node will end it by itself
)

// peer is the submitter's state for one host.
type peer struct {
	Candidate
	step      step
	hold      Hold
	processes int           // granted
	lease     time.Duration // its lease
	until     time.Time     // of held: when the lease expires, counted conservatively; of leaving: when to give up
	renewed   time.Time     // of held: first Renew without an answer; zero: none
	sent      time.Time     // time of the last message without an answer, or of the OK
	nok       Reason        // why it refused; "": it did not
	why       string        // likewise, in its words
	silent    bool          // it did not answer the Ask
	deaf      bool          // it did not answer Cancel
}

// Submission starts one job on hosts, or leaves them unchanged.
//
//	Booking --> Planned --Start--> Starting --> Committing --> Launched
//	   |    <--Drop--'                |              |             |
//	   +---------------- Cancel, or anything failed -+-------------+
//	                              v
//	                         Cancelling --> Failed
type Submission struct {
	cfg      Config
	job      allocate.Job
	id       overlay.JobID
	strategy allocate.Strategy
	peers    []*peer
	at       map[overlay.NodeID]*peer
	phase    Phase
	plan     *allocate.Plan // read-only once made
	wave     int            // how many peers were asked
	bookEnd  time.Time      // of Booking, when no more hosts are asked; zero: never
	deadline time.Time      // of Starting and Committing
	err      error
	out      []Send // output of the call in progress
}

// New returns a Submission of the job to candidates, which must be in the order in which to book
// them: nearest first. job.Home, if set, is one of them. It sends nothing before Begin.
func New(id overlay.JobID, job allocate.Job, strategy allocate.Strategy, candidates []Candidate, cfg Config) (*Submission, error) {
	if err := job.Check(); err != nil {
		return nil, err
	}
	s := &Submission{cfg: cfg.withDefaults(), job: job, id: id, strategy: strategy, at: map[overlay.NodeID]*peer{}}
	keys := map[Key]bool{{}: true}
	for _, c := range candidates {
		if s.at[c.Node] != nil {
			return nil, fmt.Errorf("%s is a candidate twice", c.Node)
		}
		if keys[c.Key] {
			return nil, fmt.Errorf("the key for %s is empty or another's, too", c.Node)
		}
		keys[c.Key] = true
		p := &peer{Candidate: c}
		s.peers = append(s.peers, p)
		s.at[c.Node] = p
	}
	return s, nil
}

// Begin asks the first hosts: as many as allocate.Book returns, or all. More are asked later when
// these do not suffice.
func (s *Submission) Begin(now time.Time) []Send {
	s.askMore(now)
	s.settle(now)
	return s.flush()
}

// Phase returns the current phase.
func (s *Submission) Phase() Phase { return s.phase }

// Err returns why the submission failed; nil if it has not.
func (s *Submission) Err() error { return s.err }

// Plan returns which processes run where; nil before Planned. Drop may change it; it is final after
// Start. The caller must not modify it.
func (s *Submission) Plan() *allocate.Plan { return s.plan }

// Dead returns the hosts that did not answer: step 5. Hosts that answered NOK are not dead.
func (s *Submission) Dead() []overlay.NodeID {
	var dead []overlay.NodeID
	for _, p := range s.peers {
		if p.silent {
			dead = append(dead, p.Node)
		}
	}
	return dead
}

// Refusals returns the reasons of the hosts that answered NOK.
func (s *Submission) Refusals() map[overlay.NodeID]Reason {
	all := map[overlay.NodeID]Reason{}
	for _, p := range s.peers {
		if p.nok != "" {
			all[p.Node] = p.nok
		}
	}
	return all
}

// Receive handles a message from a node, which the connection authenticates, and returns the
// messages to send. It ignores messages that are late or invalid.
func (s *Submission) Receive(from overlay.NodeID, m Message, now time.Time) []Send {
	p := s.at[from]
	if p == nil || m == nil || m.reservation() != p.Key {
		return nil
	}
	switch m := m.(type) {
	case OK:
		s.ok(p, m, now)
	case NOK:
		if p.step == asked || p.silent {
			p.step, p.nok, p.why, p.silent = left, m.Reason, m.Text, false
		}
	case Started:
		if p.step == starting {
			p.step = started
		}
	case Committed:
		if p.step == started {
			p.step = committed
		}
	case Cancelled:
		if p.step == leaving {
			p.step = left
		}
	case Refused:
		s.refused(p, m, now)
	}
	s.settle(now)
	return s.flush()
}

func (s *Submission) ok(p *peer, m OK, now time.Time) {
	switch {
	case p.step == asked && (m.Processes < 1 || m.Lease <= 0):
		p.nok = Invalid
		s.leave(p, now)
	case p.step == asked && m.Outdated:
		p.nok = Outdated
		s.leave(p, now)
	case p.step == asked && s.phase != Booking:
		s.leave(p, now) // too late
	case p.step == asked:
		p.step, p.silent, p.hold = held, false, m.Hold
		p.processes = m.Processes
		p.lease = min(m.Lease, longestLease)
		p.until = p.sent.Add(p.lease)
		p.sent = now
	case p.step == held && !p.renewed.IsZero() && m.Hold == p.hold:
		// If this is an older, delayed OK, the lease expires sooner than assumed here, and Start is
		// refused.
		p.lease = min(m.Lease, longestLease)
		p.until = p.renewed.Add(p.lease)
		p.renewed, p.sent = time.Time{}, now
	case p.silent:
		// It was given up before it answered. It is alive, and may not have received Cancel.
		p.silent = false
		s.leave(p, now)
	}
}

// refused handles the answer of a host that no longer has the reservation.
func (s *Submission) refused(p *peer, m Refused, now time.Time) {
	why := fmt.Errorf("%s refuses: %s (%.200s)", p.Node, m.Reason, m.Text)
	switch p.step {
	case held:
		p.step, p.nok = left, m.Reason
		s.lost(p)
	case starting, started:
		s.fail(fmt.Errorf("job %s does not start: %w", s.id, why), now)
	case leaving:
		p.step = left
	}
}

// Lost reports that a node is unreachable: it will not answer the pending Ask. It has the effect of
// the timeout, only sooner.
func (s *Submission) Lost(node overlay.NodeID, now time.Time) []Send {
	if p := s.at[node]; p != nil && p.step == asked {
		s.giveUp(p, now)
		s.settle(now)
	}
	return s.flush()
}

// Drop removes a host from the plan before Start, for instance because files cannot be staged
// there. The plan is made anew from the hosts that are held and others that are then asked.
func (s *Submission) Drop(node overlay.NodeID, now time.Time) []Send {
	p := s.at[node]
	if p == nil || s.phase > Planned || p.step != held {
		return nil
	}
	s.leave(p, now)
	s.lost(p)
	s.settle(now)
	return s.flush()
}

// Start tells the hosts of the plan what to run, and cancels the others. It does nothing unless the
// phase is Planned.
func (s *Submission) Start(now time.Time) []Send {
	if s.phase != Planned {
		return nil
	}
	s.phase, s.deadline = Starting, now.Add(s.cfg.Begin)
	for _, h := range s.plan.Hosts {
		p := s.at[h.Node]
		if len(h.Processes) > 0 {
			p.step = starting
			s.send(p, Start{p.Key, p.hold, h.Processes}, now)
		}
	}
	for _, p := range s.peers {
		if p.step == held {
			s.leave(p, now)
		}
	}
	s.settle(now)
	return s.flush()
}

// Cancel ends the submission, and the job if it is already running.
func (s *Submission) Cancel(now time.Time) []Send {
	s.fail(fmt.Errorf("job %s: %w", s.id, ErrCancelled), now)
	return s.flush()
}

// giveUp treats a host as dead: step 5. Its answer may be in flight, so it is sent Cancel.
func (s *Submission) giveUp(p *peer, now time.Time) {
	p.silent = true
	p.step = left
	s.send(p, Cancel{p.Key}, now)
}

// leave cancels the reservation at a host.
func (s *Submission) leave(p *peer, now time.Time) {
	p.step, p.until = leaving, now.Add(s.cfg.Begin)
	s.send(p, Cancel{p.Key}, now)
}

// lost is called when a host no longer holds its reservation: if the plan uses it, another host is
// needed.
func (s *Submission) lost(p *peer) {
	if s.phase != Planned {
		return
	}
	for _, h := range s.plan.Hosts {
		if h.Node == p.Node && len(h.Processes) > 0 {
			s.phase, s.plan, s.bookEnd = Booking, nil, time.Time{}
			return
		}
	}
}

// fail cancels the reservations at all hosts.
func (s *Submission) fail(err error, now time.Time) {
	if s.phase >= Cancelling {
		return
	}
	s.err, s.phase, s.deadline = err, Cancelling, time.Time{}
	for _, p := range s.peers {
		if p.step > idle && p.step < leaving {
			s.leave(p, now)
		}
	}
	s.settle(now)
}

// settle enters the next phase when its conditions are met.
func (s *Submission) settle(now time.Time) {
	switch s.phase {
	case Booking:
		s.book(now)
	case Starting:
		if s.noPeerIn(starting) {
			s.phase, s.deadline = Committing, now.Add(s.cfg.Begin)
			for _, p := range s.peers {
				if p.step == started {
					s.send(p, Commit{p.Key, p.hold}, now)
				}
			}
		}
	case Committing:
		if s.noPeerIn(started) {
			s.phase, s.deadline = Launched, time.Time{}
		}
	case Cancelling:
		if s.noPeerIn(leaving) {
			s.phase = Failed
			deaf := func(p *peer) bool { return p.deaf }
			if slices.ContainsFunc(s.peers, deaf) {
				s.err = fmt.Errorf("%w (%s did not hear of it)", s.err, s.listPeers(deaf))
			}
		}
	}
}

func (s *Submission) noPeerIn(of step) bool {
	return !slices.ContainsFunc(s.peers, func(p *peer) bool { return p.step == of })
}

// book is step 6: it makes a plan as soon as no pending answer could change it, asks more hosts
// when all answers have arrived and do not suffice, and fails when there are no more.
func (s *Submission) book(now time.Time) {
	if s.cfg.Book > 0 && s.bookEnd.IsZero() {
		s.bookEnd = now.Add(s.cfg.Book)
	}
	for s.phase == Booking {
		offers, waiting := s.offers()
		if waiting && !allocate.Settled(s.job, offers, s.strategy) {
			return
		}
		plan, err := allocate.Allocate(s.job, offers, s.strategy)
		switch {
		case err == nil:
			s.plan, s.phase = plan, Planned
			s.letGo(now)
		case s.wave < len(s.peers) && !s.bookingOver(now):
			s.askMore(now)
		default:
			s.fail(fmt.Errorf("job %s: %s: %w", s.id, s.summary(), err), now)
		}
	}
}

// bookingOver reports whether the time for booking is over.
func (s *Submission) bookingOver(now time.Time) bool {
	return s.phase == Booking && !s.bookEnd.IsZero() && !now.Before(s.bookEnd)
}

// offers returns the held hosts, in the order of the candidates, up to the first host whose answer
// is pending, and whether there is one.
func (s *Submission) offers() (offers []allocate.Host, waiting bool) {
	for _, p := range s.peers {
		switch p.step {
		case asked:
			return offers, true
		case held:
			// The node has counted its jobs, memory and CPU when it granted these.
			offers = append(offers, allocate.Host{Node: p.Node, Latency: p.Latency, Power: p.Power, Processes: p.processes, Jobs: 1})
		}
	}
	return offers, false
}

// askMore asks as many further hosts as the job may need.
func (s *Submission) askMore(now time.Time) {
	end := min(s.wave+allocate.Book(s.job.Ranks, s.job.Copies), len(s.peers))
	for _, p := range s.peers[s.wave:end] {
		p.step = asked
		s.send(p, Ask{Key: p.Key, Job: s.id, Processes: s.job.Ranks, Memory: s.job.Memory, CPU: s.job.CPU, Queue: s.cfg.Queue, Waited: s.cfg.Waited}, now)
	}
	s.wave = end
}

// letGo keeps the hosts of the plan and a few spares, nearest first, and cancels the others.
func (s *Submission) letGo(now time.Time) {
	spares := s.cfg.Spares
	used := map[overlay.NodeID]bool{}
	for _, h := range s.plan.Used() {
		used[h.Node] = true
	}
	for _, p := range s.peers {
		if p.step != held || used[p.Node] {
			continue
		}
		if spares--; spares < 0 {
			s.leave(p, now)
		}
	}
}

func (s *Submission) send(p *peer, m Message, now time.Time) {
	p.sent = now
	s.out = append(s.out, Send{p.Node, m})
}

func (s *Submission) flush() []Send {
	out := s.out
	s.out = nil
	return out
}

// summary counts the outcomes at the hosts that were asked, with the words of the first that gave a reason.
func (s *Submission) summary() string {
	booked, dead, nok, words := 0, 0, map[Reason]int{}, map[Reason]string{}
	for _, p := range s.peers {
		switch {
		case p.silent:
			dead++
		case p.nok != "":
			if nok[p.nok]++; p.why != "" && words[p.nok] == "" {
				words[p.nok] = fmt.Sprintf(" (%s: %s)", p.Node, p.why)
			}
		case p.step == held:
			booked++
		}
	}
	parts := []string{fmt.Sprintf("%d of %d hosts booked", booked, s.wave), fmt.Sprintf("%d did not answer", dead)}
	for _, reason := range slices.Sorted(maps.Keys(nok)) {
		switch n := nok[reason]; reason {
		case Outdated:
			parts = append(parts, fmt.Sprintf("%d with a helper that is too old for what the job needs: upgrade it, or omit --replicas or --replace", n))
		default:
			parts = append(parts, fmt.Sprintf("%d said %s%s", n, reason, words[reason]))
		}
	}
	return strings.Join(parts, ", ")
}

// listPeers names a few of the hosts for which meant is true.
func (s *Submission) listPeers(meant func(*peer) bool) string {
	var names []string
	for _, p := range s.peers {
		if meant(p) {
			names = append(names, p.Node.String())
		}
	}
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}
