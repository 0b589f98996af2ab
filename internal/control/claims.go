package control

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// This file decides which session acts for a peer where several present its certificate. A host whose
// disk was copied runs the same daemon with the same certificate: if the newest session always counted,
// the two would end each other's for ever.

const (
	// claimTime bounds the wait for the answer of a peer whose certificate another host presents, unless it is far away: its
	// session ends before that if the path is dead or the peer does not run (pulse).
	claimTime = 4 * time.Second

	// contestedPause is how long the peer that was refused waits until it tries again, varied by half of
	// it either way, and contestedAge how long after that two hosts are still told of.
	contestedPause = 2 * time.Minute
	contestedAge   = 10 * time.Minute
)

// claims are the sessions that act for their peers, one for each identity.
type claims struct {
	mu  sync.Mutex // guards the fields below and their values; never held during a call
	by  map[Identity]*claim
	own claim // of this end's identity, as the daemons say that it dials; it has no session
}

// claim is who acts for an identity, and who wanted to besides.
type claim struct {
	session *Session // nil after its end

	keeps, other netip.AddrPort // of the latest that was refused, and of the one that kept its session then
	refused      time.Time      // when; zero: never
}

// take makes s the session of its peer, unless another one is, which it returns.
func (c *claims) take(s *Session) (holder *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[Identity]*claim{}
	}
	one := c.by[s.Peer()]
	if one == nil {
		one = &claim{}
		c.by[s.Peer()] = one
	}
	if one.session != nil && one.session != s {
		return one.session
	}
	one.session = s
	return nil
}

// release records that a session has ended.
func (c *claims) release(s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.by[s.Peer()]
	if one == nil || one.session != s {
		return
	}
	one.session = nil
	if !one.isContested() {
		delete(c.by, s.Peer())
	}
}

// refuse records that other was refused because holder answers, and reports whether holder still is the
// session of its peer.
func (c *claims) refuse(holder, other *Session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.by[holder.Peer()]
	if one == nil || one.session != holder {
		return false
	}
	one.note(holder.RemoteAddr(), other.RemoteAddr())
	return true
}

func (c *claim) note(keeps, other netip.AddrPort) {
	c.keeps, c.other, c.refused = keeps, other, time.Now()
}

func (c *claim) isContested() bool {
	return c != nil && !c.refused.IsZero() && time.Since(c.refused) <= contestedAge
}

// noteOwn records what a daemon says that this end dials.
func (c *claims) noteOwn(keeps, other netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own.note(keeps, other)
}

// contested returns where the two hosts are that presented the certificate of an identity lately.
func (c *claims) contested(id Identity) (keeps, other netip.AddrPort, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.by[id]; one.isContested() {
		return one.keeps, one.other, true
	}
	return keeps, other, false
}

// Claim makes s, which a peer has opened, the one session that acts for the peer. It ends an earlier
// one, unless that is of another process which answers: then s is refused, and both ends are told where
// the other one is (overlay.ErrForbidden). A session that has ended takes the place of none (overlay.ErrUnreachable).
// Repeated calls return the first one's result. A session that has no claim must not act for its peer.
//
// The successor of a daemon (package daemon) is not taken for another host: it dials when its predecessor
// has ended its own sessions.
func (e *Endpoint) Claim(s *Session) error {
	s.claimed.Do(func() { s.claimErr = e.claim(s) })
	return s.claimErr
}

