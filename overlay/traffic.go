package overlay

import "time"

// Traffic is what one link has moved over carriers that no daemon carried: only the two processes
// can count these bytes. It is the report of one end.
type Traffic struct {
	Link      [16]byte      // the same at both ends
	Rank      uint32        // of the peer
	Peer      NodeID        // where the peer runs
	Technique Technique     // of the latest such carrier
	Sent      uint64        // bytes to the peer since the link began, including the link's headers, without the overhead of encryption
	Received  uint64        // bytes from it
	Lasted    time.Duration // since the link began; whole milliseconds on the wire
	Over      bool          // the link is over: this is the last report
}

// TrafficReporter is a Connector that collects what links have moved, for the site's audit log.
type TrafficReporter interface {
	// Report takes what a link has moved so far, replacing the previous report. It does not block,
	// and may be called at any time until Close, which ensures that everything was passed on.
	Report(Traffic)
}

// Uncounted reports whether no daemon counts the bytes of a carrier with this path, although it
// leaves the node.
func (p Path) Uncounted() bool { return p.Technique != 0 && p.Technique != Relay && p.Via == 0 }
