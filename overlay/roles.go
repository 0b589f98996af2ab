package overlay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Path describes how a carrier was made, for users who ask which way the data goes.
type Path struct {
	Technique Technique     // zero for processes of one node
	Via       Via           // gateways that carry the data
	Proxy     string        // the relay's name, with Technique Relay
	Peer      NodeID        // where the other process runs
	Reason    string        // why this technique was chosen
	Setup     time.Duration // from the request to the connected carrier, as seen by the helper
	Cipher    string        // the TLS cipher suite of the processes on it; empty: none
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
	Here NodeID // of this end; zero without a helper
	Seal bool   // this end's site wants it encrypted (Encryption.Wants)

	// Idle is how long this end's site certainly keeps the state of the carrier while it is idle
	// (SiteProfile.Idle); 0: unknown.
	Idle time.Duration

	// Fault returns what the local helper learned later about this carrier, such as that the other
	// end could not reach the relay; nil if nothing. Fault itself may be nil. Call it when Conn
	// fails: it knows more than the socket.
	Fault func() error

	// Outcome, if not nil, is called once with the result of the link's handshake on a dialled
	// carrier: nil when both ends have authenticated themselves, otherwise why they could not, if
	// that says something about the path. It does not block. It may be called once more, later,
	// with ErrInferior: the path is given up for another.
	Outcome func(err error)
}

// Connector lets a process reach the others of its job and be reached by them. The node's helper
// implements the service, or, without daemons, sockets in a directory. It is safe for concurrent
// use.
type Connector interface {
	// Dial returns a carrier to the peer, made in one of the given ways. It waits for a peer that
	// has not started yet, but not for one that is known to have ended (ErrEnded). It ends with ctx; the error names the peer, what was tried and why each
	// attempt failed.
	Dial(ctx context.Context, peer ProcessName, ways Ways) (Carrier, error)

	// Accept returns the next carrier that another process of the job opened,
	// in order of arrival. It fails with net.ErrClosed after Close.
	Accept(ctx context.Context) (Carrier, error)

	// Close withdraws the process: its name can no longer be dialled. Carriers that were handed out
	// are not affected.
	Close() error
}

// Reserver is a Connector that keeps a relay ready for a link, so that the link survives the death
// of all its paths while no daemon of the control plane can be asked for another. Both ends dial
// it, with Reserved.
type Reserver interface {
	// Reserve requests that a relay be kept ready to a generation of a process. It does not block,
	// and does not report the result. Call it repeatedly while there is a link: a relay is ready
	// for some minutes only, and for one use.
	Reserve(peer ProcessName, life Generation)
}

// Error classes that callers distinguish with errors.Is. Every error that crosses a daemon keeps
// its class.
var (
	ErrUnknownProcess = errors.New("process is not registered")         // it may start later
	ErrEnded          = errors.New("process has ended")                 // it was registered, and has died
	ErrUnknownSite    = errors.New("site is not connected")             // its frontal has no session with the broker
	ErrNoPath         = errors.New("no technique connects the sites")   // the plan has no step
	ErrRefused        = errors.New("refused")                           // the other side refused
	ErrTimeout        = errors.New("timed out")                         // no answer
	ErrOverloaded     = errors.New("overloaded")                        // a bound was reached; try later
	ErrUnreachable    = errors.New("unreachable")                       // the network reported it
	ErrDuplicate      = errors.New("another link of the pair was kept") // both ends dialled at once
	ErrStale          = errors.New("access point is stale")             // an older generation of the process
	ErrForbidden      = errors.New("not permitted")                     // identity or policy
	ErrPortRangeFull  = errors.New("no free port in the site's range")
	ErrNoRelay        = errors.New("no proxy is available")
	ErrInferior       = errors.New("another path is better") // by the measured throughput of both

	// ErrNoSession is the ErrUnreachable between daemons: a required control session is down. It
	// will return, and its absence says nothing about paths for data.
	ErrNoSession = fmt.Errorf("%w", ErrUnreachable)

	// ErrLeft is the ErrEnded of a process that left its job in order: it did not fail. A code on the wire
	// does not tell the two apart.
	ErrLeft = fmt.Errorf("%w: it has left the job", ErrEnded)
)
