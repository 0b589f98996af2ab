package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// DefaultPatience is how long a link may be without a carrier before it is lost.
const DefaultPatience = 60 * time.Second

// How a link gets another carrier. The end that dialled the first one dials at once; the other end
// waits a little, and dials in case only its direction is open.
const (
	otherEnd  = 1500 * time.Millisecond
	firstRest = 50 * time.Millisecond // after a dial that failed; doubles
	lastRest  = 2 * time.Second
	oneDial   = 5 * time.Second
	// spareRest is the minimum time between two dials of a standby relay: on a busy machine
	// carriers fall silent too, and more dials would make it busier.
	spareRest = 10 * time.Second
	// firstDial bounds the dials until the peer is known to be alive: a dial waits for a process
	// that has ended as it does for one that has not started.
	firstDial = 2 * time.Second
	// leastHandshake is how long the handshake on a further carrier may take at least, however long
	// its dial took: with less, a path of a long round trip would seem to drop packets. It is one
	// round trip.
	leastHandshake = 2 * time.Second
	// absent is how long a peer may be unknown to the directory before it counts as ended: after a
	// restart of a helper or frontal, processes are registered again within a few seconds.
	absent = 5 * time.Second
)

// keeper replaces a link's carriers.
type keeper struct {
	mesh    *Mesh
	link    *Link
	born    time.Time
	account account
	away    bool // the two ends are at different sites

	mu      sync.Mutex // lock order: stream, then mu
	dialing bool
	silence bool      // all paths are silent; the other end may not have noticed if no data waits there
	doubt   bool      // large packets may have vanished: small ones are tried in parallel
	spare   time.Time // when a standby relay with small packets was dialled
	since   time.Time // when the link was lost
	tries   []string

	improving bool
	lookout   lookout
	widening  widening

	several     several
	ranker      ranker // guarded by mu
	ranking     ranking
	reserveDue  time.Time // when to have a relay kept ready; zero: it was used, or the link has no carrier
	reserveUsed time.Time // when a reserve was last dialled, if there was one
	lossDue     time.Time // when carriers are next checked for losses; see watchLoss
}

// lost is stream.Options.Lost.
func (k *keeper) lost(c *stream.Carrier, err error, left int) error {
	a := c.About.(*about)
	k.note(fmt.Sprintf("%v: %v", a.path, err))
	k.mesh.learn(a.path, err)
	k.fellSilent(c, err)
	if a.fault != nil {
		if why := a.fault(); why != nil {
			k.note(why.Error())
		}
	}
	switch {
	case left > 0:
		if errors.Is(err, stream.ErrSilent) {
			k.dialReserve()
		}
		return nil
	case a.path.Technique == 0: // one node: only the end of the process ends a carrier
		return fmt.Errorf("link to %v (%v): %w", k.link.Peer, a.path, err)
	}
	return k.redial(false, false)
}

// silent is stream.Options.Silent.
func (k *keeper) silent(unacked bool) { k.redial(true, unacked) } // if redial fails, the mesh is closed and ends the link

// onLate is stream.Options.Late.
func (k *keeper) onLate() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.useReserve()
}

// dialReserve dials a standby relay with small packets. A carrier fell silent under load and the
// link continues over another, where the same may happen: if the path drops large packets, the link
// would be silent twice as long without the standby.
func (k *keeper) dialReserve() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dialing || k.ranker.trying || !k.link.Dialled || time.Since(k.spare) < spareRest {
		return
	}
	k.spare = time.Now()
	k.mesh.spawn(func(ctx context.Context) {
		if c, err := k.dial(ctx, oneDial, overlay.RelayOnly|overlay.SmallPackets); err == nil {
			k.choose(c)
		}
	})
}

// note records what failed, for the error of a link that is lost.
func (k *keeper) note(what string) {
	const most = 8
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.tries) == most {
		k.tries = append(k.tries[:1], k.tries[2:]...)
	}
	k.tries = append(k.tries, what)
}

