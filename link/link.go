// Package link makes the one link between two processes of a job, and keeps it while its
// connections come and go: it authenticates carriers end to end, ensures that two processes that
// dial each other at the same time end with exactly one link (pair.go decides, Mesh acts), and gets
// a link other carriers when it needs them (supervisor.go). Package stream carries the bytes.
//
// The package knows ranks, keys and carriers. It does not know what flows over a link, how a
// carrier was made, or which code asked for it. The state is in the Mesh: for each rank of the job,
// the link that exists or is being made.
package link

import (
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/link/stream"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Link is an authenticated stream to one other process. Its owner closes Conn.
type Link struct {
	Conn       Conn // its first byte is the first that the peer wrote on this link
	Peer       overlay.ProcessName
	Generation overlay.Generation // of the peer
	Dialled    bool               // this side dialled the first carrier
	Path       overlay.Path       // of the first carrier
	RTT        time.Duration      // of the handshake: one round trip plus the peer's processing

	windows bool // the peer understands windows

	id     wire.ID
	stream *stream.Stream
	fault  func() error
	done   chan struct{}
	up     atomic.Bool                  // the link was handed up
	open   atomic.Pointer[overlay.Path] // path of the latest carrier that no daemon counts; nil: there was none
	lossy  atomic.Bool                  // what this end sent was lost, on some path: the next probably shares the part that loses it
}

// Done returns a channel that is closed when the link is over: closed by both ends, lost, or closed
// here and the time for written data to arrive has passed. It is nil in the zero Link.
func (l *Link) Done() <-chan struct{} { return l.done }

// Conn is a link's connection; see package stream.
type Conn interface {
	// The error of a link that is over never matches os.ErrDeadlineExceeded, which is reserved for
	// the deadlines of these methods.
	net.Conn

	// SetUser sets who is told what happens to the connection.
	SetUser(stream.User)

	// Append adds a copy of head, and body as how says, for Flush or Push to write. It never blocks, and takes
	// all or nothing. If it refuses, because too much waits to be written, the user's Writable is called once it
	// would not. What it refers to is released with mark; 0: it refers to nothing.
	Append(how stream.How, head, body []byte) (mark uint64, ok bool, err error)

	// Flush writes what was appended as far as that does not block, and reports whether it has left something, for
	// Push or the next Flush to write. With rest it leaves nothing: a goroutine of the link's writes that.
	Flush(rest bool) (left bool)

	// Push is Flush for a caller that waits: it writes once, however long that takes, and reports whether there is
	// more for it to write.
	Push() (more bool)

	// Released reports whether nothing refers any more to what was lent before mark: the peer's process
	// has taken it, or the link is over. If not, a Read returns 0 bytes without an error when that is so.
	Released(mark uint64) bool

	// Reclaim returns to the caller what was lent from from up to next; what the peer may still need is copied, so much at a
	// time that next may be less than to. It refuses while some of it is being written; the user's Writable follows.
	Reclaim(from, to uint64) (next uint64, ok bool)

	// Calm makes reads sleep at once when no data is there, instead of spinning, from now on.
	Calm()

	// CloseWrite ends this direction; the peer reads io.EOF after what was written.
	CloseWrite() error
}

// newLink makes a link from a handshake. It has no carrier yet.
func newLink(c overlay.Carrier, m met, dialled bool) *Link {
	return &Link{
		Peer: overlay.ProcessName{Job: m.hello.Job, Rank: m.hello.From}, Generation: m.hello.Generation,
		Dialled: dialled, Path: c.Path, RTT: m.rtt, id: m.link, fault: c.Fault,
		done: make(chan struct{}), windows: m.hello.Features&wire.FeatureWindow != 0,
	}
}

// begin makes the link's stream. o holds all options but those that depend on the peer.
func (l *Link) begin(o stream.Options) {
	ended := o.Ended
	o.Peer, o.Windows, o.Ended = l.Peer.String(), l.windows, func() { close(l.done); ended() }
	l.stream = stream.New(o)
	l.Conn = l.stream
}

// attach adds a carrier to the link, which owns it from then on.
func (l *Link) attach(c overlay.Carrier, m met) (*stream.Carrier, error) {
	if c.Path.Uncounted() {
		l.open.Store(&c.Path)
	}
	socket := stream.SocketOf(c.Conn)
	if socket != nil && l.lossy.Load() {
		carrier.TolerateLoss(socket)
	}
	return l.stream.Attach(c.Conn, &carrierInfo{
		path: c.Path, idle: c.Idle, fault: c.Fault, outcome: c.Outcome, since: time.Now(), socket: socket,
	}, m.received, m.rtt)
}

// carrierInfo is what a link records about a carrier.
type carrierInfo struct {
	path  overlay.Path
	idle  time.Duration // overlay.Carrier.Idle
	fault func() error  // what the helper knows of its death; may be nil
	left  atomic.Bool   // it is to be closed soon

	since   time.Time
	outcome func(err error)        // overlay.Carrier.Outcome
	reason  atomic.Pointer[string] // replaces the helper's reason for the path when a measurement gave another; or nil

	// Owned by the goroutine that watches the mesh's links:
	socket     *net.TCPConn       // nil: there is none, and losses cannot be measured
	loss       *carrier.LossWatch // of the socket; nil: too little has been sent
	looked     uint64             // bytes sent at the last check
	totalBytes uint64             // bytes moved both ways at the latest reading (ranking.go)
	placed     bool               // local was determined
	local      netip.Addr         // of the socket; invalid: unknown (moved.go)
}

// pathOf returns a carrier's path with the current reason for it.
func pathOf(c *stream.Carrier) overlay.Path {
	a := c.Owner.(*carrierInfo)
	path := a.path
	if why := a.reason.Load(); why != nil {
		path.Reason = *why
	}
	return path
}

// A Carrier is the state of one of a link's carriers at one time.
type Carrier struct {
	stream.State
	Path overlay.Path
}

// Carriers returns the link's carriers, the oldest first.
func (l *Link) Carriers() []Carrier {
	states := l.stream.Carriers()
	all := make([]Carrier, len(states))
	for i, s := range states {
		all[i] = Carrier{s, pathOf(s.Carrier)}
	}
	return all
}

// Current returns the path on which this end sends, that of the oldest carrier if there are
// several, and the round trip last measured there; without a carrier, those of the first carrier.
func (l *Link) Current() (overlay.Path, time.Duration) {
	if l.stream == nil {
		return l.Path, l.RTT
	}
	for _, s := range l.stream.Carriers() {
		if s.Used {
			return pathOf(s.Carrier), s.RTT
		}
	}
	return l.Path, l.RTT
}

// A link must have had more to send than its carriers took for minHeld and minTrips round trips
// before its rate says what the carriers can carry: earlier, it shows only how congestion control
// starts.
const (
	minHeld  = 2 * stream.Tick
	minTrips = 4
)

// Bandwidth returns how many bytes a second this link's carriers took from this end while there was
// more to take, or 0 if that was never the case for long enough to tell.
func (l *Link) Bandwidth() float64 {
	if l.stream == nil {
		return 0
	}
	_, rtt := l.Current()
	return bandwidthOf(l.stream.Load(), rtt)
}

func bandwidthOf(load stream.Load, rtt time.Duration) float64 {
	if load.HeldFor < max(minHeld, minTrips*rtt) {
		return 0
	}
	return float64(load.HeldBytes) / load.HeldFor.Seconds()
}

// BoundUnsent makes the kernel hold no more than about bytes that it cannot send yet, on each carrier
// that is a TCP connection, from now on.
func (l *Link) BoundUnsent(bytes int) {
	if l.stream != nil {
		stream.BoundUnsent(l.stream, bytes)
	}
}

// Explain returns what the local helper knows about the death of the carrier of a link with only
// one, or else err, the link's own error.
func (l *Link) Explain(err error) error {
	if l.fault != nil {
		if known := l.fault(); known != nil {
			return known
		}
	}
	return err
}