func (e *Endpoint) claim(s *Session) error {
	for {
		holder := e.claims.take(s)
		if s.isOver() { // a late call's: the peer may have another session by now
			e.claims.release(s)
			return fmt.Errorf("%w: the session of %v has ended", overlay.ErrUnreachable, s.Peer())
		}
		if holder == nil {
			return nil
		}
		isSame := s.instance != 0 && s.instance == holder.instance
		if isSame || !holder.answers(s) {
			holder.Close()
			e.claims.release(holder)
			continue
		}
		if !e.claims.refuse(holder, s) {
			continue // it has ended since it answered
		}
		ctx, cancel := context.WithTimeout(context.Background(), max(claimTime, s.pulse.bound()))
		defer cancel()
		keeps, other := holder.RemoteAddr(), s.RemoteAddr()
		controlpb.NewTrustClient(s.Conn()).Holders(ctx, &controlpb.HoldersMessage{Keeps: keeps.String(), Other: other.String()}) // an older peer learns it from the error
		return fmt.Errorf("%w: %s", overlay.ErrForbidden, ContestedText(s.Peer(), keeps, other))
	}
}

// answers tells the peer of s that other presents its certificate, too, and reports whether that is so:
// whether the peer still runs. Any answer will do, as an older peer's that it does not know the call.
func (s *Session) answers(other *Session) bool {
	ctx, cancel := context.WithTimeout(context.Background(), max(claimTime, s.pulse.bound()))
	defer cancel()
	_, err := controlpb.NewTrustClient(s.Conn()).Holders(ctx, &controlpb.HoldersMessage{Keeps: s.RemoteAddr().String(), Other: other.RemoteAddr().String(), Yours: true})
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return false
	}
	return !s.isOver()
}

func (s *Session) isOver() bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// Contested returns what two hosts that present the certificate of an identity are to be told, and
// others of them; "" if no two did lately.
func (e *Endpoint) Contested(id Identity) string {
	keeps, other, ok := e.claims.contested(id)
	if !ok {
		return ""
	}
	return ContestedText(id, keeps, other)
}

// OwnContested is Contested for this end's identity, as the daemons say that it dials.
func (e *Endpoint) OwnContested() string {
	e.claims.mu.Lock()
	defer e.claims.mu.Unlock()
	if own := &e.claims.own; own.isContested() {
		return ContestedText(e.creds.id, own.keeps, own.other)
	}
	return ""
}

// ContestedText says that two hosts present the certificate of an identity, and what to do.
func ContestedText(id Identity, keeps, other netip.AddrPort) string {
	return fmt.Sprintf("two hosts present the certificate of %v: the one at %v keeps its session, and the one at %v is refused and tries again every few minutes; "+
		"give one of them a certificate of its own (isthmus ca enroll, isthmus ca issue)", id, keeps, other)
}

// contestedError is why a session ended whose peer has another one with the same certificate.
type contestedError struct{ error }

func (e *contestedError) Unwrap() error { return e.error }

func isContested(err error) bool {
	_, ok := errors.AsType[*contestedError](err)
	return ok
}

// Holders implements controlpb.TrustServer.
func (t trustService) Holders(ctx context.Context, req *controlpb.HoldersMessage) (*controlpb.HoldersMessage, error) {
	s := SessionOf(ctx)
	if req.GetKeeps() == "" {
		m := &controlpb.HoldersMessage{}
		if keeps, other, ok := t.e.claims.contested(s.Peer()); ok {
			m.Keeps, m.Other = keeps.String(), other.String()
		}
		return m, nil
	}
	keeps, err := netip.ParseAddrPort(req.GetKeeps())
	other, otherErr := netip.ParseAddrPort(req.GetOther())
	if err := errors.Join(err, otherErr); err != nil {
		return nil, Status(fmt.Errorf("%w: %w", wire.ErrMalformed, err))
	}
	if !s.dialled {
		return nil, Status(fmt.Errorf("%w: %v does not decide who acts for %v", overlay.ErrForbidden, s.Peer(), t.e.creds.id))
	}
	t.e.claims.noteOwn(keeps, other)
	if !req.GetYours() {
		s.contested.Store(true)
	}
	t.e.log.Warn(ContestedText(t.e.creds.id, keeps, other), "says", s.Peer().String(), "this_host_keeps", req.GetYours())
	return &controlpb.HoldersMessage{}, nil
}
