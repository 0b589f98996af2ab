// Package uplink holds the frontal's sessions with the brokers: which of them is current, and why
// there is none. What the site registers is sent on each session; requests go to one broker. It
// knows no processes and no helpers: the caller passes the content.
//
// One lock guards the state of the sessions; it is never held during a call.
package uplink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

const (
	// CallTimeout bounds a call to the broker for which the caller sets no closer bound.
	CallTimeout = 15 * time.Second

	// AnswerMargin is the part of a caller's time that is reserved for receiving the error of a
	// failed call.
	AnswerMargin = 200 * time.Millisecond

	standardAnother = 2 * time.Second // see Set.Another
)

// Set is the frontal's end of its sessions with the brokers. The site is registered at all brokers;
// requests go to one, the current one. It stays current until its session ends or it does not
// answer; then the first in the order of the settings that has a session becomes current. While
// there is none, calls wait for one at the beginning of the outage, so that the restart of a broker
// causes no errors, and fail at once after that.
type Set struct {
	who      string // this frontal, for errors
	log      *slog.Logger
	patience time.Duration
	All      []*Uplink // in the order of the settings; never empty, immutable

	// Another bounds the wait for an answer if another broker is available. To change it, set it
	// before the first call.
	Another time.Duration

	reports chan *controlpb.ReportRequest // to the brokers; dropped if full

	mu      sync.Mutex // guards the fields below, and those of All but the addresses
	asked   *Uplink    // the current one; nil while no broker has a session
	since   time.Time  // start of the current state of asked
	changed chan struct{}
}

// Uplink is the session with one broker, or its absence.
type Uplink struct {
	Address string // the broker's
	session *control.Session
	broker  string    // its name
	epoch   uint64    // the broker's
	since   time.Time // start of the session, or of the outage
	cause   error     // cause of the outage
}

// New returns the sessions with the brokers at addrs, none of which exists yet. A call waits for up
// to patience after the start of an outage.
func New(who string, addrs []string, patience time.Duration, log *slog.Logger) *Set {
	u := &Set{
		who: who, patience: patience, log: log, Another: standardAnother, reports: make(chan *controlpb.ReportRequest, 256),
		since: time.Now(), changed: make(chan struct{}),
	}
	for _, addr := range addrs {
		u.All = append(u.All, &Uplink{Address: addr, since: u.since, cause: errors.New("the first try has not ended")})
	}
	return u
}

// Opened records that s is now the session with that broker. If there was none with any broker, it
// returns since when, otherwise the zero time.
func (u *Set) Opened(to *Uplink, s *control.Session, broker string, epoch uint64) (outage time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	to.session, to.broker, to.epoch, to.since, to.cause = s, broker, epoch, time.Now(), nil
	if u.asked == nil {
		outage = u.since
		u.choose(nil)
	}
	u.change()
	return outage
}

// Lost records that s has ended.
func (u *Set) Lost(s *control.Session) {
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
		u.since = u.since.Add(-silent.For) // the outage began then, and calls have been waiting since
	}
	u.change()
}

// Doubt records that a call on s was not answered in time. If another broker has a session, it
// becomes the current one; the result reports whether there was one.
func (u *Set) Doubt(s *control.Session) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	from := u.of(s)
	if from == nil || u.asked != from {
		return true // it is not current any more
	}
	u.choose(from)
	if u.asked != from {
		u.change()
	}
	return u.asked != from
}

// choose makes the first broker that has a session the current one, preferring another than not.
func (u *Set) choose(not *Uplink) {
	u.asked, u.since = nil, time.Now()
	if not != nil && not.session != nil {
		u.asked = not
	}
	for _, l := range u.All {
		if l.session != nil && l != not {
			u.asked = l
			return
		}
	}
}

func (u *Set) of(s *control.Session) *Uplink {
	for _, l := range u.All {
		if l.session == s && s != nil {
			return l
		}
	}
	return nil
}

// Failed records why there is no session with a broker, for later errors.
func (u *Set) Failed(to *Uplink, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if to.session == nil {
		to.cause = err
	}
}

func (u *Set) change() {
	close(u.changed)
	u.changed = make(chan struct{})
}

// Up reports whether there is a broker to call.
func (u *Set) Up() bool { return u.Current() != nil }

// HasSpare reports whether more than one broker has a session.
func (u *Set) HasSpare() bool { return len(u.Sessions()) > 1 }

