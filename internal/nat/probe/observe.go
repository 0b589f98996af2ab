package probe

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Observations are the raw results of a measurement.
type Observations struct {
	Ports overlay.Ports // declared as let in by the admin; zero: none

	// Session means that the host that measures has a session with a broker, through the HTTP proxy if there is one.
	Session bool

	TCP   []View // connections to reflectors
	UDP   []View // STUN questions to reflectors
	Proxy *View  // the same through the site's HTTP proxy; nil: there is none
	Calls []Call // call-backs
	Cross *Cross // nil: not tried, since datagrams give the answer
	IPv6  []View // connections to reflectors over IPv6; Socket is unused

	// OverIPv6 are TCP, UDP, Calls and Cross over IPv6, and IPv6 again; nil: not tried, since no reflector saw
	// this host's own address over it.
	OverIPv6 *Observations

	Sizes   *PathSizes // nil: not tried, since no datagram was answered
	Rate    []RateStep // in the order of time
	RateErr string     // why there is none
	Raw     *Privilege // to send and receive raw packets; nil: not tried
	Port443 *Privilege // to bind port 443; nil: not tried
}

// Privilege says whether this process may do something.
type Privilege struct {
	Err string // why not; empty: it may
}

// View is one question to a reflector for this host's address.
type View struct {
	Socket int            // questions of one socket have equal numbers
	To     netip.AddrPort // the reflector
	Local  netip.AddrPort // of the socket, once connected or bound
	Seen   netip.AddrPort // the answer; not valid without one
	Err    string         // why there was no answer
	TLS    bool           // the answer came in TLS, and there was none to a plain question

	Options *TCPOptions // of the connection; nil: unknown, or not a connection
}

// TCPOptions are those that both ends of a connection agreed on. Every reflector on Linux
// offers all of them, unless its administrator disabled one.
type TCPOptions struct {
	Scale, Timestamps bool // RFC 7323
	SACK              bool // RFC 2018
	Segment           int  // bytes: the largest segment that is sent; 0: unknown
}

// Cross is a SYN from a reflector's port to a port of this host that had sent one there and had
// got no answer.
type Cross struct {
	From      netip.AddrPort // the reflector's port
	Connected bool           // this host answered, or the port's listener accepted
	Err       string         // why it was not tried
}

// Target is what a port had done before it was called back.
type Target uint8

// The targets.
const (
	Fresh    Target = iota + 1 // nothing: the port of the outside address with the local port's number
	InRange                    // nothing either, but it is in Observations.Ports
	Answered                   // its socket had asked the reflector with First set, and no other
)

// Call is one call-back.
type Call struct {
	Target  Target
	UDP     bool
	Port    uint16         // the local port
	From    netip.AddrPort // the reflector that called
	First   bool           // with Answered: it is the one that was asked, calling from another port
	Arrived bool           // the local socket received the nonce
	Outcome Outcome        // at the reflector
	Err     string         // why it was not made; the other results are meaningless then
}

// Outcome is the result of a call-back at the reflector.
type Outcome string

// The outcomes.
const (
	Connected   Outcome = "connected"
	Reset       Outcome = "reset"
	Unreachable Outcome = "unreachable" // another ICMP error than "no such port"
	Silent      Outcome = "silent"
)

// sort orders concurrent observations, so that equal sites have equal findings.
func (o *Observations) sort() {
	for _, views := range [][]View{o.TCP, o.UDP, o.IPv6} {
		slices.SortStableFunc(views, func(a, b View) int {
			return cmp.Or(cmp.Compare(a.Socket, b.Socket), a.To.Compare(b.To))
		})
	}
	if o.OverIPv6 != nil {
		o.OverIPv6.sort()
	}
	slices.SortStableFunc(o.Calls, func(a, b Call) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Port, b.Port), a.From.Compare(b.From))
	})
}
