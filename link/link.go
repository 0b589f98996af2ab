// Package link makes the one link between two processes of a job, and keeps it
// though its connections come and go: it authenticates carriers end to end, sees
// to it that two processes that dial each other at the same instant end with
// exactly one link (the decisions in pair.go, carried out by Mesh), carries the
// bytes over the carriers of the moment (stream.go, on the core in link/resume),
// notices a carrier that has gone silent (watch.go) and replaces it (keep.go).
//
// The package knows ranks, keys and carriers. It refuses to know what flows
// over a link, how a carrier was made, and who asked for it. State is in the
// Mesh: for each rank of the job what link it has or is about to get.
//
// # Memory
//
// A link holds what the peer has not acknowledged and what came in and was not
// read, at most 16 MiB each, and 64 KiB a carrier to read into; a small write
// takes 64 KiB until it is acknowledged. An idle link holds
// one carrier's buffer and about 6 KiB.
package link

import (
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Link is an authenticated stream to one other process. Its owner closes Conn.
type Link struct {
	Conn       Conn // the first byte read from it is the first that the peer wrote for this link
	Peer       overlay.ProcessName
	Generation overlay.Generation // of the peer
	Dialled    bool               // this side asked for the first carrier
	Path       overlay.Path       // of the first carrier
	RTT        time.Duration      // of the handshake: one round trip and the peer's work for it

	id     wire.ID
	stream *stream
	fault  func() error
	done   chan struct{}
}

// Done is closed when the link is over: closed by both ends, lost, or closed here
// and the time for what was written to arrive is over. It is nil in the zero Link.
func (l *Link) Done() <-chan struct{} { return l.done }

// Conn is a link's connection. At most one Read may be under way, and one Write
// or WriteBuffers; the other methods may be called at any time.
type Conn interface {
	net.Conn

	// WriteBuffers writes several buffers as one. It leaves bufs as they are.
	WriteBuffers(bufs [][]byte) (int64, error)

	// CloseWrite ends this direction; the peer reads io.EOF behind what was
	// written.
	CloseWrite() error
}

// newLink makes a link of a handshake. It has no carrier before begin.
func newLink(c overlay.Carrier, m met, dialled bool) *Link {
	l := &Link{
		Peer: overlay.ProcessName{Job: m.hello.Job, Rank: m.hello.From}, Generation: m.hello.Generation,
		Dialled: dialled, Path: c.Path, RTT: m.rtt, id: m.link, fault: c.Fault,
		done: make(chan struct{}),
	}
	l.stream = newStream(l.Peer.String(), nil, func() { close(l.done) })
	l.Conn = l.stream
	return l
}

// begin gives the link its first carrier.
func (l *Link) begin(c overlay.Carrier, m met) error { return l.attach(c, m) }

// attach gives the link a carrier, which it owns from then on.
func (l *Link) attach(c overlay.Carrier, m met) error {
	k := newCarrier(c.Conn, c.Path, c.Fault)
	k.rtt = m.rtt
	if err := l.stream.attach(k, 1, m.received); err != nil {
		c.Conn.Close()
		return err
	}
	return nil
}

// Explain returns what the local helper knows about the first carrier's death, or
// err, what the link says.
func (l *Link) Explain(err error) error {
	if l.fault != nil {
		if known := l.fault(); known != nil {
			return known
		}
	}
	return err
}
