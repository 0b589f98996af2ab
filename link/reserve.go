package link

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// This file has a relay kept ready for a link between two sites, where the connector can
// do that, and uses it when no carrier of the link is beyond doubt. What kills all paths
// at once, a firewall that forgets its connections or an uplink that dies, kills the
// sessions with the broker too, so that for a while nobody can be asked for another path.
// Both ends must use it: each notices by itself that the paths are dead.

// When the connector is told to keep a relay ready: when a link has had carriers for
// reserveAfter, and every reserveEvery from then on, in case it has none any more. The
// end that did not dial the link waits for reserveOther: by then its helper has what the
// other end's got.
const (
	reserveAfter = time.Second
	reserveOther = 5 * time.Second
	reserveEvery = 30 * time.Second

	// reserveAgain is the least time between two dials of reserves.
	reserveAgain = time.Second

	// reserveSpread is what each link adds to the time over which those of a process are
	// spread: ten come to a broker at most in this many milliseconds each.
	reserveSpread = 10 * time.Millisecond
)

// reserve has a relay kept ready when it is time. links is how many this process has.
func (k *keeper) reserve(now time.Time, links int) {
	if k.mesh.reserver == nil || !k.away || !k.link.up.Load() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	spread := rand.N(time.Duration(links) * reserveSpread)
	switch {
	case k.dialing: // there may be nobody to ask
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

// useReserve has the link get the relay that was kept ready for it, if there is one and
// the other end comes there too. It is beside whatever else is done, and may be called
// again and again while the link is without a carrier. mu is held.
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
