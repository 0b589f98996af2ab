package frontal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// uplinks is the frontal's end of its sessions with the brokers. All brokers
// are told what the site has; one, the current, is asked. It stays the current
// one until its session ends or it does not answer; then it is the first in the
// order of the settings that has a session. While none has, calls wait for
// one during the first moments of the outage, so that a broker that restarts is
// not noticed, and fail at once after that.
type uplinks struct {
	who      string // this frontal, for errors
	patience time.Duration
	all      []*uplink // in the order of the settings; never empty

	mu      sync.Mutex // guards the fields below, and those of all
	asked   *uplink    // the current one; nil while no broker has a session
	since   time.Time  // of the current state of asked
	changed chan struct{}
}

// uplink is the session with one broker, or its absence.
type uplink struct {
	addr    string // the broker's
	session *control.Session
	broker  string    // its name
	epoch   uint64    // the broker's
	since   time.Time // of the session, or of the outage
	cause   error     // of the outage
}

func newUplinks(who string, addrs []string, patience time.Duration) *uplinks {
	u := &uplinks{who: who, patience: patience, since: time.Now(), changed: make(chan struct{})}
	for _, addr := range addrs {
		u.all = append(u.all, &uplink{addr: addr, since: u.since, cause: errors.New("the first try has not ended")})
	}
	return u
}

// opened says that s is the session with that broker from now on.
func (u *uplinks) opened(to *uplink, s *control.Session, broker string, epoch uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	to.session, to.broker, to.epoch, to.since, to.cause = s, broker, epoch, time.Now(), nil
	if u.asked == nil {
		u.choose(nil)
	}
	u.change()
}

// lost says that s has ended.
func (u *uplinks) lost(s *control.Session) {
	u.mu.Lock()
	defer u.mu.Unlock()
	from := u.of(s)
	if from == nil {
		return
	}
	from.session, from.since, from.cause = nil, time.Now(), s.Err()
	if u.asked == from {
		u.choose(from)
	}
	if silent, ok := errors.AsType[*control.SilentError](from.cause); ok && u.asked == nil {
		u.since = u.since.Add(-silent.For) // the outage began then, and calls have been waiting
	}
	u.change()
}

// doubt says that a call on s was not answered in time. If another broker has a
// session, it becomes the current one; the result says whether there was one.
func (u *uplinks) doubt(s *control.Session) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	from := u.of(s)
	if from == nil || u.asked != from {
		return true // it is not asked any more
	}
	u.choose(from)
	if u.asked != from {
		u.change()
	}
	return u.asked != from
}

// choose makes the first broker that has a session the current one: another
// than not, if there is one.
func (u *uplinks) choose(not *uplink) {
	u.asked, u.since = nil, time.Now()
	if not != nil && not.session != nil {
		u.asked = not
	}
	for _, l := range u.all {
		if l.session != nil && l != not {
			u.asked = l
			return
		}
	}
}

func (u *uplinks) of(s *control.Session) *uplink {
	for _, l := range u.all {
		if l.session == s && s != nil {
			return l
		}
	}
	return nil
}

// failed remembers why there is no session with a broker, for whoever asks.
func (u *uplinks) failed(to *uplink, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if to.session == nil {
		to.cause = err
	}
}

func (u *uplinks) change() {
	close(u.changed)
	u.changed = make(chan struct{})
}

// up reports whether there is a broker to ask.
func (u *uplinks) up() bool { return u.current() != nil }

// several reports whether more than one broker has a session.
func (u *uplinks) several() bool { return len(u.sessions()) > 1 }

// get returns the session to ask on, or fails with overlay.ErrNoSession, naming
// the broker, since when it is away and why.
func (u *uplinks) get(ctx context.Context) (*control.Session, error) {
	for {
		u.mu.Lock()
		s, changed, left := u.session(), u.changed, u.patience-time.Since(u.since)
		u.mu.Unlock()
		if deadline, ok := ctx.Deadline(); ok { // the reason is to be there before the asker gives up
			left = min(left, time.Until(deadline)-answerMargin)
		}
		if s != nil {
			return s, nil
		}
		if left <= 0 || !wait(ctx, left, changed) {
			return nil, u.away()
		}
	}
}

// wait reports whether event came within d and before ctx ended.
func wait(ctx context.Context, d time.Duration, event <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-event:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}

// away is the error of a call that needs a broker while all are away.
func (u *uplinks) away() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []string
	for _, l := range u.all {
		cause := l.cause
		if cause == nil {
			cause = errors.New("the session ended while the broker was asked") // and there is a new one by now
		}
		all = append(all, fmt.Sprintf("the broker at %s since %s: %s", l.addr, l.since.Format(time.TimeOnly), strings.TrimPrefix(cause.Error(), "broker at "+l.addr+": ")))
	}
	return wire.CodeNoSession.Errorf("%s has no session with %s", u.who, strings.Join(all, ", nor with "))
}

// callError gives the error of a call on s its class and its words.
func (u *uplinks) callError(s *control.Session, err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-s.Done():
		u.lost(s)
		return u.away()
	default:
	}
	err = control.FromStatus(err)
	if errors.Is(err, overlay.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w: no answer from the broker at %s: %v", u.who, overlay.ErrTimeout, u.addr(s), err)
	}
	return err
}

// addr names the broker of a session.
func (u *uplinks) addr(s *control.Session) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l := u.of(s); l != nil {
		return l.addr
	}
	return s.RemoteAddr().String()
}

// session returns the one to ask on, nil while there is none. The caller holds mu.
func (u *uplinks) session() *control.Session {
	if u.asked == nil {
		return nil
	}
	return u.asked.session
}

// current returns the session to ask on, nil while there is none.
func (u *uplinks) current() *control.Session {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.session()
}

// sessions returns those with all brokers that have one, in the order of the
// settings: what the site has is said on each.
func (u *uplinks) sessions() (all []*control.Session) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, l := range u.all {
		if l.session != nil {
			all = append(all, l.session)
		}
	}
	return all
}

// onEach runs say for every broker's session at the same time and returns when
// all have returned, with the first error in the order of the settings. That a
// broker is away, or is silent while another answers, is none: it is told
// everything when it is back.
func (u *uplinks) onEach(say func(*control.Session) error) error {
	all := u.sessions()
	errs := make([]error, len(all))
	var calls sync.WaitGroup
	for i, s := range all {
		calls.Go(func() { errs[i] = say(s) })
	}
	calls.Wait()
	answered := slices.Contains(errs, nil)
	for _, err := range errs {
		if err != nil && !(answered && (isAway(err) || errors.Is(err, overlay.ErrTimeout))) {
			return err
		}
	}
	return nil
}

// come waits for a session for as long as ctx goes on; nil when ctx ended.
func (u *uplinks) come(ctx context.Context) *control.Session {
	for {
		u.mu.Lock()
		s, changed := u.session(), u.changed
		u.mu.Unlock()
		if s != nil {
			return s
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}
