package doctor

import (
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Observations are what a run saw, without any judgement.
type Observations struct {
	Self     string        // the daemon whose settings were used: "helper sitea/n1"
	Helper   bool          // it is a helper; else a frontal
	Start    time.Time     // by this host's clock
	Local    Local         // this host
	Services []Service     // each daemon that was spoken to
	Session  Session       // what the daemon above told
	Straight *Connection   // past the HTTP proxy, where data goes through one
	Vantages []Vantage     // public hosts of the grid, over TCP
	IPv6     []Vantage     // those that have an IPv6 address, over that
	UDP      Datagrams     // the same, over UDP
	Path     *probe.Path   // sizes and paces of datagrams to one that answered; nil if none did
	Inbound  Inbound       // what reaches this host from outside
	Pair     *Pair         // nil unless a pair was asked for
	Took     time.Duration // of the whole run

	Settings string   // the daemon's settings file
	Denied   []string // what these deny, and the lines that permit it

	MeasuresMTU bool // the daemon's settings leave it to a measurement how large packets may be
}

// Local is what a look at the host itself showed.
type Local struct {
	Files        []File // certificate and CA of the daemon
	Socket       string // path of the helper's socket; empty when this is a gateway
	SocketErr    string // why it cannot be used; empty when somebody answers there
	SocketMode   string // "-rw-rw-rw- root"; empty when it is not there
	SocketAbsent bool   // nothing is at the path
	SocketDenied bool   // permission denied
}

// File is a certificate on this host.
type File struct {
	Path                string
	Whose               string // "helper sitea/n1", "the grid's CA"
	Err                 string // why it cannot be used; empty when it can be read
	NotBefore, NotAfter time.Time
}

// Outcome is how an attempt to connect ended.
type Outcome string

// The outcomes.
const (
	Connected Outcome = "connected"
	Reset     Outcome = "reset"    // ECONNREFUSED or ECONNRESET
	Silent    Outcome = "silent"   // nothing within the bound
	ICMPError Outcome = "icmp"     // an error came from the network
	Routeless Outcome = "no-route" // this host's own routing table has no way
	NoPermit  Outcome = "local"    // this host's own rules refuse (EPERM, EACCES)
	NotTried  Outcome = ""
)

// Service is a daemon that this host must reach, seen layer by layer. A layer
// that was not reached has its zero value.
type Service struct {
	What    string // "frontal", "broker"
	Address string // host:port of the settings
	Via     string // host:port of the HTTP proxy on the way; empty for none

	Resolve Resolution // of Via if there is one, else of Address
	Connect Connection
	Tunnel  Tunnel
	TLS     Handshake
	Hello   Hello
	Segment Segments
}

// Resolution is how a name became addresses.
type Resolution struct {
	Name     string // empty when the settings give an address
	Addrs    []netip.Addr
	Err      string
	NotFound bool // the name servers say that there is no such name
	Took     time.Duration
}

// Connection is one attempt to connect.
type Connection struct {
	To      netip.AddrPort
	From    netip.AddrPort // valid when it connected
	Outcome Outcome
	Err     string
	Took    time.Duration
	Reply   string     // the ICMP error, in words; empty if none is known
	Replier netip.Addr // who sent it
	Hops    []Hop      // of a look at where packets vanish; after Silent only
}

// Hop is the router that said that a packet's life ended there.
type Hop struct {
	TTL  int
	Addr netip.Addr
}

// Tunnel is an HTTP proxy's answer to CONNECT.
type Tunnel struct {
	Asked  bool
	Open   bool
	User   string // whose credentials were shown; empty for none
	Status int    // 0 when no HTTP answer came
	Err    string
}

// Handshake is a TLS hand-shake.
type Handshake struct {
	Tried   bool
	Done    bool
	Silent  bool   // nothing came back within the bound
	Err     string // empty when Done
	Version string // "TLS 1.3"
	Chain   []Cert // as presented, the leaf first
	Took    time.Duration
}

// Cert is what matters of a presented certificate.
type Cert struct {
	Subject, Issuer     string
	Identity            string // of the grid: "broker b1"; empty for a foreign certificate
	OfGrid              bool   // its signature leads to the grid's CA, whatever its dates
	NotBefore, NotAfter time.Time
}

// Hello is the first frame after TLS.
type Hello struct {
	Got            bool
	Oldest, Newest uint8
	Software       string
	OwnOldest      uint8 // what this build speaks
	OwnNewest      uint8
	Refusal        string // the words of a refusal
	RefusedBy      string
	Err            string // neither came
}

// Segments tells what sizes of segments got through, tried only after a
// hand-shake that stalled.
type Segments struct {
	Tried   bool
	Passed  []int // greatest segment sizes, in bytes, with which the hand-shake went on
	Stalled []int // sizes with which it did not; 0 is the path's own
	PathMTU int   // as the kernel knows it; 0 unknown
	Most    int   // greatest segment of the first try, as the daemon has it, in bytes; 0: the path's own
}

// Session is what the daemon above told on a session that only asks.
type Session struct {
	Tried   bool
	At      string // host:port of the daemon above
	Err     string
	Gone    bool // Err is that the gateway has no session with the broker
	Profile *overlay.SiteProfile

	Bearings    bool   // the call below worked
	BearingsErr string // why not
	Unknown     bool   // a daemon on the way does not know the call
	BrokerTime  time.Time
	Sent, Got   time.Time // by this host's clock, around the call
}

// Vantage is a public host of the grid, asked over TCP which address this host
// comes from. It is a broker or a proxy.
type Vantage struct {
	At      netip.AddrPort
	Via     string     // host:port of the HTTP proxy on the way; empty for none
	Connect Connection // to Via if there is one
	Tunnel  Tunnel
	Seen    netip.AddrPort // where the question came from; invalid when Err, unless TLS
	Err     string         // why no answer came over a connection that was made
	TLS     bool           // the answer came inside of TLS, and to a plain question none did
	Bulk    Bulk

	Options *probe.TCPOptions // of the connection; nil: not known, or they tell of the way to Via alone
}

// Bulk tells whether full-size segments arrive, by the other kernel's
// acknowledgements.
type Bulk struct {
	Tried   bool
	Passed  bool
	Smaller int // greatest segment size, in bytes, with which they did when full-size ones did not; 0 for none
	PathMTU int // as this host's kernel knows it
}

// Datagrams are questions to STUN servers, all from one port.
type Datagrams struct {
	Servers []netip.AddrPort
	Local   netip.AddrPort
	Seen    map[netip.AddrPort]netip.AddrPort // by server; one is missing that did not answer
	Errs    map[netip.AddrPort]string         // ICMP errors, by server
	Waited  time.Duration
}

// Inbound is a call back from outside, to a port that listened.
type Inbound struct {
	Tried   bool
	To      netip.AddrPort
	From    string // the vantage point
	Outcome Outcome
	Text    string // the vantage point's words
	Arrived bool   // the listener saw it
	Err     string // why it was not tried

	// Mapped is how vantage points see connections from that port; of fewer than two
	// it was not learned what a NAT does.
	Mapped []Mapping
}

// Mapping is an address of this host as somebody outside sees it.
type Mapping struct{ At, Seen netip.AddrPort }

// Pair is what the broker says of two sites.
type Pair struct {
	A, B   string
	Plan   *overlay.Plan
	Err    string   // why there is no plan
	Asked  bool     // Err is the broker's answer; else it could not be asked
	Absent []string // of the two, those whose gateway has no session with the broker
	Store  string   // why the broker's store cannot be written; "" if it can, or there is none
}