// Get returns the session to call on, or fails with overlay.ErrNoSession, naming the broker, the
// start of the outage and its cause.
func (u *Set) Get(ctx context.Context) (*control.Session, error) {
	for {
		u.mu.Lock()
		s, changed, left := u.session(), u.changed, u.patience-time.Since(u.since)
		u.mu.Unlock()
		if deadline, ok := ctx.Deadline(); ok { // the cause must be set before the caller gives up
			left = min(left, time.Until(deadline)-AnswerMargin)
		}
		if s != nil {
			return s, nil
		}
		if left <= 0 || !wait(ctx, left, changed) {
			return nil, u.Away()
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

// Away is the error of a call that needs a broker while all are unreachable.
func (u *Set) Away() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []string
	for _, l := range u.All {
		cause := l.cause
		if cause == nil {
			cause = errors.New("the session ended before the broker answered") // and there is a new one by now
		}
		all = append(all, fmt.Sprintf("the broker at %s since %s: %s", l.Address, l.since.Format(time.TimeOnly), strings.TrimPrefix(cause.Error(), "broker at "+l.Address+": ")))
	}
	return wire.CodeNoSession.Errorf("%s has no session with %s", u.who, strings.Join(all, ", nor with "))
}

// CallError adds class and text to the error of a call on s.
func (u *Set) CallError(s *control.Session, err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-s.Done():
		u.Lost(s)
		return u.Away()
	default:
	}
	err = control.FromStatus(err)
	if errors.Is(err, overlay.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: %w: no answer from the broker at %s: %v", u.who, overlay.ErrTimeout, u.Addr(s), err)
	}
	return err
}

// Addr returns the address of the broker of a session.
func (u *Set) Addr(s *control.Session) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l := u.of(s); l != nil {
		return l.Address
	}
	return s.RemoteAddr().String()
}

// session returns the session to call on, nil while there is none. The caller holds mu.
func (u *Set) session() *control.Session {
	if u.asked == nil {
		return nil
	}
	return u.asked.session
}

// Current returns the session to call on, nil while there is none.
func (u *Set) Current() *control.Session {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.session()
}

// Sessions returns the sessions with all brokers that have one, in the order of the settings. The
// site's registration is sent on each.
func (u *Set) Sessions() (all []*control.Session) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, l := range u.All {
		if l.session != nil {
			all = append(all, l.session)
		}
	}
	return all
}

// OnEach runs say for every broker's session concurrently and returns when all calls have returned,
// with the first error in the order of the settings. A broker that is unreachable, or silent while
// another answers, causes no error: its next session gets everything.
func (u *Set) OnEach(say func(*control.Session) error) error {
	all := u.Sessions()
	errs := make([]error, len(all))
	var calls sync.WaitGroup
	for i, s := range all {
		calls.Go(func() { errs[i] = say(s) })
	}
	calls.Wait()
	answered := slices.Contains(errs, nil)
	for _, err := range errs {
		if err != nil && !(answered && (IsAway(err) || errors.Is(err, overlay.ErrTimeout))) {
			return err
		}
	}
	return nil
}

// Await waits for a session until ctx ends; it returns nil if ctx ended.
func (u *Set) Await(ctx context.Context) *control.Session {
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

// Status is the state of the session with one broker.
type Status struct {
	Address string    `json:"address"`
	Asked   bool      `json:"asked"`          // whether it is the one that is asked
	Name    string    `json:"name,omitempty"` // of the last session
	Up      bool      `json:"up"`
	Since   time.Time `json:"since"`           // of the session or of the outage
	Cause   string    `json:"cause,omitempty"` // of the outage
	Epoch   uint64    `json:"epoch,omitempty"`
}

// Status returns the states of the sessions, in the order of the settings.
func (u *Set) Status() (all []Status) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, l := range u.All {
		s := Status{Address: l.Address, Asked: l == u.asked, Name: l.broker, Up: l.session != nil, Since: l.since, Epoch: l.epoch}
		if l.cause != nil {
			s.Cause = l.cause.Error()
		}
		all = append(all, s)
	}
	return all
}

// IsAway reports whether err means that a peer is unreachable, so that what was to be sent to it
// will be sent with its next session.
func IsAway(err error) bool { return errors.Is(err, overlay.ErrUnreachable) }