// redial starts to look for another carrier, unless that is under way. doubt and silence are the
// values of the fields of the same names.
func (k *keeper) redial(doubt, silence bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.useReserve()
	if k.dialing {
		return nil
	}
	if !k.mesh.spawn(k.restore) {
		return fmt.Errorf("link to %v: %w", k.link.Peer, errClosed)
	}
	k.dialing, k.silence, k.since = true, silence, time.Now()
	k.doubt = doubt
	return nil
}

// redialLater adds one more carrier to the link, unless a dial is under way.
func (k *keeper) redialLater() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dialing {
		return
	}
	k.dialing = k.mesh.spawn(func(ctx context.Context) {
		if err := k.dialAnother(ctx, oneDial); err != nil {
			k.note(err.Error())
		}
		k.mu.Lock()
		k.dialing = false
		k.mu.Unlock()
		if len(k.link.stream.Carriers()) == 0 && !k.link.stream.Over() { // lost meanwhile
			if err := k.redial(false, false); err != nil {
				k.link.stream.Fail(err)
			}
		}
	})
}

var errClosed = errors.New("link: the mesh is closed")

// restore gets the link a carrier, or fails the link.
func (k *keeper) restore(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, k.mesh.cfg.Patience)
	defer cancel()
	err := k.look(ctx)
	k.mu.Lock()
	k.dialing = false
	tries, since := k.tries, k.since
	if err == nil {
		k.tries = nil
	}
	k.mu.Unlock()
	s := k.link.stream
	switch {
	case err == nil || len(s.Carriers()) > 0: // the other end may have been faster
		if len(s.Carriers()) == 0 && !s.Over() { // the new carrier is lost again
			if err := k.redial(false, false); err != nil {
				s.Fail(err)
			}
		}
	case errors.Is(err, overlay.ErrStale):
		s.Fail(fmt.Errorf("link to %v: the peer knows it no more, it has closed it or started again: %w (%w)", k.link.Peer, net.ErrClosed, err))
	default:
		s.Fail(fmt.Errorf("link to %v: lost %v ago and not restored: %s: %w",
			k.link.Peer, time.Since(since).Round(time.Millisecond), strings.Join(tries, "; "), err))
	}
}

// look dials until the link has a healthy carrier. It ends with ctx.
func (k *keeper) look(ctx context.Context) error {
	if !k.link.Dialled && !k.isSilence() {
		if err := k.sleepFor(ctx, otherEnd); err != nil {
			return err
		}
	}
	var unknown time.Time
	bound := firstDial
	for pause := firstRest; !k.isHealthy(); pause = min(2*pause, lastRest) {
		err := k.dialAnother(ctx, bound)
		if err == nil {
			return nil
		}
		k.note(err.Error())
		switch {
		case errors.Is(err, errUnproven):
		case !errors.Is(err, overlay.ErrUnknownProcess):
			unknown, bound = time.Time{}, oneDial
		case unknown.IsZero():
			unknown = time.Now()
		case time.Since(unknown) > absent:
			return fmt.Errorf("%w: the process seems to have ended", err)
		}
		if errors.Is(err, overlay.ErrStale) || errors.Is(err, overlay.ErrForbidden) || errors.Is(err, overlay.ErrEnded) {
			return err
		}
		if late := k.sleepFor(ctx, pause); late != nil {
			return err
		}
	}
	return nil
}

func (k *keeper) isSilence() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.silence
}

// waysBack returns what to dial at once for another carrier. A silent path may be blocked for
// everything but a relay, or for all but small packets: a relay with small packets passes where
// anything does, and is tried in parallel.
func waysBack(doubt, relayed bool) []overlay.Ways {
	switch {
	case !doubt:
		return []overlay.Ways{overlay.AllWays}
	case relayed:
		return []overlay.Ways{overlay.AllWays, overlay.AllWays | overlay.SmallPackets}
	}
	return []overlay.Ways{overlay.AllWays, overlay.RelayOnly | overlay.SmallPackets}
}

