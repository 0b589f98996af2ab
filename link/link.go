// Package link makes the one link between two processes of a job: it
// authenticates carriers end to end (Establish), sees to it that two processes
// that dial each other at the same instant end with exactly one link (the
// decisions in pair.go, carried out by Mesh), and hands the link up.
//
// For now a link is its one carrier, authenticated: its bytes are neither
// sequenced nor encrypted, and it ends when the carrier does.
//
// The package knows ranks, keys and carriers. It refuses to know what flows
// over a link, how a carrier was made, and who asked for it. State is in the
// Mesh: for each rank of the job what link it has or is about to get.
package link

import (
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Link is an authenticated stream to one other process. Its owner closes Conn.
type Link struct {
	Conn       net.Conn // the first byte read from it is the first that the peer wrote for this link
	Peer       overlay.ProcessName
	Generation overlay.Generation // of the peer
	Dialled    bool               // this side asked for the carrier
	Path       overlay.Path
	RTT        time.Duration // of the handshake: one round trip and the peer's work for it

	fault func() error
}

// Explain returns what the local helper knows about the carrier's death, or
// err, what the socket says.
func (l *Link) Explain(err error) error {
	if l.fault != nil {
		if known := l.fault(); known != nil {
			return known
		}
	}
	return err
}
