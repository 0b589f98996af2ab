package overlay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Path describes how a carrier was made: what a person is told when asking
// which way the data goes.
type Path struct {
	Technique Technique     // zero for processes of one node
	Via       Via           // gateways that carry the data
	Proxy     string        // the relay's name, with Technique Relay
	Peer      NodeID        // where the other process runs
	Reason    string        // why this technique was taken
	Setup     time.Duration // from the request to the connected carrier, seen by the helper
	Cipher    string        // the TLS cipher suite that the processes use on it; empty: none
	Small     bool          // its packets have at most 576 bytes, because larger ones vanish on the way
}

// String describes the path in one line: "relay through p1, via asker's gateway".
func (p Path) String() string {
	s := "same node"
	if p.Technique != 0 {
		s = p.Technique.String()
	}
	if p.Proxy != "" {
		s += " through " + p.Proxy
	}
	if v := p.Via.String(); v != "" {
		s += ", via " + v
	}
	if p.Small {
		s += ", in small packets"
	}
	return s
}

// Carrier is a connected byte stream between two processes, not yet
// authenticated to them: the first bytes on it are the link's hello.
type Carrier struct {
	Conn net.Conn
	Path Path
	Here NodeID // of this end; zero where no helper says
	Seal bool   // this end's site wants it encrypted (Encryption.Wants)

	// Idle is how long this end's site certainly remembers the carrier while
	// nothing passes (SiteProfile.Idle); 0: not known.
	Idle time.Duration

	// Fault returns what the local helper learned later about this carrier,
	// such as that the other end could not reach the relay; nil if nothing. It
	// may be nil. Ask it when Conn fails: it knows more than the socket.
	Fault func() error

	// Outcome, if any, is told once what came of the link's handshake on a carrier
	// that was dialled: nil when both ends have proved themselves, else why they
	// could not, where that says something of the path. It does not wait. It may be
	// told once more, later: ErrInferior, and the path is given up for another.
	Outcome func(err error)
}

// Connector is what a process needs in order to reach the others of its job
// and to be reached by them. The node's helper stands behind it, or, where no
// daemon runs, sockets in a directory. Safe for concurrent use.
type Connector interface {
	// Dial returns a carrier to the peer, made in one of the given ways. It waits
	// for a peer that has not started yet. It ends with ctx; the error names the
	// peer, what was tried and why each try failed.
	Dial(ctx context.Context, peer ProcessName, ways Ways) (Carrier, error)

	// Accept returns the next carrier that another process of the job opened,
	// in order of arrival. It fails with net.ErrClosed after Close.
	Accept(ctx context.Context) (Carrier, error)

	// Close withdraws the process: its name can no longer be dialled. Carriers
	// handed out stay as they are.
	Close() error
}

// Reserver is a Connector that keeps a relay ready for a link, which gets the link over
// the death of all its paths while no daemon of the control plane can be asked for
// another. Both ends dial it, with Reserved.
type Reserver interface {
	// Reserve sees to it that a relay is ready to a process in one of its lives. It
	// does not wait, and nobody hears whether it comes to anything. Call it now and
	// then while there is a link: a relay is ready for some minutes only, and for one
	// use.
	Reserve(peer ProcessName, life Generation)
}

// What callers tell apart with errors.Is. Every error that crosses a daemon
// keeps its class on the way.
var (
	ErrUnknownProcess = errors.New("process is not registered")         // it may yet start
	ErrEnded          = errors.New("process has ended")                 // it was there, and has died
	ErrUnknownSite    = errors.New("site is not connected")             // its frontal has no session with the broker
	ErrNoPath         = errors.New("no technique connects the sites")   // the plan has no step
	ErrRefused        = errors.New("refused")                           // the other side said no
	ErrTimeout        = errors.New("timed out")                         // nobody said anything
	ErrOverloaded     = errors.New("overloaded")                        // a bound was reached; try later
	ErrUnreachable    = errors.New("unreachable")                       // the network said no
	ErrDuplicate      = errors.New("another link of the pair was kept") // both dialled at once
	ErrStale          = errors.New("access point is stale")             // an older life of the process
	ErrForbidden      = errors.New("not permitted")                     // identity or policy
	ErrPortRangeFull  = errors.New("no free port in the site's range")
	ErrNoRelay        = errors.New("no proxy is available")
	ErrInferior       = errors.New("another path is better") // by what both were measured to carry

	// ErrNoSession is the ErrUnreachable of daemons among themselves: a control
	// session is away that somebody needed. It comes back, and it says nothing
	// of paths for data.
	ErrNoSession = fmt.Errorf("%w", ErrUnreachable)
)
