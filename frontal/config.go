package frontal

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/gateway"
	"github.com/isthmus-grid/isthmus/frontal/permit"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/internal/policy"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Config is a frontal's settings, as its file and flags give them.
type Config struct {
	Site      string    `yaml:"site" required:"true" example:"sitea" help:"The site of this gateway. The certificate must name the same site."`
	Broker    []string  `yaml:"broker" required:"true" example:"broker.example.org:443" help:"Address of the broker, host:port, or a list of several. The frontal makes one outbound connection to each. It registers the site at all of them and sends requests to one, and to the next when that one is unreachable."`
	HTTPProxy HTTPProxy `yaml:"http_proxy" help:"The HTTP proxy through which the site reaches other networks, if required. The session with the broker uses it and, with profile.egress: http-proxy, so does data carried for nodes."`
	TLS       TLS       `yaml:"tls" help:"Certificate, key and CA of this daemon."`

	Listen        netip.AddrPort `yaml:"listen" required:"true" example:"10.1.0.1:7440" help:"Address inside the site to accept the helpers' control sessions on."`
	DataListen    netip.AddrPort `yaml:"data_listen" example:"10.1.0.1:7441" help:"Address inside the site to accept the data of nodes that have no route out. Only, and required, with profile.gateway_only. With port 0 the system chooses; the frontal announces the port to the helpers."`
	PublicListen  netip.AddrPort `yaml:"public_listen" example:"192.0.2.1:20000" help:"Address to accept data for the site's processes from other sites on. Only, and required, with profile.gateway_only and inbound ports or open. Port 0 chooses a free one of profile.ports."`
	PublicAddress netip.AddrPort `yaml:"public_address" example:"198.51.100.7:20000" help:"The address at which other sites reach public_listen, if a NAT translates it. Port 0 means the port of public_listen."`

	MetricsListen netip.AddrPort `yaml:"metrics_listen" example:"127.0.0.1:9442" help:"Address at which Prometheus reads this daemon's metrics, at /metrics. There is no access control, and the metrics name sites, proxies and projects. Without it there is no metrics server."`

	Profile Profile        `yaml:"profile" help:"What the site's firewall, NAT and routes let through. The broker uses it to decide how this site's processes connect. Fields set to auto are measured; until then, and where the measurement is inconclusive, the site counts as closed."`
	Deny    []netip.Prefix `yaml:"deny" example:"10.9.0.0/16" help:"Networks that the gateway never dials, inside or outside the site, besides loopback, link-local and multicast networks: for example the site's management network."`
	Private []netip.Prefix `yaml:"private" example:"10.64.0.0/10" help:"Private networks (RFC 1918, 6598, 4193) in which processes of other sites are, if such networks are routed between sites, and networks that this host is in, public ones too, if other sites share them: each of those by itself, as a larger one does not include it. Other addresses of remote processes on private networks and on this host's own are not dialled: they belong to hosts of this site."`

	NodeNetworks []netip.Prefix `yaml:"node_networks" example:"10.1.8.0/24" help:"Networks of addresses at which this site's helpers may listen, besides the source address of a helper's session: those of a second interface, which the helper's setting address names."`

	Policy daemon.Path `yaml:"policy" path:"file" example:"/etc/isthmus/policy.yaml" help:"File that says which links with other sites are permitted, for whom, how and when: see policy.yaml beside this file. What no rule allows is refused. Without it, links stay inside the site."`

	Encryption Encryption `yaml:"encryption" help:"Which traffic between processes on different nodes is encrypted end to end. Traffic between two sites is encrypted if either requires it. Within one node nothing is encrypted."`

	Grace    time.Duration    `yaml:"grace" default:"60s" min:"1s" help:"How long the processes of a helper stay registered after its session ended, so that it can reconnect."`
	CacheAge time.Duration    `yaml:"cache_age" default:"10m" min:"1s" help:"How long an answer of the broker is cached. An answer whose connection fails is dropped at once; while the broker is unreachable, old answers stay valid."`
	Patience time.Duration    `yaml:"patience" default:"2s" min:"0s" max:"1m" help:"How long calls wait for an unreachable broker. If the outage lasts longer, they fail at once."`
	Measure  time.Duration    `yaml:"measure" default:"1h" min:"0s" help:"How often the site's profile is measured with the help of broker and proxies, for the fields set to auto and to verify the others; 0s is never."`
	Dial     time.Duration    `yaml:"dial_timeout" default:"10s" min:"1s" max:"2m" help:"Timeout for dialling an address to carry data to."`
	Audit    audit.Config     `yaml:"audit" help:"The audit log: every carried link with its bytes, every session of a helper, and every refusal."`
	Quota    ratelimit.Config `yaml:"quota" help:"Rates and quotas of users, projects and jobs for traffic that this gateway carries for nodes with no route out. Traffic over a rate is slowed, never disconnected."`
	Limits   Limits           `yaml:"limits" help:"Limits of the frontal. Requests over a limit are refused with an error."`
}

