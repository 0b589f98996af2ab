package proxy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
)

// Config holds the daemon's settings, from its file and flags. The proxy's name is that of its
// certificate.
type Config struct {
	Listen        []netip.AddrPort `yaml:"listen" default:"[::]:443" help:"Addresses to accept the ends of links on. Most sites permit port 443 outbound; it needs CAP_NET_BIND_SERVICE or root."`
	Advertise     []netip.AddrPort `yaml:"advertise" example:"203.0.113.7:443" help:"Addresses at which the nodes of all sites reach this proxy, in the order to try them. Empty: the addresses of listen, with [::] replaced by this host's addresses of both versions of IP, that from which the proxy reaches its broker first, and 0.0.0.0 by the IPv4 one; a private IPv4 address is left out beside a public IPv6 one."`
	STUNListen    netip.AddrPort   `yaml:"stun_listen" default:"[::]:3478" help:"Address of the STUN server, from which sites learn their UDP mapping; the same TCP port shows them whether their firewall permits ports other than 443 outbound. \"\" is none."`
	MetricsListen netip.AddrPort   `yaml:"metrics_listen" example:"127.0.0.1:9443" help:"Address at which Prometheus reads this daemon's metrics, at /metrics. There is no access control, and the metrics name sites, proxies and projects. Without it there is no metrics server."`
	Broker        []string         `yaml:"broker" required:"true" example:"broker.example.org:443" help:"Host and port of the broker, or a list where there are several. The proxy keeps one connection to each, and keeps serving while they are unreachable."`
	TLS           TLS              `yaml:"tls" help:"Certificate, key and CA of this proxy. Used only with the broker: the proxy neither reads nor protects what it relays."`

	TicketTimeout time.Duration `yaml:"ticket_timeout" default:"10s" min:"100ms" max:"1m" help:"Time within which a new connection must present its ticket."`
	PairTimeout   time.Duration `yaml:"pair_timeout" default:"10s" min:"100ms" max:"5m" help:"Time the first end of a link waits for the second."`
	IdleTimeout   time.Duration `yaml:"idle_timeout" default:"0s" min:"0s" help:"Idle time after which a link is cut; 0s is never. A job sends nothing during a long computation: set it only if links must not outlive an outage."`

	Audit  audit.Config     `yaml:"audit" help:"The audit log: every ended link with its bytes, and every refused connection."`
	Quota  ratelimit.Config `yaml:"quota" help:"Rates and quotas of users, projects and jobs at this proxy. Traffic over a rate is slowed, never disconnected."`
	Limits LimitConfig      `yaml:"limits" help:"Limits of the proxy. Requests over a limit are refused as overloaded."`
	Socket SocketConfig     `yaml:"socket" help:"How the sockets of links are set up."`
}

// TLS names the files of the proxy's certificate.
type TLS struct {
	Cert daemon.Path `yaml:"cert" required:"true" path:"file" example:"/var/lib/isthmus/proxy/tls/cert.pem" help:"This proxy's certificate (PEM)."`
	Key  daemon.Path `yaml:"key" required:"true" path:"file" example:"/var/lib/isthmus/proxy/tls/key.pem" help:"Its private key (PEM)."`
	CA   daemon.Path `yaml:"ca" required:"true" path:"file" example:"/var/lib/isthmus/proxy/tls/ca.pem" help:"The grid's CA certificate (PEM)."`

	Renew   bool        `yaml:"renew" default:"true" help:"Whether to renew the certificate after two thirds of its life, if the broker enrols. The daemon must be able to write the file; a certificate that is replaced by other means is also loaded without a restart."`
	Revoked daemon.Path `yaml:"revoked" example:"$STATE/revoked.pem" help:"File for the grid's revocation list. Empty: revoked.pem in the service manager's state folder (STATE_DIRECTORY); without one, the list is lost when the daemon ends, and the peers send it again."`
}

// LimitConfig is Limits in the form of settings.
type LimitConfig struct {
	Links      int `yaml:"links" default:"10000" min:"1" max:"1000000" help:"Links, including those that wait for their second end. A busy link takes up to six descriptors, an idle one two."`
	Waiting    int `yaml:"waiting" default:"4096" min:"1" max:"1000000" help:"Ends that wait for their partner."`
	Handshakes int `yaml:"handshakes" default:"1024" min:"1" max:"1000000" help:"Connections that have not presented their ticket yet. At the limit, the source address with the most connections loses its oldest one to make room."`
	PerSource  int `yaml:"handshakes_per_source" default:"512" min:"1" max:"1000000" help:"The same for one source: an IPv4 address, an IPv6 /64."`
	Tickets    int `yaml:"tickets" default:"262144" min:"2" max:"16777216" help:"Used tickets to remember until they expire, about 150 bytes each."`
}

// SocketConfig is carrier.Tuning in the form of settings.
type SocketConfig struct {
	Congestion []string      `yaml:"congestion" help:"Congestion control algorithms; the first that the kernel supports is used in all cases. Empty uses the system's default, and bbr, if the kernel has it, for a link that loses data although no queue is full."`
	Buffer     daemon.Size   `yaml:"buffer" default:"0" max:"64MiB" help:"Send and receive buffer of each socket. 0 lets the kernel adapt them, which is best unless measured otherwise."`
	KeepAlive  time.Duration `yaml:"keepalive" default:"15s" min:"1s" max:"2h" help:"TCP keepalive idle time; a peer that does not answer for as long again loses its link. Keep it below the idle timeout of the NATs on the path."`
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
			return daemon.Wrong("broker", "%s is given twice", b)
		}
	}
	for _, a := range c.Advertise {
		// A loopback address is one of a grid on one host, which the broker has to permit.
		if kind := multihome.Unreachable(a.Addr()); kind != "" && kind != "loopback" || a.Port() == 0 {
			return daemon.Wrong("advertise", "%v is not an address that a node can dial", a)
		}
	}
	return c.Quota.Check("quota")
}

// CheckFiles checks the files that the keys name.
func (c Config) CheckFiles() error {
	return control.CheckFiles(c.TLS.Cert, c.TLS.Key, c.TLS.CA, control.OfRole(control.RoleProxy, ""))
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
