package proxy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/limit/pace"
)

// Config holds the daemon's settings, from its file and flags. The proxy's name is that of its
// certificate.
type Config struct {
	Listen        []netip.AddrPort `yaml:"listen" default:"[::]:443" help:"Addresses to accept the ends of links on. 443 is the port that most sites let out; it needs CAP_NET_BIND_SERVICE or root."`
	Advertise     []netip.AddrPort `yaml:"advertise" example:"203.0.113.7:443" help:"Addresses at which the nodes of all sites reach this proxy, in the order to try them. Without any these are the addresses of listen, with the address from which the proxy reaches its broker in place of a [::] or 0.0.0.0."`
	STUNListen    netip.AddrPort   `yaml:"stun_listen" default:"[::]:3478" help:"Address of the STUN server, by which sites learn their UDP mapping; the same TCP port tells them whether more than port 443 is let out. \"\" is none."`
	MetricsListen netip.AddrPort   `yaml:"metrics_listen" example:"127.0.0.1:9443" help:"Address at which Prometheus reads this daemon's figures, at /metrics. Whoever reaches it may read it: it names sites, proxies and projects. Without it there is none."`
	Broker        []string         `yaml:"broker" required:"true" example:"broker.example.org:443" help:"Host and port of the broker, or a list where there are several. The proxy keeps one connection to each, and serves on while they are away."`
	TLS           TLS              `yaml:"tls" help:"Who this proxy is, and whom it believes. Used towards the broker only: what the proxy relays is not its to read or to protect."`

	TicketTimeout time.Duration `yaml:"ticket_timeout" default:"5s" min:"100ms" max:"1m" help:"Time a new connection has to show its ticket."`
	PairTimeout   time.Duration `yaml:"pair_timeout" default:"10s" min:"100ms" max:"5m" help:"Time the first end of a link waits for the second."`
	IdleTimeout   time.Duration `yaml:"idle_timeout" default:"0s" min:"0s" help:"Silence after which a link is cut; 0s is never. A job that computes for long says nothing meanwhile: set it only where links must not outlive an outage."`

	Audit  audit.Config `yaml:"audit" help:"The audit log: every link that ended with its bytes, and every connection that was refused."`
	Quota  pace.Config  `yaml:"quota" help:"What each user, project and job may use of this proxy. Who is over a rate is slowed and never disconnected."`
	Limits LimitConfig  `yaml:"limits" help:"What the proxy takes on at most. What comes on top is refused as overloaded."`
	Socket SocketConfig `yaml:"socket" help:"How the sockets of links are set up."`
}

// TLS names the files of the proxy's certificate.
type TLS struct {
	Cert daemon.Path `yaml:"cert" required:"true" path:"file" example:"/var/lib/isthmus/proxy/tls/cert.pem" help:"This proxy's certificate (PEM)."`
	Key  daemon.Path `yaml:"key" required:"true" path:"file" example:"/var/lib/isthmus/proxy/tls/key.pem" help:"Its private key (PEM)."`
	CA   daemon.Path `yaml:"ca" required:"true" path:"file" example:"/var/lib/isthmus/proxy/tls/ca.pem" help:"The grid's CA certificate (PEM)."`

	Renew   bool        `yaml:"renew" default:"true" help:"Whether to renew the certificate after two thirds of its life, if the broker enrols. The file must be this daemon's to write; a certificate that somebody else puts there is taken over without a restart, too."`
	Revoked daemon.Path `yaml:"revoked" example:"$STATE/revoked.pem" help:"File to keep the grid's revocation list in. Empty: revoked.pem in the service manager's state folder (STATE_DIRECTORY); without one, the list is forgotten at the end and told anew by the peers."`
}

// LimitConfig is Limits in the form of settings.
type LimitConfig struct {
	Links      int `yaml:"links" default:"10000" min:"1" max:"1000000" help:"Links, those that wait for their second end included. A busy link takes up to six descriptors, an idle one two."`
	Waiting    int `yaml:"waiting" default:"4096" min:"1" max:"1000000" help:"Ends that wait for their partner."`
	Handshakes int `yaml:"handshakes" default:"1024" min:"1" max:"1000000" help:"Connections that have not shown their ticket yet. When there are as many, the source address that has the most loses its oldest, so that others get in."`
	PerSource  int `yaml:"handshakes_per_source" default:"512" min:"1" max:"1000000" help:"The same of one source: an IPv4 address, a /64 of IPv6."`
	Tickets    int `yaml:"tickets" default:"262144" min:"2" max:"16777216" help:"Used tickets to remember until they expire, about 150 bytes each."`
}

// SocketConfig is carrier.Tuning in the form of settings.
type SocketConfig struct {
	Congestion []string      `yaml:"congestion" help:"Congestion control algorithms; the first that the kernel has is used, whatever comes. Empty takes the system's choice, and bbr, where the kernel has it, for a link that loses data on the way though no queue is full."`
	Buffer     daemon.Size   `yaml:"buffer" default:"0" max:"64MiB" help:"Send and receive buffer of each socket. 0 lets the kernel adapt them, which is best unless measured otherwise."`
	KeepAlive  time.Duration `yaml:"keepalive" default:"15s" min:"1s" max:"2h" help:"Silence after which the kernel asks whether a peer is still there; unanswered for as long again, its link is cut. Keep it below the idle time of the NATs on the way."`
}

// Check checks that the keys fit together.
func (c Config) Check() error {
	if len(c.Listen) == 0 {
		return daemon.Wrong("listen", "needs at least one address")
	}
	for i, b := range c.Broker {
		if _, _, err := net.SplitHostPort(b); err != nil {
			return daemon.Wrong("broker", "want host:port: %v", err)
		} else if slices.Contains(c.Broker[:i], b) {
			return daemon.Wrong("broker", "%s is there twice", b)
		}
	}
	for _, a := range c.Advertise {
		if a.Addr().IsUnspecified() || a.Port() == 0 {
			return daemon.Wrong("advertise", "%v is no address that a node could dial", a)
		}
	}
	return c.Quota.Check("quota")
}

// Settings returns what a Server takes from the configuration: all but Name, Key and Quota.
func (c Config) Settings() Settings {
	return Settings{
		Limits:      Limits(c.Limits),
		TicketTime:  c.TicketTimeout,
		PairTimeout: c.PairTimeout,
		IdleTimeout: c.IdleTimeout,
		Tuning: carrier.Tuning{
			Congestion: c.Socket.Congestion, Buffer: int(c.Socket.Buffer), KeepAlive: c.Socket.KeepAlive,
		},
	}
}

// descriptors returns how many files may be open at once within the limits.
func (l Limits) descriptors() uint64 {
	const own = 64 // listeners, the broker's connection, idle pipes
	return uint64(6*l.Links + 2*l.Handshakes + own)
}

// openFiles returns an error when the process may not open as many files as its limits allow for.
func (l Limits) openFiles(allowed uint64) error {
	if need := l.descriptors(); allowed < need {
		return fmt.Errorf("limits allow for %d open files, the system for %d; raise the latter (ulimit -n, LimitNOFILE=) or lower limits.links", need, allowed)
	}
	return nil
}
