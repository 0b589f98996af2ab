package overlay

import "time"

// Traffic is what one link has moved over carriers that no daemon carried: bytes
// that nobody but the two processes can count. It is one end's word.
type Traffic struct {
	Link      [16]byte      // the same at both ends
	Rank      uint32        // of the peer
	Peer      NodeID        // where the peer runs
	Technique Technique     // of the latest such carrier
	Sent      uint64        // bytes to the peer since the link began, its headers included, without what encryption adds
	Received  uint64        // bytes from it
	Lasted    time.Duration // since the link began; whole milliseconds on the wire
	Over      bool          // the link is over: no more will be said of it
}

// TrafficReporter is a Connector that wants to know what links have moved, for
// the site's audit log.
type TrafficReporter interface {
	// Report takes what a link has moved so far, in place of what was said of it
	// before. It does not wait, and may be called at any time until Close, which
	// sees to it that all was passed on.
	Report(Traffic)
}

// Uncounted reports whether no daemon counts what passes a carrier of this path,
// though it leaves the node.
func (p Path) Uncounted() bool { return p.Technique != 0 && p.Technique != Relay && p.Via == 0 }
