package frontal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// uplink is the frontal's end of its session with the broker. While there is
// none, calls wait for one during the first moments of the outage, so that a
// broker that restarts is not noticed, and fail at once after that.
type uplink struct {
	who      string // this frontal, for errors
	addr     string // the broker's
	patience time.Duration

	mu      sync.Mutex // guards the fields below
	session *control.Session
	broker  string        // its name
	epoch   uint64        // the broker's
	since   time.Time     // of the session, or of the outage
	cause   error         // of the outage
	changed chan struct{} // closed when session changes
}

func newUplink(who, addr string, patience time.Duration) *uplink {
	return &uplink{who: who, addr: addr, patience: patience, since: time.Now(),
		cause: errors.New("the first try has not ended"), changed: make(chan struct{})}
}

// opened says that s is the session from now on.
func (u *uplink) opened(s *control.Session, broker string, epoch uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.session, u.broker, u.epoch, u.since, u.cause = s, broker, epoch, time.Now(), nil
	u.change()
}

// lost says that s has ended.
func (u *uplink) lost(s *control.Session) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.session == s {
		u.session, u.since, u.cause = nil, time.Now(), s.Err()
		u.change()
	}
}

// failed remembers why there is no session, for whoever asks.
func (u *uplink) failed(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.session == nil {
		u.cause = err
	}
}

func (u *uplink) change() {
	close(u.changed)
	u.changed = make(chan struct{})
}

// up reports whether there is a session.
func (u *uplink) up() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.session != nil
}

// get returns the session, or fails with overlay.ErrNoSession, naming the
// broker, since when it is away and why.
func (u *uplink) get(ctx context.Context) (*control.Session, error) {
	for {
		u.mu.Lock()
		s, changed, left := u.session, u.changed, u.patience-time.Since(u.since)
		u.mu.Unlock()
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

// away is the error of a call that needs the broker while it is away.
func (u *uplink) away() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	cause := u.cause
	if cause == nil {
		cause = errors.New("the session ended while the broker was asked") // and there is a new one by now
	}
	return wire.CodeNoSession.Errorf("%s has no session with the broker at %s since %s: %s",
		u.who, u.addr, u.since.Format(time.TimeOnly), strings.TrimPrefix(cause.Error(), "broker at "+u.addr+": "))
}

// callError gives the error of a call on s its class and its words.
func (u *uplink) callError(s *control.Session, err error) error {
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
		return fmt.Errorf("%s: %w: no answer from the broker at %s: %v", u.who, overlay.ErrTimeout, u.addr, err)
	}
	return err
}

// current returns the session, nil while there is none.
func (u *uplink) current() *control.Session {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.session
}

// come waits for a session for as long as ctx goes on; nil when ctx ended.
func (u *uplink) come(ctx context.Context) *control.Session {
	for {
		u.mu.Lock()
		s, changed := u.session, u.changed
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
