package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/rtt"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// DefaultPatience is how long a link may be without a carrier before it is lost.
const DefaultPatience = 60 * time.Second

// How a link gets another carrier. The end that dialled the first one dials at once; the other end
// waits a little, and dials in case only its direction is open.
const (
	otherEnd   = 1500 * time.Millisecond
	minBackoff = 50 * time.Millisecond // after a dial that failed; doubles
	maxBackoff = 2 * time.Second
	// oneDial, or what dialTrips round trips may take if that is longer, bounds a dial: the ends of some techniques agree
	// first.
	oneDial   = 5 * time.Second
	dialTrips = 10
	// minSpareInterval is the minimum time between two dials of a standby relay: on a busy machine
	// carriers fall silent too, and more dials would make it busier.
	minSpareInterval = 10 * time.Second
	// firstDial, plus firstDialRTTs round trips of the link's first carrier, bounds the dials until
	// the peer is known to be alive: a dial waits for a process that has ended as it does for one
	// that has not started.
	firstDial     = 2 * time.Second
	firstDialRTTs = 4
	// leastHandshake is how long the handshake on a further carrier may take at least, however long
	// its dial took, or what one round trip may take if that is longer: with less, a path of a long round trip would seem
	// to drop packets.
	leastHandshake = 2 * time.Second
	// absent is how long a peer may be unknown to the directory before it counts as ended: after a
	// restart of a helper or frontal, processes are registered again within a few seconds.
	absent = 5 * time.Second
)

// supervisor replaces a link's carriers.
type supervisor struct {
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

	striping    stripingState
	ranker      ranker // guarded by mu
	ranking     ranking
	reserveDue  time.Time // when to have a relay kept ready; zero: it was used, or the link has no carrier
	reserveUsed time.Time // when a reserve was last dialled, if there was one
	lossDue     time.Time // when carriers are next checked for losses; see watchLoss
	addressDue  time.Time // when the local addresses of carriers are next checked; see checkAddresses
}

// lost is stream.Options.Lost.
func (sv *supervisor) lost(c *stream.Carrier, err error, left int) error {
	a := c.Owner.(*carrierInfo)
	sv.note(fmt.Sprintf("%v: %v", a.path, err))
	sv.mesh.learn(a.path, err)
	sv.fellSilent(c, err)
	if a.fault != nil {
		if why := a.fault(); why != nil {
			sv.note(why.Error())
		}
	}
	switch {
	case left > 0:
		if errors.Is(err, stream.ErrSilent) {
			sv.dialReserve()
		}
		return nil
	case a.path.Technique == 0: // one node: only the end of the process ends a carrier
		return fmt.Errorf("link to %v (%v): %w", sv.link.Peer, a.path, err)
	}
	return sv.redial(false, errors.Is(err, errAddressGone)) // the other end has not noticed
}

// silent is stream.Options.Silent.
func (sv *supervisor) silent(unacked bool) { sv.redial(true, unacked) } // if redial fails, the mesh is closed and ends the link

// onLate is stream.Options.Late.
func (sv *supervisor) onLate() {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.useReserve()
}

// dialReserve dials a standby relay with small packets. A carrier fell silent under load and the
// link continues over another, where the same may happen: if the path drops large packets, the link
// would be silent twice as long without the standby.
func (sv *supervisor) dialReserve() {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if sv.dialing || sv.ranker.trying || !sv.link.Dialled || time.Since(sv.spare) < minSpareInterval {
		return
	}
	sv.spare = time.Now()
	sv.mesh.spawn(func(ctx context.Context) {
		if c, err := sv.dial(ctx, sv.oneDial(), overlay.RelayOnly|overlay.SmallPackets); err == nil {
			sv.choose(c)
		}
	})
}

// note records what failed, for the error of a link that is lost.
func (sv *supervisor) note(what string) {
	const most = 8
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if len(sv.tries) == most {
		sv.tries = append(sv.tries[:1], sv.tries[2:]...)
	}
	sv.tries = append(sv.tries, what)
}

// redial starts to look for another carrier, unless that is under way. doubt and silence are the
// values of the fields of the same names.
func (sv *supervisor) redial(doubt, silence bool) error {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.useReserve()
	if sv.dialing {
		return nil
	}
	if !sv.mesh.spawn(sv.restore) {
		return fmt.Errorf("link to %v: %w", sv.link.Peer, errClosed)
	}
	sv.dialing, sv.silence, sv.since = true, silence, time.Now()
	sv.doubt = doubt
	if sv.lookout.best == overlay.Relay { // a link that had a better path looks for it often enough
		sv.lookout.restart(sv.since)
	}
	return nil
}

// redialLater adds one more carrier to the link, unless a dial is under way.
func (sv *supervisor) redialLater() {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if sv.dialing {
		return
	}
	sv.dialing = sv.mesh.spawn(func(ctx context.Context) {
		if err := sv.dialAnother(ctx, sv.oneDial()); err != nil {
			sv.note(err.Error())
		}
		sv.mu.Lock()
		sv.dialing = false
		sv.mu.Unlock()
		if len(sv.link.stream.Carriers()) == 0 && !sv.link.stream.Over() { // lost meanwhile
			if err := sv.redial(false, false); err != nil {
				sv.link.stream.Fail(err)
			}
		}
	})
}

var errClosed = errors.New("link: the mesh is closed")

