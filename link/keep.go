package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// DefaultPatience is how long a link may be without a carrier before it is lost.
const DefaultPatience = 60 * time.Second

// How a link gets another carrier. The end that dialled the first one dials at
// once; the other waits a little, in case only its own way is open.
const (
	otherEnd  = 1500 * time.Millisecond
	firstRest = 50 * time.Millisecond // after a dial that failed; doubles
	lastRest  = 2 * time.Second
	oneDial   = 5 * time.Second
	// firstDial bounds the dials until the peer is known to be alive: one whose
	// process has ended is waited for, as one that has not started is.
	firstDial = 2 * time.Second
	// absent is how long a peer may be unknown to the directory before it counts
	// as gone: helpers register their processes again when they are restarted.
	absent = 1500 * time.Millisecond
)

// keeper replaces a link's carriers. Its stream's mu guards it.
type keeper struct {
	mesh    *Mesh
	link    *Link
	dialing bool
	since   time.Time // of the loss
	tries   []string
}

// lost is stream.lost: a carrier has died.
func (k *keeper) lost(c *carrier, err error) {
	k.note(fmt.Sprintf("%v: %v", c.path, err))
	if known := c.fault; known != nil {
		if why := known(); why != nil {
			k.note(why.Error())
		}
	}
	s := k.link.stream
	switch {
	case len(s.carriers) > 0:
	case c.path.Technique == 0: // one node: what ends there is the process
		s.finish(fmt.Errorf("link to %v (%v): %w", k.link.Peer, c.path, err))
	case s.closing && s.send.Acked() >= s.send.End():
		s.finish(net.ErrClosed) // the peer has all of it
	default:
		k.redial()
	}
}

// note remembers what went wrong, for the error of a link that is lost.
func (k *keeper) note(what string) {
	const most = 8
	if len(k.tries) == most {
		k.tries = append(k.tries[:1], k.tries[2:]...)
	}
	k.tries = append(k.tries, what)
}

// redial looks for another carrier, unless that is being done.
func (k *keeper) redial() {
	if k.dialing {
		return
	}
	k.dialing, k.since = true, time.Now()
	started := k.mesh.goes(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, k.mesh.cfg.Patience)
		defer cancel()
		err := k.look(ctx)
		s := k.link.stream
		s.mu.Lock()
		defer s.mu.Unlock()
		k.dialing = false
		switch {
		case err == nil || s.over:
			k.tries = nil
		case len(s.carriers) > 0: // the other end was quicker
		case errors.Is(err, overlay.ErrStale):
			s.finish(fmt.Errorf("link to %v: the peer knows it no more, it has closed it or started again: %w (%w)", k.link.Peer, net.ErrClosed, err))
		default:
			s.finish(fmt.Errorf("link to %v: lost %v ago and not restored: %s: %w",
				k.link.Peer, time.Since(k.since).Round(time.Millisecond), strings.Join(k.tries, "; "), err))
		}
	})
	if !started {
		k.link.stream.finish(fmt.Errorf("link to %v: %w", k.link.Peer, errClosed))
	}
}

var errClosed = errors.New("link: the mesh is closed")

// look dials until there is a carrier that is beyond doubt. It ends with ctx.
func (k *keeper) look(ctx context.Context) error {
	if !k.link.Dialled && !k.rest(ctx, otherEnd) {
		return k.ended(ctx)
	}
	var unknown time.Time
	bound := firstDial
	for pause := firstRest; ; pause = min(2*pause, lastRest) {
		if k.well() {
			return nil
		}
		err := k.dial(ctx, bound)
		if err == nil {
			return nil
		}
		k.link.stream.mu.Lock()
		k.note(err.Error())
		k.link.stream.mu.Unlock()
		switch {
		case !errors.Is(err, overlay.ErrUnknownProcess):
			unknown, bound = time.Time{}, oneDial
		case unknown.IsZero():
			unknown = time.Now()
		case time.Since(unknown) > absent:
			return fmt.Errorf("%w: the process seems to have ended", err)
		}
		if errors.Is(err, overlay.ErrStale) || errors.Is(err, overlay.ErrForbidden) || !k.rest(ctx, pause) {
			return k.ended(ctx, err)
		}
	}
}

func (k *keeper) ended(ctx context.Context, errs ...error) error {
	for _, err := range errs {
		return err
	}
	if k.well() {
		return nil
	}
	return context.Cause(ctx)
}

// well reports whether nothing needs to be done.
func (k *keeper) well() bool {
	s := k.link.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.carriers {
		if !c.doubted {
			return true
		}
	}
	return s.over
}

// rest waits for d, or until nothing needs to be done; false means that ctx
// ended.
func (k *keeper) rest(ctx context.Context, d time.Duration) bool {
	for end := time.Now().Add(d); !k.well(); {
		left := time.Until(end)
		if left <= 0 {
			return true
		}
		t := time.NewTimer(min(left, tick))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return false
		}
	}
	return ctx.Err() == nil
}

// dial makes one more carrier of the link.
func (k *keeper) dial(ctx context.Context, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	l := k.link
	c, err := k.mesh.cfg.Connector.Dial(ctx, l.Peer, overlay.AllWays)
	if err != nil {
		return err
	}
	m, err := shake(ctx, c, k.mesh.cfg.Self, &l.Peer, terms{link: l.id, again: true, admit: k.admit})
	if err != nil {
		return err
	}
	return k.take(c, m)
}

// admit is terms.admit for a further carrier.
func (k *keeper) admit(h *wire.Hello) (uint64, error) {
	l := k.link
	if h.Generation != l.Generation {
		return 0, fmt.Errorf("%w: %v has started again", overlay.ErrStale, l.Peer)
	}
	s := l.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return 0, fmt.Errorf("%w: the link is closed", overlay.ErrStale)
	}
	return s.ack(), nil
}

// take attaches a further carrier, and gives those up that are in doubt.
func (k *keeper) take(c overlay.Carrier, m met) error {
	if err := k.link.attach(c, m); err != nil {
		return err
	}
	s := k.link.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, old := range append([]*carrier(nil), s.carriers...) {
		if old.doubted {
			s.failed(old, errSilent)
		}
	}
	return nil
}
