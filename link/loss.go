package link

import (
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
)

// lossEvery is how often a link checks whether its carriers lose data, and lossBytes how many bytes
// must have been sent on a carrier in between.
const (
	lossEvery = time.Second
	lossBytes = 32 << 10
)

// watchLoss changes the congestion control of carriers that lose what is sent on them. Each end
// handles what it sends. Called by the goroutine that watches the mesh's links.
func (sv *supervisor) watchLoss(now time.Time) {
	if now.Before(sv.lossDue) {
		return
	}
	sv.lossDue = now.Add(lossEvery)
	for _, c := range sv.link.stream.Carriers() {
		a := c.Carrier.About.(*carrierInfo)
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
