package debug

import (
	"fmt"
	"io"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/overlay"
)

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

	Comm      *comm.Core
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
	Comms    []*comm.Core  // that there are from the beginning

	Context uint32                    // of the watchers' own messages
	Program func(context uint32) bool // whether a context is one of the program's point-to-point messages
	Head    int                       // bytes of each such message that are not the program's
	Here    func() overlay.NodeID     // where this process is; zero: nobody says
	Links   func() []LinkState
}