// HTTPProxy describes the HTTP proxy through which the site reaches other networks.
type HTTPProxy struct {
	Address      string      `yaml:"address" example:"proxy.example.org:3128" help:"The proxy, as host:port. It must allow CONNECT to port 443."`
	User         string      `yaml:"user" help:"User name for the proxy, if it requires one (RFC 7617)."`
	PasswordFile daemon.Path `yaml:"password_file" path:"file" help:"File with the password. A trailing line ending is ignored."`
}

// TLS names the files of the frontal's certificate, its key and the CA.
type TLS struct {
	Cert daemon.Path `yaml:"cert" required:"true" path:"file" example:"/var/lib/isthmus/frontal/tls/cert.pem" help:"The frontal's certificate, PEM, issued by the grid's CA for this site."`
	Key  daemon.Path `yaml:"key" required:"true" path:"file" example:"/var/lib/isthmus/frontal/tls/key.pem" help:"The certificate's key, PEM."`
	CA   daemon.Path `yaml:"ca" required:"true" path:"file" example:"/var/lib/isthmus/frontal/tls/ca.pem" help:"The certificate of the grid's CA, PEM."`

	Renew   bool        `yaml:"renew" default:"true" help:"Whether to renew the certificate after two thirds of its life, if the broker enrols. The daemon must be able to write the file; a certificate that is replaced by other means is also loaded without a restart."`
	Revoked daemon.Path `yaml:"revoked" example:"$STATE/revoked.pem" help:"File for the grid's revocation list. Empty: revoked.pem in the service manager's state folder (STATE_DIRECTORY); without one, the list is lost when the daemon ends, and the peers send it again."`
}

// Profile is a site's profile as its admin writes it.
type Profile struct {
	Inbound       Setting[overlay.Inbound] `yaml:"inbound" default:"auto" help:"Which connections from other sites can reach a listener: none, ports (those of profile.ports) or open (all). For a gateway_only site, a listener of the gateway."`
	Ports         Ports                    `yaml:"ports" help:"The TCP ports that the firewall permits inbound, with inbound: ports. Every listener of the site binds to one of them. With inbound: auto they are tested."`
	Filter        Setting[overlay.Filter]  `yaml:"filter" default:"auto" help:"How the packet filter treats inbound packets: none, stateless (by flags), stateful (by tracked connection) or strict (stateful, and invalid packets are dropped both ways)."`
	Refusal       Setting[overlay.Refusal] `yaml:"refusal" default:"auto" help:"What the filter does with refused packets: drop or reset."`
	NAT           NAT                      `yaml:"nat" help:"The site's address translation (RFC 4787)."`
	NATUDP        NAT                      `yaml:"nat_udp" help:"The same for UDP, if it differs from TCP. A mapping of none means the same as nat; auto is measured if nat is, and otherwise means the same as nat."`
	Egress        Setting[overlay.Egress]  `yaml:"egress" default:"auto" help:"Permitted outbound traffic: any, 443 (only to that port), http-proxy (only through the proxy), none, or, if connections are inspected, tls-443 and http-proxy-tls (the same, but only connections that begin as TLS)."`
	UDP           Setting[bool]            `yaml:"udp" default:"auto" help:"Whether outbound UDP datagrams and their answers pass."`
	UDPRate       Setting[uint64]          `yaml:"udp_rate" default:"auto" help:"Rate limit for UDP datagrams in bits per second, if it is lower than for TCP; none without such a limit."`
	MTU           Setting[uint16]          `yaml:"mtu" default:"auto" help:"Path MTU in bytes to other sites, if larger packets are lost or routers request smaller ones; none if the MTU of the hosts' interfaces is correct."`
	IdleTCP       Setting[uint32]          `yaml:"idle_tcp" default:"auto" help:"Idle timeout, in seconds, of the filter or NAT for a TCP connection; none if unknown or if it keeps no state."`
	IdleUDP       Setting[uint32]          `yaml:"idle_udp" default:"auto" help:"Idle timeout, in seconds, of the filter or NAT for a UDP mapping; none if unknown or if it keeps no state."`
	IPv6          Setting[bool]            `yaml:"ipv6" default:"auto" help:"Whether nodes, or with gateway_only the gateway, also have IPv6 addresses from which other sites' IPv6 hosts can be reached: not translated, and filtered as ipv6_rules says."`
	IPv6Rules     IPv6Rules                `yaml:"ipv6_rules" help:"What the firewall does to IPv6, for a site that has IPv4 too. If any of them is given, those that are auto are measured, and are otherwise taken to be those of a stateful firewall that lets no connection and no datagram in."`
	IPv6Only      Setting[bool]            `yaml:"ipv6_only" default:"auto" help:"Whether the site has no IPv4 connectivity to other sites, which are then reached over IPv6 or through a dual-stack proxy. The declared inbound rules then apply to IPv6."`
	GatewayOnly   bool                     `yaml:"gateway_only" default:"false" help:"Whether compute nodes have no route out at all, so that this gateway must carry their data. Everything else in the profile then describes the gateway."`
	Privileged    Setting[bool]            `yaml:"privileged" default:"false" help:"Whether every helper of the site holds CAP_NET_RAW, or with gateway_only the frontal. auto tests only the node that measures."`
	HighPortsOnly Setting[bool]            `yaml:"high_ports_only" default:"auto" help:"Whether the helpers, or with gateway_only the frontal, may not bind port 443, which simultaneous open with a site that lets only that port out needs. auto tests only the node that measures."`
	Networks      []netip.Prefix           `yaml:"networks" example:"198.51.100.0/28" help:"IPv4 and IPv6 networks in which other sites reach this site's nodes: the nodes' own addresses, or those of a 1:1 NAT. Addresses outside them are not announced, so such nodes are not dialled directly, except, beside networks of the same kind (IPv4 or IPv6, private or public), the one from which a node's session with this frontal comes. The gateway's own public address need not be listed."`
	Forbidden     []overlay.Technique      `yaml:"forbidden" example:"relay" help:"Techniques that this site does not allow: direct, port-range, reversed, simultaneous-open, traversing, hole-punching, relay."`
}

