package link

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// This file keeps a relay ready for a link between two sites, if the connector supports it, and
// uses it when all carriers of the link are in doubt. What kills all paths at once, a firewall that
// loses its connection state or an uplink that dies, also kills the sessions with the broker, so
// that no other path can be requested for a while. Both ends must use the relay: each notices by
// itself that the paths are dead.

// When the connector is asked to keep a relay ready: when a link has had carriers for reserveAfter,
// and every reserveEvery from then on, in case the relay was lost. The end that did not dial the
// link waits for reserveOther: by then its helper has received the relay that the other end's
// helper requested.
const (
	reserveAfter = time.Second
	reserveOther = 5 * time.Second
	reserveEvery = 30 * time.Second

	// reserveAgain is the minimum time between two dials of reserves.
	reserveAgain = time.Second

	// reserveSpread is what each link adds to the interval over which the requests of a process
	// are spread, so that on average it sends at most one request per reserveSpread.
	reserveSpread = 10 * time.Millisecond
)

// reserve requests a relay when one is due. links is the number of links of this process.
func (sv *supervisor) reserve(now time.Time, links int) {
	if sv.mesh.reserver == nil || !sv.away || !sv.link.up.Load() {
		return
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	spread := rand.N(time.Duration(links) * reserveSpread)
	switch {
	case sv.dialing: // the broker may be unreachable
		sv.reserveDue = time.Time{}
	case sv.reserveDue.IsZero() && sv.link.Dialled:
		sv.reserveDue = now.Add(reserveAfter + spread)
	case sv.reserveDue.IsZero():
		sv.reserveDue = now.Add(reserveOther + spread)
	case !now.Before(sv.reserveDue):
		sv.reserveDue = now.Add(reserveEvery + spread)
		sv.mesh.reserver.Reserve(sv.link.Peer, sv.link.Generation)
	}
}

// useReserve dials the relay that was kept ready for the link; it succeeds if there is one and the
// other end dials it too. It runs in parallel to other dials, and may be called repeatedly while
// the link has no carrier. mu is held.
func (sv *supervisor) useReserve() {
	if sv.mesh.reserver == nil || !sv.away || time.Since(sv.reserveUsed) < reserveAgain {
		return
	}
	sv.reserveUsed, sv.reserveDue = time.Now(), time.Time{}
	sv.mesh.spawn(func(ctx context.Context) {
		if sv.link.Dialled {
			if c, err := sv.dial(ctx, sv.oneDial(), overlay.Reserved); err == nil {
				sv.choose(c)
			}
			return
		}
		ctx, cancel := context.WithTimeout(ctx, sv.oneDial())
		defer cancel()
		if c, err := sv.mesh.cfg.Connector.Dial(ctx, sv.link.Peer, overlay.Reserved); err == nil {
			sv.mesh.answer(ctx, c)
		}
	})
}
