package reserve

import (
	"fmt"
	"time"
)

// Tick does what is due: it gives up hosts that do not answer, renews leases, and resends messages.
func (s *Submission) Tick(now time.Time) []Send {
	for _, p := range s.peers {
		switch p.step {
		case asked:
			if !now.Before(p.sent.Add(s.cfg.Answer)) || s.bookingOver(now) {
				s.giveUp(p, now)
			}
		case held:
			s.renew(p, now)
		case leaving:
			if !now.Before(p.until) {
				p.step, p.deaf = left, true // its lease expires, or failure detection ends the processes
				continue
			}
			fallthrough
		case starting, started:
			if !now.Before(s.resendAt(p)) {
				s.resend(p, now)
			}
		}
	}
	if !s.deadline.IsZero() && !now.Before(s.deadline) {
		s.timeOut(now)
	}
	s.settle(now)
	return s.flush()
}

// Next returns when to call Tick; zero: no deadline.
func (s *Submission) Next() time.Time {
	next := s.deadline
	soon := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if s.phase == Booking && !s.bookEnd.IsZero() {
		soon(s.bookEnd)
	}
	for _, p := range s.peers {
		switch p.step {
		case asked:
			soon(p.sent.Add(s.cfg.Answer))
		case held:
			soon(s.renewAt(p))
			soon(p.until)
		case starting, started, leaving:
			soon(s.resendAt(p))
		}
	}
	return next
}

// resendAt returns when to repeat a message to a host that has not answered, or that must wait: one
// that has started keeps its lease until all others have started, too.
func (s *Submission) resendAt(p *peer) time.Time {
	if p.step == started && s.phase == Starting {
		return p.sent.Add(max(p.lease/3, s.cfg.Resend/10)) // little may be left of a lease that cannot be renewed further
	}
	return p.sent.Add(s.cfg.Resend)
}

// renewAt returns when to send the next Renew: after a third of the lease, and then at the interval
// of repetitions.
func (s *Submission) renewAt(p *peer) time.Time {
	if p.renewed.IsZero() {
		return p.sent.Add(p.lease / 3)
	}
	return p.sent.Add(s.cfg.Resend)
}

func (s *Submission) renew(p *peer, now time.Time) {
	if !now.Before(p.until) {
		s.leave(p, now)
		s.lost(p)
		return
	}
	if now.Before(s.renewAt(p)) {
		return
	}
	if p.renewed.IsZero() {
		p.renewed = now // the lease counts from the first Renew, in case only that one arrived
	}
	s.send(p, Renew{p.Key, p.hold}, now)
}

// resend repeats the message that a host has not answered.
func (s *Submission) resend(p *peer, now time.Time) {
	switch {
	case p.step == starting:
		for _, h := range s.plan.Hosts {
			if h.Node == p.Node {
				s.send(p, Start{p.Key, p.hold, h.Processes}, now)
			}
		}
	case p.step == started && s.phase == Committing:
		s.send(p, Commit{p.Key, p.hold}, now)
	case p.step == started:
		s.send(p, Renew{p.Key, p.hold}, now)
	case p.step == leaving:
		s.send(p, Cancel{p.Key}, now)
	}
}

// timeOut is called when the deadline of a phase has passed.
func (s *Submission) timeOut(now time.Time) {
	s.fail(fmt.Errorf("job %s does not start: no answer within %v from %s while %s; see isthmus doctor there",
		s.id, s.cfg.Begin, s.listPeers(func(p *peer) bool { return p.step == starting || p.step == started && s.phase == Committing }), s.phase), now)
}
