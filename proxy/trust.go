package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// barred are the processes whose tickets are invalid, because the node, site or user was revoked
// after the tickets were issued. Tickets expire, so each entry lasts no longer than the longest of
// them.
type barred map[overlay.ProcessName]bar

type bar struct {
	until time.Time
	err   error
}

// add bars processes, and removes entries for which no ticket is left.
func (b *barred) add(processes []overlay.ProcessName, err error, now time.Time) {
	if *b == nil {
		*b = barred{}
	}
	for p, one := range *b {
		if now.After(one.until) {
			delete(*b, p)
		}
	}
	for _, p := range processes {
		(*b)[p] = bar{now.Add(ticket.MaxLife + ticket.Skew), err}
	}
}

// reason returns why a ticket is invalid, or nil.
func (b barred) reason(t *wire.Ticket, now time.Time) error {
	for _, rank := range []uint32{t.Asker, t.Target} {
		if one, yes := b[overlay.ProcessName{Job: t.Job, Rank: rank}]; yes && !now.After(one.until) {
			return one.err
		}
	}
	return nil
}

// cutFor ends the links of processes whose node, site or user was revoked, as the broker reports,
// and bars their outstanding tickets.
func (s *Server) cutFor(_ context.Context, from *control.Session, processes []overlay.ProcessName, reason string) (int, error) {
	if from.Peer().Role != control.RoleBroker {
		return 0, fmt.Errorf("proxy %s: %w: %v may not end links; the broker may", s.set.Name, overlay.ErrForbidden, from.Peer())
	}
	links := s.Cut(processes, fmt.Errorf("%w: %s", control.ErrRevoked, reason))
	s.log.Warn("links ended", "reason", reason, "processes", len(processes), "links", links)
	return links, nil
}

// Cut ends the links of processes for a reason, bars their tickets, and returns how many links
// there were.
func (s *Server) Cut(processes []overlay.ProcessName, reason error) (ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var these barred
	these.add(processes, reason, time.Now())
	s.barred.add(processes, reason, time.Now())
	for l := range s.links {
		if these.reason(l.asker.ticket, time.Now()) == nil {
			continue
		}
		ended++
		if l.doomed = reason; l.cut != nil {
			l.cut(reason)
		}
	}
	return ended
}

// joined records a session with a broker until the returned function is called.
func (o *offerer) joined(session *control.Session) (left func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sessions = append(o.sessions, session)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.sessions = slices.DeleteFunc(o.sessions, func(s *control.Session) bool { return s == session })
	}
}

// renewed requests a new certificate from the brokers, of which one enrols.
func (o *offerer) renewed(ctx context.Context, chain [][]byte) ([][]byte, error) {
	o.mu.Lock()
	sessions := slices.Clone(o.sessions)
	o.mu.Unlock()
	if len(sessions) == 0 {
		return nil, fmt.Errorf("%w: there is no session with a broker", overlay.ErrNoSession)
	}
	var errs []error
	for _, s := range sessions {
		fresh, err := s.Renew(ctx, chain)
		if err == nil {
			return fresh, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// Disown ends all links when the proxy's own certificate is revoked, and makes it refuse new ones;
// nil undoes that. It returns how many links there were.
func (s *Server) Disown(revoked error) (ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disowned = revoked
	if revoked == nil {
		return 0
	}
	for l := range s.links {
		s.closeLater(l, revoked)
		ended++
	}
	return ended
}

// closeLater ends a link at once, or as soon as it is joined. s.mu is held.
func (s *Server) closeLater(l *relayedLink, reason error) {
	if l.doomed = reason; l.cut != nil {
		l.cut(reason)
	}
}

// followRevocations makes the proxy carry nothing more while it is revoked, until ctx ends: when
// their links end, processes find other paths, and the grid no longer trusts this proxy.
func (l *life) followRevocations(ctx context.Context) {
	l.creds.FollowOwn(ctx, func(revoked error) {
		if links := l.server.Disown(revoked); revoked != nil {
			l.log.Error("this proxy is revoked; its links end", "links", links, "error", revoked)
		}
	})
}
