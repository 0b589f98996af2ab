package proxy

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// waitingEnd is the first end of a link, waiting for the second.
type waitingEnd struct {
	first *end
	taken chan struct{} // closed when the second end took first over
}

// pair joins an end with its partner, or makes it wait.
func (s *Server) pair(ctx context.Context, e *end) {
	l, w, err := s.enter(e)
	switch {
	case err != nil:
		s.refuse(e, err)
	case l != nil:
		if err := s.admit(l); err != nil {
			s.refuseLink(l, err)
			return
		}
		s.join(ctx, l)
	default:
		s.await(ctx, w)
	}
}

// enter returns the link if e's partner is waiting, otherwise the place at which e waits.
func (s *Server) enter(e *end) (*relayedLink, *waitingEnd, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.disowned != nil {
		return nil, nil, refusal(Revoked, wire.CodeForbidden, "proxy %s: %v", s.set.Name, s.disowned)
	}
	if why := s.barred.reason(e.ticket, time.Now()); why != nil {
		return nil, nil, refusal(Revoked, wire.CodeForbidden, "%v", why)
	}
	if w := s.waiting[e.ticket.Link]; w != nil {
		if err := sameLink(w.first.ticket, e.ticket); err != nil {
			return nil, nil, err
		}
		delete(s.waiting, e.ticket.Link)
		close(w.taken)
		l := newLink(w.first, e)
		s.links[l] = struct{}{}
		return l, nil, nil
	}
	if err := s.set.Audit.Ready(); err != nil {
		return nil, nil, refusal(NoAudit, wire.CodeOverloaded, "%v", err)
	}
	if len(s.waiting) >= s.limits.Waiting {
		return nil, nil, refusal(TooManyWaiting, wire.CodeOverloaded, "%d links wait for their second end already", len(s.waiting))
	}
	if len(s.waiting)+len(s.links) >= s.limits.Links {
		return nil, nil, refusal(TooManyLinks, wire.CodeOverloaded, "all %d links are in use", s.limits.Links)
	}
	w := &waitingEnd{first: e, taken: make(chan struct{})}
	s.waiting[e.ticket.Link] = w
	return nil, w, nil
}

// sameLink returns an error for tickets that the broker did not issue as a pair. Their End fields
// differ: each end is honoured once.
func sameLink(a, b *wire.Ticket) error {
	x, y := *a, *b
	x.End, x.MAC = y.End, y.MAC
	if x != y {
		return refusal(Mismatch, wire.CodeForbidden, "this ticket and that of the link's other end do not belong together")
	}
	return nil
}

// await keeps the first end until the second has taken it over, or refuses it.
func (s *Server) await(ctx context.Context, w *waitingEnd) {
	t := time.NewTimer(s.set.PairTimeout)
	defer t.Stop()
	why := stopping()
	select {
	case <-w.taken:
		return
	case <-t.C:
		missing := overlay.ProcessName{Job: w.first.ticket.Job, Rank: w.first.ticket.Target}
		if w.first.ticket.End == 1 {
			missing.Rank = w.first.ticket.Asker
		}
		why = refusal(NoPartner, wire.CodeTimeout, "waited %v for %v; it did not connect", s.set.PairTimeout, missing)
	case <-ctx.Done():
	}
	s.mu.Lock()
	mine := s.waiting[w.first.ticket.Link] == w
	if mine {
		delete(s.waiting, w.first.ticket.Link)
	}
	s.mu.Unlock()
	if mine { // otherwise the second end arrived at the last moment and has it
		s.refuse(w.first, why)
	}
}

// relayedLink is two joined ends.
type relayedLink struct {
	asker, target *end
	joined        time.Time // set when it is joined
	meter         carrier.Meter
	cut           context.CancelCauseFunc // nil until the link is joined; guarded by Server.mu
	throttle      *ratelimit.Throttle     // set when the link was admitted; guarded by Server.mu until it is joined
	sites         traffic.Pair            // the asker's and the target's; empty until a broker reports them; guarded by Server.mu
	doomed        error                   // why the link must end at once; guarded by Server.mu
}

func newLink(a, b *end) *relayedLink {
	if a.ticket.End == 1 {
		a, b = b, a
	}
	return &relayedLink{asker: a, target: b}
}

// admit reserves a place under the quota for a link, or returns why there is none.
func (s *Server) admit(l *relayedLink) error {
	t := l.asker.ticket
	o := quota.Owner{User: t.Principal.User, Project: t.Principal.Project, Job: t.Job}
	for _, a := range t.Allowances {
		if a != (overlay.Allowance{}) {
			o.Allowances = append(o.Allowances, a)
		}
	}
	p, err := s.set.Quota.Admit(o, func() uint64 { return l.meter.Stats().Total() })
	if err == nil {
		s.mu.Lock()
		l.throttle = p
		s.mu.Unlock()
	}
	if no, ok := errors.AsType[*quota.Refused](err); ok && strings.HasPrefix(no.Key, "policy.") {
		return refusal(OverPolicy, wire.CodeOf(err), "%v", err)
	}
	if err != nil {
		return refusal(OverQuota, wire.CodeOf(err), "%v", err)
	}
	return nil
}

// refuseLink sends both ends the reason why they are not joined.
func (s *Server) refuseLink(l *relayedLink, err error) {
	s.mu.Lock()
	delete(s.links, l)
	s.mu.Unlock()
	var other sync.WaitGroup
	defer other.Wait()
	other.Go(func() { s.refuse(l.asker, err) })
	s.refuse(l.target, err)
}

// join runs a link until it ends.
func (s *Server) join(ctx context.Context, l *relayedLink) {
	s.noteChange()
	l.joined = time.Now()
	outer := ctx
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	s.mu.Lock()
	l.cut = cut
	if l.doomed != nil {
		cut(l.doomed)
	}
	s.mu.Unlock()
	stats, err := carrier.Join(ctx, l.asker.conn, l.target.conn, carrier.Options{
		Limit: l.asker.ticket.Limit, Idle: s.set.IdleTimeout, Meter: &l.meter, Pacer: l.throttle,
		KeepControl: len(s.set.Tuning.Congestion) > 0, Lossy: &s.lossy,
	})
	switch {
	case outer.Err() != nil:
		err = errStopping
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	e := l.ended(s.set.Name, stats, err)
	l.throttle.Close()
	s.whenEnded().Publish(l, e)
}

// noteChange wakes those that wait on Changed.
func (s *Server) noteChange() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}