// Encryption is the site's encryption policy as its admin writes it.
type Encryption struct {
	OtherSites bool     `yaml:"other_sites" default:"true" help:"Between processes of this site and of others. Without it, relays, gateways and anyone on the path can read the traffic, unless the other site requires encryption."`
	SameSite   bool     `yaml:"same_site" default:"false" help:"Between processes of this site that are on different nodes."`
	PlainWith  []string `yaml:"plain_with" example:"siteb" help:"Sites to which other_sites does not apply because the network between is trusted. It takes effect if the other site agrees."`
}

// Advice implements daemon.Adviser.
func (c Config) Advice() daemon.Faults {
	if c.Policy != "" {
		return nil
	}
	return daemon.Faults{{Key: "policy", Err: fmt.Errorf("not set, so links with other sites are refused (rule %s); to permit site siteb, add the line\n"+
		"policy: /etc/isthmus/policy.yaml\nand write into that file\n%s", policy.NoPolicy, policy.Example(overlay.SiteID(c.Site), "siteb"))}}
}

// policy returns the encryption policy in the form that helpers receive.
func (e Encryption) policy() overlay.Encryption {
	p := overlay.Encryption{OtherSites: e.OtherSites, SameSite: e.SameSite}
	for _, s := range e.PlainWith {
		p.PlainWith = append(p.PlainWith, overlay.SiteID(s))
	}
	return p
}

// Ports is a range of TCP ports, both ends included.
type Ports struct {
	First uint16 `yaml:"first" help:"The first port."`
	Last  uint16 `yaml:"last" help:"The last port."`
}

// IPv6Rules is what a site's firewall does to IPv6.
type IPv6Rules struct {
	Inbound Setting[overlay.Inbound] `yaml:"inbound" default:"auto" help:"Which connections from other sites reach a listener over IPv6: none or open (all). Nodes are dialled where profile.networks has their IPv6 network."`
	Filter  Setting[overlay.Filter]  `yaml:"filter" default:"auto" help:"As profile.filter."`
	Refusal Setting[overlay.Refusal] `yaml:"refusal" default:"auto" help:"As profile.refusal."`
	Egress  Setting[overlay.Egress]  `yaml:"egress" default:"auto" help:"As profile.egress."`
	UDP     Setting[bool]            `yaml:"udp" default:"auto" help:"As profile.udp."`
}

// NAT is a site's address translation in the words of RFC 4787.
type NAT struct {
	Mapping   Setting[overlay.NATBehaviour] `yaml:"mapping" default:"auto" help:"none, endpoint-independent, address-dependent or address-and-port-dependent."`
	Filtering Setting[overlay.NATBehaviour] `yaml:"filtering" default:"auto" help:"none, endpoint-independent, address-dependent or address-and-port-dependent."`
	KeepsPort Setting[bool]                 `yaml:"keeps_port" default:"auto" help:"Whether the NAT preserves a connection's source port when possible."`
}

