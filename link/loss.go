package link

import (
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
)

// lossEvery is how often a link checks whether its carriers lose data. One that nothing is in flight
// on must have been given lossBytes in between; where data is, little of it may mean much loss.
const (
	lossEvery = time.Second
	lossBytes = 32 << 10
)

// watchLoss, every lossEvery, changes the congestion control of carriers that lose what is sent on
// them, and leaves one that has fallen behind nevertheless. Each end handles what it sends. Called
// by the goroutine that watches the mesh's links.
func (sv *supervisor) watchLoss(now time.Time) {
	if now.Before(sv.lossDue) {
		return
	}
	sv.lossDue = now.Add(lossEvery)
	sv.leaveBehind()
	for _, c := range sv.link.stream.Carriers() {
		a := c.Carrier.Owner.(*carrierInfo)
		if a.socket == nil || c.Sent-a.looked < lossBytes && c.InFlight == 0 {
			continue
		}
		if a.loss == nil {
			a.loss = carrier.WatchLoss(a.socket, &sv.mesh.lossy)
		}
		a.looked = c.Sent
		a.loss.Look(now)
		if a.loss.Lossy() {
			sv.link.lossy.Store(true)
		}
	}
}

// acked is stream.Options.Acked.
func acked(c *stream.Carrier) (time.Duration, bool) {
	if a := c.Owner.(*carrierInfo); a.endToEnd() {
		return carrier.LastAck(a.socket)
	}
	return 0, false
}

// endToEnd reports whether a carrier has a TCP connection whose far end is the peer's system. On a
// path over a relay or gateway it is that one's.
func (a *carrierInfo) endToEnd() bool {
	return a.socket != nil && a.path.Technique != overlay.Relay && a.path.Via == 0
}
