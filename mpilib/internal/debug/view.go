package debug

import (
	"io"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib/internal/comm"
	"github.com/isthmus-grid/isthmus/mpilib/internal/engine"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Request is one of the program's, or a part of one of its collective calls. Two values for the
// same request are equal.
type Request interface {
	Handle() *engine.Handle
	Transfer() comm.Transfer
	Observation() *Observation
	SetObservation(*Observation) // before it is started: Observation returns it from then on
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

// Config is the configuration of a Watcher.
type Config struct {
	Engine   *engine.Engine
	Parts    Parts
	Out      io.Writer     // for reports, each in one Write
	Patience time.Duration // how long ranks wait without progress before they report it
	Trace    string        // file of the timeline; empty for none
	Comms    []*comm.Core  // that exist from the beginning

	Context uint32                    // of the watchers' own messages
	Program func(context uint32) bool // whether a context is one of the program's point-to-point messages
	Head    int                       // bytes of each such message that are not the program's
	Here    func() overlay.NodeID     // location of this process; zero if unknown
	Links   func() []LinkState
}
