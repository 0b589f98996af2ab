// Package link makes the one link between two processes of a job, and keeps it
// though its connections come and go: it authenticates carriers end to end, sees
// to it that two processes that dial each other at the same instant end with
// exactly one link (the decisions in pair.go, carried out by Mesh), and gets a
// link other carriers when it needs them (keep.go). Package stream carries the
// bytes.
//
// The package knows ranks, keys and carriers. It refuses to know what flows
// over a link, how a carrier was made, and who asked for it. State is in the
// Mesh: for each rank of the job what link it has or is about to get.
package link

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/link/stream"
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

	windows bool // the peer understands them

	id     wire.ID
	stream *stream.Stream
	fault  func() error
	done   chan struct{}
	up     atomic.Bool                  // it was handed up
	open   atomic.Pointer[overlay.Path] // the latest carrier's that no daemon counts; nil: there was none
}

// Done is closed when the link is over: closed by both ends, lost, or closed here
// and the time for what was written to arrive is over. It is nil in the zero Link.
func (l *Link) Done() <-chan struct{} { return l.done }

// Conn is a link's connection; see package stream.
type Conn interface {
	// The error of a link that is over never matches os.ErrDeadlineExceeded, which
	// is for the deadlines of these methods alone.
	net.Conn

	// WriteBuffers writes several buffers as one. It leaves bufs as they are.
	WriteBuffers(bufs [][]byte) (int64, error)

	// Post is Write that never waits: it copies all of p, or returns false because
	// there is no room for it now or another write is under way.
	Post(p []byte) (bool, error)

	// Lend is WriteBuffers without a copy of large buffers: they must stay as
	// they are until Await says that the peer's process has everything before mark.
	// After an error the n bytes that were written have been copied.
	Lend(bufs [][]byte) (n int64, mark uint64, err error)

	// Reclaim gives back all that was lent; what the peer may still need is copied.
	Reclaim()

	// Await waits until the peer's process has taken everything before mark, the
	// write deadline has passed or the link is over; the latter two are errors.
	Await(mark uint64) error

	// Calm has reads sleep at once where nothing is there, from now on.
	Calm()

	// CloseWrite ends this direction; the peer reads io.EOF behind what was
	// written.
	CloseWrite() error
}

// newLink makes a link of a handshake. It has no carrier yet.
func newLink(c overlay.Carrier, m met, dialled bool) *Link {
	return &Link{
		Peer: overlay.ProcessName{Job: m.hello.Job, Rank: m.hello.From}, Generation: m.hello.Generation,
		Dialled: dialled, Path: c.Path, RTT: m.rtt, id: m.link, fault: c.Fault,
		done: make(chan struct{}), windows: m.hello.Features&wire.FeatureWindow != 0,
	}
}

// begin makes the link's stream, of which o says everything but the peer's name.
func (l *Link) begin(o stream.Options) {
	ended := o.Ended
	o.Peer, o.Windows, o.Ended = l.Peer.String(), l.windows, func() { close(l.done); ended() }
	l.stream = stream.New(o)
	l.Conn = l.stream
}

// attach gives the link a carrier, which it owns from then on.
func (l *Link) attach(c overlay.Carrier, m met) (*stream.Carrier, error) {
	if c.Path.Uncounted() {
		l.open.Store(&c.Path)
	}
	return l.stream.Attach(c.Conn, &about{
		path: c.Path, idle: c.Idle, fault: c.Fault, outcome: c.Outcome, since: time.Now(), socket: stream.SocketOf(c.Conn),
	}, m.received, m.rtt)
}

// about is what a link wants to know of a carrier.
type about struct {
	path  overlay.Path
	idle  time.Duration // overlay.Carrier.Idle
	fault func() error  // what the helper knows of its death; may be nil
	left  atomic.Bool   // it is to end soon

	since   time.Time
	outcome func(err error)        // overlay.Carrier.Outcome
	reason  atomic.Pointer[string] // for the path, where measuring has given another than the helper had; or nil

	// The goroutine that watches the mesh's links owns these.
	socket  *net.TCPConn       // nil: there is none, and nobody can tell
	loss    *carrier.LossWatch // of the socket; nil: nothing has been sent to speak of
	looked  uint64             // bytes that had been sent at the last look
	carried uint64             // bytes that it had brought, both ways, at the latest reading (ranking.go)
}

// pathOf returns a carrier's path, with the reason for it that holds now.
func pathOf(c *stream.Carrier) overlay.Path {
	a := c.About.(*about)
	path := a.path
	if why := a.reason.Load(); why != nil {
		path.Reason = *why
	}
	return path
}

// A Carrier is one of a link's at a moment.
type Carrier struct {
	stream.State
	Path overlay.Path
}

// Carriers returns those that the link has, the oldest first.
func (l *Link) Carriers() []Carrier {
	states := l.stream.Carriers()
	all := make([]Carrier, len(states))
	for i, s := range states {
		all[i] = Carrier{s, pathOf(s.Carrier)}
	}
	return all
}

// Current returns the path on which this end sends, with several that of the
// oldest carrier, and the round trip measured there last; the first carrier's
// where there is none at the moment.
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

// minHeld, and as many round trips as minTrips, is for how long a link must have had more to send
// than its carriers took before that says what they carry: before, it says how
// congestion control begins.
const (
	minHeld  = 2 * stream.Tick
	minTrips = 4
)

// Bandwidth returns how many bytes a second this link's carriers took from this end
// while there was more for them to take, or 0: there never was for long enough, so
// nobody knows.
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

// Explain returns what the local helper knows about the death of the carrier of
// a link that has but one, or err, what the link says.
func (l *Link) Explain(err error) error {
	if l.fault != nil {
		if known := l.fault(); known != nil {
			return known
		}
	}
	return err
}