// dialAnother gets the link a carrier: the stream continues on the first one that connects, and
// improve.go chooses between them.
func (k *keeper) dialAnother(ctx context.Context, bound time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k.mu.Lock()
	ways := waysBack(k.doubt, k.link.Path.Technique == overlay.Relay)
	k.mu.Unlock()
	results := make(chan error, len(ways))
	for _, w := range ways {
		if !k.mesh.spawn(func(context.Context) {
			c, err := k.dial(ctx, bound, w)
			if err == nil && k.link.Dialled {
				k.choose(c)
			}
			results <- err
		}) {
			return errClosed
		}
	}
	var errs []error
	for range ways {
		err := <-results
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// isHealthy reports whether some carrier is not silent, or the link is over: nothing needs to be
// done.
func (k *keeper) isHealthy() bool {
	for _, c := range k.link.stream.Carriers() {
		if !c.Silent {
			return true
		}
	}
	return k.link.stream.Over()
}

// sleepFor waits for d, until isHealthy, or until ctx ends, which is an error.
func (k *keeper) sleepFor(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); !k.isHealthy(); {
		left := time.Until(end)
		if left <= 0 {
			break
		}
		t := time.NewTimer(min(left, stream.Tick))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		}
	}
	return context.Cause(ctx)
}

// dial adds one more carrier to the link. The dial takes at most bound, and the handshake what is
// left of it, but leastHandshake if that is longer.
func (k *keeper) dial(ctx context.Context, bound time.Duration, ways overlay.Ways) (*stream.Carrier, error) {
	end := time.Now().Add(bound)
	dial, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	l := k.link
	c, err := k.mesh.cfg.Connector.Dial(dial, l.Peer, ways)
	if err != nil {
		return nil, err
	}
	ctx, cancel = context.WithTimeout(ctx, max(time.Until(end), leastHandshake))
	defer cancel()
	dialled := c
	// The dialler's proof may have been lost with the first carrier; the peer then has no such link
	// yet, and makes it of this carrier.
	known := !l.Dialled || l.stream.Met()
	c, m, err := runHandshake(ctx, c, k.mesh.cfg.Self, &l.Peer, terms{link: l.id, again: known, admit: k.admit})
	if err != nil {
		// That the other end does not use its reserve says nothing about the path.
		if ways != overlay.Reserved && settleFailed(dialled, err) {
			k.mu.Lock()
			k.doubt = k.doubt || !dialled.Path.Small
			k.mu.Unlock()
		}
		return nil, believe(err, m.proven)
	}
	settle(dialled, nil)
	k.mesh.logChoice(c)
	return k.attach(c, m)
}

// attach adds a carrier to the link. All links to the same site on worse paths then look for a
// better one.
func (k *keeper) attach(c overlay.Carrier, m met) (*stream.Carrier, error) {
	attached, err := k.link.attach(c, m)
	if err == nil && c.Path.Technique != 0 && c.Path.Technique != overlay.Relay {
		k.mesh.reached(c.Path)
	}
	return attached, err
}

// believe downgrades a refusal that may come from a process on the way, for example a relay: such a
// refusal must not end a link that has other ways.
func believe(err error, proven bool) error {
	if proven || !errors.Is(err, overlay.ErrStale) && !errors.Is(err, overlay.ErrForbidden) &&
		!errors.Is(err, overlay.ErrUnknownProcess) && !errors.Is(err, overlay.ErrEnded) {
		return err
	}
	return fmt.Errorf("%w: %w: %v", overlay.ErrUnreachable, errUnproven, err)
}

var errUnproven = errors.New("refused by the peer or by a device on the path")

// admit is terms.admit for a further carrier.
func (k *keeper) admit(h *wire.Hello) (uint64, error) {
	l := k.link
	if h.Generation != l.Generation {
		return 0, fmt.Errorf("%w: %v has started again", overlay.ErrStale, l.Peer)
	}
	received, err := l.stream.Received()
	if err != nil {
		return 0, fmt.Errorf("%w: the link is closed", overlay.ErrStale)
	}
	return received, nil
}