// restore gets the link a carrier, or fails the link.
func (sv *supervisor) restore(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sv.mesh.cfg.Patience)
	defer cancel()
	err := sv.look(ctx)
	sv.mu.Lock()
	sv.dialing = false
	tries, since := sv.tries, sv.since
	if err == nil {
		sv.tries = nil
	}
	sv.mu.Unlock()
	s := sv.link.stream
	switch {
	case err == nil || len(s.Carriers()) > 0: // the other end may have been faster
		if len(s.Carriers()) == 0 && !s.Over() { // the new carrier is lost again
			if err := sv.redial(false, false); err != nil {
				s.Fail(err)
			}
		}
	case errors.Is(err, overlay.ErrStale):
		s.Fail(fmt.Errorf("link to %v: the peer knows it no more, it has closed it or started again: %w (%w)", sv.link.Peer, net.ErrClosed, err))
	default:
		s.Fail(fmt.Errorf("link to %v: lost %v ago and not restored: %s: %w",
			sv.link.Peer, time.Since(since).Round(time.Millisecond), strings.Join(tries, "; "), err))
	}
}

// look dials until the link has a healthy carrier. It ends with ctx.
func (sv *supervisor) look(ctx context.Context) error {
	if !sv.link.Dialled && !sv.isSilence() {
		if err := sv.sleepFor(ctx, otherEnd); err != nil {
			return err
		}
	}
	var unknown time.Time
	bound := firstDial + firstDialRTTs*sv.link.RTT
	for pause := minBackoff; !sv.isHealthy(); pause = min(2*pause, maxBackoff) {
		err := sv.dialAnother(ctx, bound)
		if err == nil {
			return nil
		}
		sv.note(err.Error())
		switch {
		case errors.Is(err, errUnproven):
		case !errors.Is(err, overlay.ErrUnknownProcess):
			unknown, bound = time.Time{}, sv.oneDial()
		case unknown.IsZero():
			unknown = time.Now()
		case time.Since(unknown) > absent:
			return fmt.Errorf("%w: the process seems to have ended", err)
		}
		if errors.Is(err, overlay.ErrStale) || errors.Is(err, overlay.ErrForbidden) || errors.Is(err, overlay.ErrEnded) {
			return err
		}
		if late := sv.sleepFor(ctx, pause); late != nil {
			return err
		}
	}
	return nil
}

func (sv *supervisor) isSilence() bool {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	return sv.silence
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
func (sv *supervisor) dialAnother(ctx context.Context, bound time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sv.mu.Lock()
	ways := waysBack(sv.doubt, sv.link.Path.Technique == overlay.Relay)
	sv.mu.Unlock()
	results := make(chan error, len(ways))
	for _, w := range ways {
		if !sv.mesh.spawn(func(context.Context) {
			c, err := sv.dial(ctx, bound, w)
			if err == nil && sv.link.Dialled {
				sv.choose(c)
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
func (sv *supervisor) isHealthy() bool {
	for _, c := range sv.link.stream.Carriers() {
		if !c.Silent {
			return true
		}
	}
	return sv.link.stream.Over()
}

// sleepFor waits for d, until isHealthy, or until ctx ends, which is an error.
func (sv *supervisor) sleepFor(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); !sv.isHealthy(); {
		left := time.Until(end)
		if left <= 0 {
			break
		}
		if err := sleep.For(ctx, min(left, stream.Tick)); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// path returns what is known of the path to the peer.
func (l *Link) path() rtt.Estimate { return rtt.Estimate{SRTT: l.RTT} }

// oneDial returns the bound of a dial.
func (sv *supervisor) oneDial() time.Duration { return max(oneDial, sv.link.path().Answer(dialTrips)) }

// dial adds one more carrier to the link. The dial takes at most bound, and the handshake what is
// left of it, but leastHandshake if that is longer.
func (sv *supervisor) dial(ctx context.Context, bound time.Duration, ways overlay.Ways) (*stream.Carrier, error) {
	end := time.Now().Add(bound)
	dial, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	l := sv.link
	c, err := sv.mesh.cfg.Connector.Dial(dial, l.Peer, ways)
	if err != nil {
		return nil, err
	}
	ctx, cancel = context.WithTimeout(ctx, max(time.Until(end), leastHandshake, l.path().Answer(1)))
	defer cancel()
	dialled := c
	// The dialler's proof may have been lost with the first carrier; the peer then has no such link
	// yet, and makes it of this carrier.
	known := !l.Dialled || l.stream.Met()
	c, m, err := runHandshake(ctx, c, sv.mesh.cfg.Self, &l.Peer, terms{link: l.id, again: known, admit: sv.admit})
	if err != nil {
		// That the other end does not use its reserve says nothing about the path.
		if ways != overlay.Reserved && settleFailed(dialled, err) {
			sv.mu.Lock()
			sv.doubt = sv.doubt || !dialled.Path.Small
			sv.mu.Unlock()
		}
		return nil, believe(err, m.proven)
	}
	settle(dialled, nil)
	sv.mesh.logChoice(c)
	return sv.attach(c, m)
}

// attach adds a carrier to the link. All links to the same site on worse paths then look for a
// better one.
func (sv *supervisor) attach(c overlay.Carrier, m met) (*stream.Carrier, error) {
	attached, err := sv.link.attach(c, m)
	if err == nil && c.Path.Technique != 0 && c.Path.Technique != overlay.Relay {
		sv.mesh.reached(c.Path)
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
func (sv *supervisor) admit(h *wire.Hello) (uint64, error) {
	l := sv.link
	if h.Generation != l.Generation {
		return 0, fmt.Errorf("%w: %v has started again", overlay.ErrStale, l.Peer)
	}
	received, err := l.stream.Received()
	if err != nil {
		return 0, fmt.Errorf("%w: the link is closed", overlay.ErrStale)
	}
	return received, nil
}