// Limits bounds the resources that a frontal uses.
type Limits struct {
	Processes int `yaml:"processes" default:"100000" min:"1" help:"Registered processes of the site."`
	PerNode   int `yaml:"processes_per_node" default:"4096" min:"1" help:"The same for one node."`
	Cache     int `yaml:"cache" default:"100000" min:"1" help:"Cached answers; the least recently used is dropped first."`
	Pending   int `yaml:"pending" default:"4096" min:"1" help:"Connections dialled for a node, or expected from outside, whose other half is pending, and queued coordinated traversals."`
	Links     int `yaml:"links" default:"8192" min:"1" help:"Connections carried at a time."`

	PendingPerNode int `yaml:"pending_per_node" default:"2048" min:"1" help:"Like limits.pending, for one node."`
	LinksPerNode   int `yaml:"links_per_node" default:"4096" min:"1" help:"Connections carried at a time for one node."`

	Waiting      int `yaml:"waiting" default:"65536" min:"1" help:"Pending lookups of helpers for processes that have not started, or for names."`
	WaitsPerNode int `yaml:"waiting_per_node" default:"512" min:"1" help:"The same for one node, about 35 KB each. Over the limit, a helper polls every second instead."`

	HalfOpen          int `yaml:"half_open" default:"1024" min:"1" max:"1000000" help:"Connections to each port that are not authenticated or identified yet, about 30 KB each. At the limit, the source address with the most connections loses its oldest one to make room."`
	HalfOpenPerSource int `yaml:"half_open_per_source" default:"512" min:"1" max:"1000000" help:"The same for one source: an IPv4 address, an IPv6 /64."`

	PeerSessions int         `yaml:"peer_sessions" default:"16" min:"1" max:"100000" help:"Sessions of one peer, that is, with the same certificate."`
	PeerStreams  int         `yaml:"peer_streams" default:"32" min:"2" max:"100000" help:"Streams in all sessions of one peer; exceeding it ends the session. A peer needs one per session."`
	PeerCalls    int         `yaml:"peer_calls" default:"1280" min:"1" max:"10000000" help:"Unanswered calls of one helper; more are refused. A helper has at most max_open, plus one for each name that its processes look up."`
	PeerBytes    daemon.Size `yaml:"peer_bytes" default:"4MiB" min:"2MiB" max:"16GiB" help:"Bytes received with these calls of one peer, incomplete ones included; exceeding it ends the session."`

	PeerBytesTotal daemon.Size `yaml:"peer_bytes_total" default:"512MiB" min:"16MiB" max:"1TiB" help:"The same for all peers, a quarter of the unit's MemoryMax. Over the limit, the peer with the most bytes loses its sessions."`
}

// halfOpen bounds the unidentified connections to a port; carries names the port's use.
func (l Limits) halfOpen(what string) accept.Bounds {
	return accept.Bounds{
		What: what, Total: l.HalfOpen, PerSource: l.HalfOpenPerSource,
		TotalSetting: "limits.half_open", SourceSetting: "limits.half_open_per_source",
	}
}

// gateway returns the limits of the gateway.
func (l Limits) gateway() gateway.Limits {
	return gateway.Limits{
		Links: l.Links, LinksPerNode: l.LinksPerNode, Pending: l.Pending, PendingPerNode: l.PendingPerNode,
		HalfOpen: l.HalfOpen, HalfOpenPerSource: l.HalfOpenPerSource,
	}
}

// budget returns the limits of one peer.
func (l Limits) budget() control.Budget {
	return control.Budget{Sessions: l.PeerSessions, Streams: l.PeerStreams, Calls: l.PeerCalls, Bytes: int(l.PeerBytes), AllBytes: int(l.PeerBytesTotal), Request: control.StandardBudget.Request}
}

