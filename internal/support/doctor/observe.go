package doctor

import (
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Observations are the raw results of a run, without any judgement.
type Observations struct {
	Self       string            // the daemon whose settings were used: "helper sitea/n1"
	Helper     bool              // it is a helper; else a frontal
	Start      time.Time         // by this host's clock
	Local      Local             // this host
	Services   []Service         // each daemon that was contacted
	Session    Session           // information from the daemon above
	Straight   *Connection       // around the HTTP proxy, where data goes through one
	Reflectors []Reflector       // public hosts of the grid, over TCP
	IPv6       []Reflector       // those with an IPv6 address, over IPv6
	UDP        Datagrams         // to the same, over UDP
	Path       *probe.PathReport // sizes and rates of datagrams to one that answered; nil if none did
	Inbound    Inbound           // whether outside connections reach this host
	Pair       *Pair             // nil unless requested
	Took       time.Duration     // of the whole run

	Settings string   // the daemon's settings file
	Denied   []string // what they deny, and the lines that permit it

	MeasuresMTU bool // the daemon's settings leave the packet size to a measurement
}

// Local is the state of the host itself.
type Local struct {
	Files        []File // certificate and CA of the daemon
	Socket       string // path of the helper's socket; empty on a gateway
	SocketErr    string // why it is unusable; empty if a helper answers
	SocketMode   string // "-rw-rw-rw- root"; empty if it does not exist
	SocketAbsent bool   // nothing is at the path
	SocketDenied bool   // permission denied
	SocketSilent bool   // a process accepts connections, and does not answer
}

// File is a certificate on this host.
type File struct {
	Path                string
	Whose               string // "helper sitea/n1", "the grid's CA"
	Err                 string // why it is unusable; empty if it can be read
	NotBefore, NotAfter time.Time
}

// Outcome is the result of an attempt to connect.
type Outcome string

// The outcomes.
const (
	Connected Outcome = "connected"
	Reset     Outcome = "reset"    // ECONNREFUSED or ECONNRESET
	Silent    Outcome = "silent"   // no answer within the bound
	ICMPError Outcome = "icmp"     // an error from the network
	Routeless Outcome = "no-route" // this host's routing table has no route
	NoPermit  Outcome = "local"    // this host's own rules refuse (EPERM, EACCES)
	NotTried  Outcome = ""
)

// Service is a daemon that this host must reach, observed layer by layer. A layer that was not
// reached has its zero value.
type Service struct {
	What    string // "frontal", "broker"
	Address string // host:port from the settings
	Via     string // host:port of the HTTP proxy on the path; empty: none

	Resolve Resolution // of Via if there is one, else of Address
	Connect Connection
	Tunnel  Tunnel
	TLS     Handshake
	Hello   Hello
	Segment Segments
}

// Resolution is the result of a name look-up.
type Resolution struct {
	Name     string // empty if the settings have an address
	Addrs    []netip.Addr
	Err      string
	NotFound bool // the name servers report that the name does not exist
	Took     time.Duration
}

// Connection is one attempt to connect.
type Connection struct {
	To      netip.AddrPort
	From    netip.AddrPort // valid if it connected
	Outcome Outcome
	Err     string
	Took    time.Duration
	Reply   string     // the ICMP error, in words; empty if unknown
	Replier netip.Addr // the sender of the error
	Hops    []Hop      // search for the place where packets are dropped; after Silent only
}

// Hop is the router that reported that a packet's TTL expired.
type Hop struct {
	TTL  int
	Addr netip.Addr
}

// Tunnel is an HTTP proxy's answer to CONNECT.
type Tunnel struct {
	Asked  bool
	Open   bool
	User   string // the user of the credentials sent; empty: none
	Status int    // 0 without an HTTP answer
	Err    string
}

// Handshake is a TLS handshake.
type Handshake struct {
	Tried   bool
	Done    bool
	Silent  bool   // nothing arrived within the bound
	Err     string // empty if Done
	Version string // "TLS 1.3"
	Chain   []Cert // as presented, the leaf first
	Took    time.Duration
}

// Cert is the relevant part of a presented certificate.
type Cert struct {
	Subject, Issuer     string
	Identity            string // in the grid: "broker b1"; empty for a foreign certificate
	OfGrid              bool   // its signature chains to the grid's CA, whatever its dates
	NotBefore, NotAfter time.Time
}

// Hello is the first frame after TLS.
type Hello struct {
	Got            bool
	Oldest, Newest uint8
	Software       string
	OwnOldest      uint8 // the versions of this build
	OwnNewest      uint8
	Refusal        string // the text of a refusal
	RefusedBy      string
	Err            string // why neither arrived
}

// Segments is which segment sizes passed, tested only after a handshake that stalled.
type Segments struct {
	Tried   bool
	Passed  []int // maximum segment sizes, in bytes, with which the handshake proceeded
	Stalled []int // sizes with which it did not; 0 is the path's own
	PathMTU int   // as the kernel knows it; 0: unknown
	Most    int   // maximum segment size of the first try, as the daemon uses it, in bytes; 0: the path's own
}

// Session is the information from the daemon above, over a visiting session.
type Session struct {
	Tried   bool
	At      string // host:port of the daemon above
	Err     string
	Gone    bool // Err means that the gateway has no session with the broker
	Profile *overlay.SiteProfile

	// Keeps and Refused are where two hosts are that present the daemon's certificate; invalid: no two do.
	Keeps, Refused netip.AddrPort

	NoDual     bool   // the list of reflectors has no proxy with addresses of both versions of IP
	Listed     bool   // the call Reflectors, which lists reflectors, succeeded
	ListErr    string // why not
	Unknown    bool   // a daemon on the path does not know the call
	BrokerTime time.Time
	Sent, Got  time.Time // by this host's clock, around the call
}

// Reflector is a public host of the grid, asked over TCP for the address it sees this host at. It is
// a broker or a proxy.
type Reflector struct {
	At      netip.AddrPort
	Via     string     // host:port of the HTTP proxy on the path; empty: none
	Connect Connection // to Via if there is one
	Tunnel  Tunnel
	Seen    netip.AddrPort // the source of the request; invalid if Err, unless TLS
	Err     string         // why there was no answer on an established connection
	TLS     bool           // the answer arrived inside TLS, and to a plain request none did
	Bulk    Bulk

	Options *probe.TCPOptions // of the connection; nil: unknown, or only those of the path to Via
}

// Bulk reports whether full-size segments arrive, by the other kernel's acknowledgements.
type Bulk struct {
	Tried   bool
	Passed  bool
	Smaller int // maximum segment size, in bytes, that did arrive when full-size segments did not; 0: none
	PathMTU int // as this host's kernel knows it
}

// Datagrams are requests to STUN servers, all from one port.
type Datagrams struct {
	Servers []netip.AddrPort
	Local   netip.AddrPort
	Seen    map[netip.AddrPort]netip.AddrPort // by server; absent without an answer
	Errs    map[netip.AddrPort]string         // ICMP errors, by server
	Waited  time.Duration
}

// Inbound is a call-back from outside, to a listening port.
type Inbound struct {
	Tried   bool
	To      netip.AddrPort
	From    string // the reflector
	Outcome Outcome
	Text    string // the reflector's text
	Arrived bool   // the listener accepted it
	Err     string // why it was not tried

	// Mapped is how reflectors see connections from that port; fewer than two do not show what
	// a NAT does.
	Mapped []Mapping
}

// Mapping is an address of this host as seen from outside.
type Mapping struct{ At, Seen netip.AddrPort }

// Pair is the broker's plan for two sites.
type Pair struct {
	A, B   string
	Plan   *overlay.Plan
	Err    string   // why there is no plan
	Asked  bool     // Err is the broker's answer; otherwise the broker could not be asked
	Absent []string // those of the two whose gateway has no session with the broker
	Store  string   // why the broker's store cannot be written; "" if it can, or there is none
}
