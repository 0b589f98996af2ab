package link

import (
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
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
		a := c.Carrier.Owner.(*carrierInfo)
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

// acked is stream.Options.Acked. On a path over a relay or gateway it is that one's system that
// acknowledges.
func acked(c *stream.Carrier) (time.Duration, bool) {
	a := c.Owner.(*carrierInfo)
	if a.socket == nil || a.path.Technique == overlay.Relay || a.path.Via != 0 {
		return 0, false
	}
	return carrier.LastAck(a.socket)
}
