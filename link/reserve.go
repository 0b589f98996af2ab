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
func (k *keeper) reserve(now time.Time, links int) {
	if k.mesh.reserver == nil || !k.away || !k.link.up.Load() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	spread := rand.N(time.Duration(links) * reserveSpread)
	switch {
	case k.dialing: // the broker may be unreachable
		k.reserveDue = time.Time{}
	case k.reserveDue.IsZero() && k.link.Dialled:
		k.reserveDue = now.Add(reserveAfter + spread)
	case k.reserveDue.IsZero():
		k.reserveDue = now.Add(reserveOther + spread)
	case !now.Before(k.reserveDue):
		k.reserveDue = now.Add(reserveEvery + spread)
		k.mesh.reserver.Reserve(k.link.Peer, k.link.Generation)
	}
}

// useReserve dials the relay that was kept ready for the link; it succeeds if there is one and the
// other end dials it too. It runs in parallel to other dials, and may be called repeatedly while
// the link has no carrier. mu is held.
func (k *keeper) useReserve() {
	if k.mesh.reserver == nil || !k.away || time.Since(k.reserveUsed) < reserveAgain {
		return
	}
	k.reserveUsed, k.reserveDue = time.Now(), time.Time{}
	k.mesh.spawn(func(ctx context.Context) {
		if k.link.Dialled {
			if c, err := k.dial(ctx, oneDial, overlay.Reserved); err == nil {
				k.choose(c)
			}
			return
		}
		ctx, cancel := context.WithTimeout(ctx, oneDial)
		defer cancel()
		if c, err := k.mesh.cfg.Connector.Dial(ctx, k.link.Peer, overlay.Reserved); err == nil {
			k.mesh.answer(ctx, c)
		}
	})
}
