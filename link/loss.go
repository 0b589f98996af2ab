package link

import (
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
)

// lossEvery is how often a link looks whether its carriers lose data, and lossBytes how
// much must have been sent on one meanwhile.
const (
	lossEvery = time.Second
	lossBytes = 32 << 10
)

// watchLoss has carriers that lose what is sent on them change their congestion control.
// Each end sees to what it sends. The goroutine that watches the mesh's links calls it.
func (k *keeper) watchLoss(now time.Time) {
	if now.Before(k.lossDue) {
		return
	}
	k.lossDue = now.Add(lossEvery)
	for _, c := range k.link.stream.Carriers() {
		a := c.Carrier.About.(*about)
		if a.socket == nil || c.Sent-a.looked < lossBytes {
			continue
		}
		if a.loss == nil {
			a.loss = carrier.WatchLoss(a.socket)
		}
		a.looked = c.Sent
		a.loss.Look(now)
	}
}
