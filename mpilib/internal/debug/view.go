package debug

import (
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Comm is a communicator, as far as a watcher asks. Two of the same communicator are
// equal, so that they can be keys.
type Comm interface {
	Name() string
	Context() uint32 // the first of its contexts
	Rank() int
	Size() int
	WorldRank(rank int) int
	Global(rank int) int         // in the world, of a rank that messages name
	Members() iter.Seq[int]      // world ranks of this side
	Peers() iter.Seq[int]        // and of those that messages name
	Participants() iter.Seq[int] // and of all that its collective calls need
	Calls() int32                // collective calls begun
}

// Request is one of the program's, or a part of one of its collective calls. Two of the
// same request are equal.
type Request interface {
	Handle() *engine.Handle
	Transfer() Transfer
	Sighting() *Sighting
	See(*Sighting) // before it is started: Sighting returns it from then on
}

// Transfer says what a request, or a probe, is about.
type Transfer struct {
	fmt.Stringer // in words: "send to rank 3 of world, tag 7"

	Comm      Comm
	Send      bool
	Call      bool // it is a collective call: then nothing below counts
	Peer, Tag int  // may be wildcards
}

// LinkState is a link to another process, for the timeline.
type LinkState struct {
	Peer      int
	PeerNode  string
	Technique string
	Proxy     string
	Carriers  int
	Reason    string
	RTTMS     float64
	SetupMS   float64
}

// Config is what a watcher watches, and how.
type Config struct {
	Engine   *engine.Engine
	Parts    Parts
	Out      io.Writer     // for reports, each in one Write
	Patience time.Duration // after how long without a move ranks that wait say so
	Trace    string        // where the timeline goes; empty: nowhere
	Comms    []Comm        // that there are from the beginning

	Context uint32                    // of the watchers' own messages
	Program func(context uint32) bool // whether a context is one of the program's point-to-point messages
	Head    int                       // bytes of each such message that are not the program's
	Here    func() overlay.NodeID     // where this process is; zero: nobody says
	Links   func() []LinkState
}