// Check reports mistakes in the settings as a whole.
func (c Config) Check() error {
	var errs []error
	wrong := func(key, format string, args ...any) { errs = append(errs, daemon.Wrong(key, format, args...)) }
	if err := overlay.CheckName("site", c.Site); c.Site != "" && err != nil {
		wrong("site", "%v", err)
	}
	for i, b := range c.Broker {
		if _, _, err := net.SplitHostPort(b); err != nil {
			wrong("broker", "want host:port: %v", err)
		} else if slices.Contains(c.Broker[:i], b) {
			wrong("broker", "%s is given twice", b)
		}
	}
	if _, _, err := net.SplitHostPort(c.HTTPProxy.Address); c.HTTPProxy.Address != "" && err != nil {
		wrong("http_proxy.address", "want host:port: %v", err)
	}
	if err := c.SiteProfile().Check(); err != nil {
		wrong("profile", "%v", err)
	}
	if c.SiteProfile().Egress.ThroughHTTPProxy() && c.HTTPProxy.Address == "" {
		wrong("http_proxy.address", "profile.egress is http-proxy, so the proxy must be named")
	}
	for _, site := range c.Encryption.PlainWith {
		if err := overlay.CheckName("site", site); err != nil {
			wrong("encryption.plain_with", "%v", err)
		} else if site == c.Site {
			wrong("encryption.plain_with", "%s is this site; use encryption.same_site for traffic within it", site)
		}
	}
	errs = append(errs, c.Quota.Check("quota"))
	c.checkData(wrong)
	c.checkPublic(wrong)
	return errors.Join(errs...)
}

// CheckFiles checks the files that the keys name.
func (c Config) CheckFiles() error {
	errs := []error{control.CheckFiles(c.TLS.Cert, c.TLS.Key, c.TLS.CA, control.OfRole(control.RoleFrontal, overlay.SiteID(c.Site)))}
	if file := c.HTTPProxy.PasswordFile; file != "" {
		_, err := carrier.ReadPassword(string(file))
		errs = append(errs, daemon.WrongFile("http_proxy.password_file", err))
	}
	_, err := permit.Load(string(c.Policy))
	return errors.Join(append(errs, daemon.WrongFile("policy", err))...)
}

func (c Config) checkData(wrong func(key, format string, args ...any)) {
	switch gateway := c.Profile.GatewayOnly; {
	case gateway && !c.DataListen.IsValid():
		wrong("data_listen", "with profile.gateway_only the gateway carries the nodes' data; give the address to accept it on")
	case !gateway && c.DataListen.IsValid():
		wrong("data_listen", "only a site with profile.gateway_only: true needs it; elsewhere nodes connect by themselves")
	case gateway && c.DataListen.Addr().IsUnspecified():
		wrong("data_listen", "%v is not an address that nodes could dial; give the gateway's address inside the site", c.DataListen)
	case gateway && c.hasOtherHosts() && multihome.Unreachable(c.DataListen.Addr()) != "":
		wrong("data_listen", "%v (%s) is not an address that other hosts can dial; give the gateway's address inside the site", c.DataListen, multihome.Unreachable(c.DataListen.Addr()))
	}
}

// hasOtherHosts reports whether helpers on other hosts are to reach this frontal.
func (c Config) hasOtherHosts() bool { return !c.Listen.Addr().IsLoopback() }

// publicAddress returns the address that other sites get, whose port may still be 0.
func (c Config) publicAddress() netip.AddrPort {
	if c.PublicAddress.IsValid() {
		return c.PublicAddress
	}
	return c.PublicListen
}

func (c Config) checkPublic(wrong func(key, format string, args ...any)) {
	port := c.PublicListen.Port()
	inbound := c.SiteProfile().Inbound
	if !c.Profile.Inbound.Given && c.PublicListen.IsValid() {
		inbound = overlay.InboundOpen // whether inbound connections pass will be measured
	}
	switch wanted := c.Profile.GatewayOnly && inbound != overlay.InboundNone; {
	case wanted && !c.PublicListen.IsValid():
		wrong("public_listen", "profile.inbound is %v for a gateway_only site; give the address on which the gateway accepts inbound connections", inbound)
	case !wanted && c.PublicListen.IsValid():
		wrong("public_listen", "only a site with profile.gateway_only: true and inbound connections needs it")
	case !c.PublicListen.IsValid() && c.PublicAddress.IsValid():
		wrong("public_address", "it needs public_listen, which is not set")
	case wanted && !c.PublicAddress.IsValid() && c.PublicListen.Addr().IsUnspecified():
		wrong("public_address", "public_listen is %v; give the address at which other sites reach it", c.PublicListen)
	case wanted && c.hasOtherHosts() && multihome.Unreachable(c.publicAddress().Addr()) != "":
		wrong("public_address", "%v (%s) is not an address that other sites can dial; give the one at which they reach public_listen", c.publicAddress(), multihome.Unreachable(c.publicAddress().Addr()))
	case wanted && inbound == overlay.InboundPorts && port != 0 && !c.SiteProfile().Ports.Contains(port):
		wrong("public_listen", "port %d is outside profile.ports %v", port, c.SiteProfile().Ports)
	}
}
