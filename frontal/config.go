package frontal

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/gateway"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
	"github.com/isthmus-grid/isthmus/internal/limit/pace"
	"github.com/isthmus-grid/isthmus/internal/policy"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Config is a frontal's settings, as its file and flags give them.
type Config struct {
	Site      string    `yaml:"site" required:"true" example:"sitea" help:"The site this gateway stands for. The certificate must say the same."`
	Broker    []string  `yaml:"broker" required:"true" example:"broker.example.org:443" help:"Where the broker is, as host:port, or a list where there are several. One connection goes to each, out of the site; none comes in. All are told what the site has; one is asked, and the next one when that is away."`
	HTTPProxy HTTPProxy `yaml:"http_proxy" help:"The HTTP proxy through which the site reaches the outside, if it must. The session with the broker goes through it, and, with profile.egress: http-proxy, what is carried for nodes."`
	TLS       TLS       `yaml:"tls" help:"Who this daemon is, and whom it believes."`

	Listen        netip.AddrPort `yaml:"listen" required:"true" example:"10.1.0.1:7440" help:"Address inside the site to accept the helpers' control sessions on."`
	DataListen    netip.AddrPort `yaml:"data_listen" example:"10.1.0.1:7441" help:"Address inside the site to accept the data of nodes that have no route out. With profile.gateway_only, and only then. Port 0 lets the system choose; helpers are told."`
	PublicListen  netip.AddrPort `yaml:"public_listen" example:"192.0.2.1:20000" help:"Address to accept data for the site's processes from other sites on. With profile.gateway_only and inbound ports or open, and only then. Port 0 chooses a free one of profile.ports."`
	PublicAddress netip.AddrPort `yaml:"public_address" example:"198.51.100.7:20000" help:"The address by which other sites reach public_listen, where a NAT makes it another. Port 0 stands for the port of public_listen."`

	MetricsListen netip.AddrPort `yaml:"metrics_listen" example:"127.0.0.1:9442" help:"Address at which Prometheus reads this daemon's figures, at /metrics. Whoever reaches it may read it: it names sites, proxies and projects. Without it there is none."`

	Profile Profile        `yaml:"profile" help:"What the site's firewall, NAT and routes let through. The broker decides from it how this site's processes connect. Fields that say auto are measured; until then, and where the measurement cannot tell, the site counts as closed."`
	Deny    []netip.Prefix `yaml:"deny" example:"10.9.0.0/16" help:"Networks that the gateway never dials, into the site or out of it, beside loopback, link-local and multicast ones: the site's management network, say."`
	Private []netip.Prefix `yaml:"private" example:"10.64.0.0/10" help:"Private networks (RFC 1918, 6598, 4193) in which processes of other sites are, where such networks are routed between sites. Other private addresses of theirs are not dialled: here they are other hosts."`

	NodeNetworks []netip.Prefix `yaml:"node_networks" example:"10.1.8.0/24" help:"Networks of addresses at which this site's helpers may listen, besides the one from which a helper's own session comes: those of a second interface, which the helper's key address names."`

	Policy daemon.Path `yaml:"policy" path:"file" example:"/etc/isthmus/policy.yaml" help:"File that says which links with other sites are permitted, for whom, how and when: see policy.yaml beside this file. What no rule allows is refused. Without it, links stay inside the site."`

	Encryption Encryption `yaml:"encryption" help:"What the site wants encrypted of what its processes say to those of other nodes, from end to end. What either of two sites wants is done. Within one node nothing is encrypted."`

	Grace    time.Duration `yaml:"grace" default:"60s" min:"1s" help:"How long the processes of a helper whose session ended stay registered, waiting for it to come back."`
	CacheAge time.Duration `yaml:"cache_age" default:"10m" min:"1s" help:"How long an answer of the broker is used before it is asked again. An answer whose connection fails is dropped at once; while the broker is away, old answers stay good."`
	Patience time.Duration `yaml:"patience" default:"2s" min:"0s" max:"1m" help:"How long into an outage of the broker calls wait for it to come back. After that they fail at once."`
	Measure  time.Duration `yaml:"measure" default:"1h" min:"0s" help:"How often the site's profile is measured with the help of broker and proxies, for what says auto and to compare the rest with; 0s is never."`
	Dial     time.Duration `yaml:"dial_timeout" default:"10s" min:"1s" max:"2m" help:"How long to try to reach an address that data is to be carried to."`
	Audit    audit.Config  `yaml:"audit" help:"The audit log: every link that was carried with its bytes, every session of a helper, and everybody who was refused."`
	Quota    pace.Config   `yaml:"quota" help:"What each user, project and job may use of what this gateway carries for nodes with no route out. Who is over a rate is slowed and never disconnected."`
	Limits   Limits        `yaml:"limits" help:"Bounds on what the frontal holds. What is over one is refused with a clear error."`
}

// HTTPProxy says how to get out of the site through an HTTP proxy.
type HTTPProxy struct {
	Address      string      `yaml:"address" example:"proxy.example.org:3128" help:"The proxy, as host:port. It must allow CONNECT to port 443."`
	User         string      `yaml:"user" help:"Name to show the proxy, if it asks for one (RFC 7617)."`
	PasswordFile daemon.Path `yaml:"password_file" path:"file" help:"File with the password to that name. Its last line ending does not count."`
}

// TLS names the files that say who the frontal is.
type TLS struct {
	Cert daemon.Path `yaml:"cert" required:"true" path:"file" example:"/var/lib/isthmus/frontal/tls/cert.pem" help:"The frontal's certificate, PEM, issued by the grid's CA for this site."`
	Key  daemon.Path `yaml:"key" required:"true" path:"file" example:"/var/lib/isthmus/frontal/tls/key.pem" help:"The certificate's key, PEM."`
	CA   daemon.Path `yaml:"ca" required:"true" path:"file" example:"/var/lib/isthmus/frontal/tls/ca.pem" help:"The certificate of the grid's CA, PEM."`

	Renew   bool        `yaml:"renew" default:"true" help:"Whether to renew the certificate after two thirds of its life, if the broker enrols. The file must be this daemon's to write; a certificate that somebody else puts there is taken over without a restart, too."`
	Revoked daemon.Path `yaml:"revoked" example:"$STATE/revoked.pem" help:"File to keep the grid's revocation list in. Empty: revoked.pem in the service manager's state folder (STATE_DIRECTORY); without one, the list is forgotten at the end and told anew by the peers."`
}

// Profile is a site's profile as its admin writes it.
type Profile struct {
	Inbound     Setting[overlay.Inbound] `yaml:"inbound" default:"auto" help:"Which connections from other sites reach a listener: none, ports (those of profile.ports) or open (all). For a gateway_only site, a listener of the gateway."`
	Ports       Ports                    `yaml:"ports" help:"The TCP ports that the firewall lets in, with inbound: ports. Every listener of the site binds to one of them. With inbound: auto they are tried."`
	Filter      Setting[overlay.Filter]  `yaml:"filter" default:"auto" help:"How the packet filter judges what comes in: none, stateless (by flags), stateful (by tracked connection) or strict (stateful, and invalid packets are dropped both ways)."`
	Refusal     Setting[overlay.Refusal] `yaml:"refusal" default:"auto" help:"What the filter does with what it refuses: drop or reset."`
	NAT         NAT                      `yaml:"nat" help:"The site's address translation (RFC 4787)."`
	NATUDP      NAT                      `yaml:"nat_udp" help:"The same of UDP, where it differs from that of TCP. A mapping of none is as nat; auto is measured where nat is, too, and else as nat."`
	Egress      Setting[overlay.Egress]  `yaml:"egress" default:"auto" help:"What the site lets out: any, 443 (only to that port), http-proxy (only through the proxy), none, or, where connections are inspected, tls-443 and http-proxy-tls (the same, and only what begins as TLS)."`
	UDP         Setting[bool]            `yaml:"udp" default:"auto" help:"Whether datagrams get out and their answers back in."`
	UDPRate     Setting[uint64]          `yaml:"udp_rate" default:"auto" help:"The rate in bits per second that datagrams are held to, where they get less than TCP; none if they are not."`
	MTU         Setting[uint16]          `yaml:"mtu" default:"auto" help:"The largest IP packet in bytes that gets to other sites, where larger ones vanish or routers ask for smaller ones; none if the hosts' interfaces are right."`
	IdleTCP     Setting[uint32]          `yaml:"idle_tcp" default:"auto" help:"How many seconds the filter or NAT remembers a TCP connection on which nothing passes; none if nothing is known or remembered."`
	IdleUDP     Setting[uint32]          `yaml:"idle_udp" default:"auto" help:"How many seconds the filter or NAT remembers a UDP mapping on which nothing passes; none if nothing is known or remembered."`
	IPv6        Setting[bool]            `yaml:"ipv6" default:"auto" help:"Whether nodes, or with gateway_only the gateway, have besides IPv4 addresses that other sites' IPv6 hosts can be reached from: not translated, and filtered with state."`
	IPv6Only    Setting[bool]            `yaml:"ipv6_only" default:"auto" help:"Whether IPv4 leads nowhere from the site, so that other sites are met over IPv6 or at a proxy that has both. What you declare of who may come in is about IPv6 then."`
	GatewayOnly bool                     `yaml:"gateway_only" default:"false" help:"Whether compute nodes have no route out at all, so that this gateway must carry their data. Everything else in the profile then describes the gateway."`
	Privileged  Setting[bool]            `yaml:"privileged" default:"false" help:"Whether every helper of the site holds CAP_NET_RAW, or with gateway_only the frontal. auto asks only the node that measures."`
	Networks    []netip.Prefix           `yaml:"networks" example:"198.51.100.0/28" help:"Networks, of IPv4 and IPv6, in which other sites reach this site's nodes: the nodes' own addresses, or those of a 1:1 NAT. An address elsewhere is not passed on, so that such nodes are not dialled directly. The gateway's own public address need not be here."`
	Forbidden   []overlay.Technique      `yaml:"forbidden" example:"relay" help:"Techniques that this site does not allow: direct, port-range, reversed, simultaneous-open, traversing, hole-punching, relay."`
}

// Encryption is the site's wish, as its admin writes it.
type Encryption struct {
	OtherSites bool     `yaml:"other_sites" default:"true" help:"Between processes of this site and of others. Without it relays, gateways and whoever is on the way can read what is not encrypted for the other site's sake."`
	Inside     bool     `yaml:"inside" default:"false" help:"Between processes of this site that are on different nodes."`
	PlainWith  []string `yaml:"plain_with" example:"siteb" help:"Sites to which other_sites does not apply, because the network between is trusted. It takes effect when the other site says the same."`
}

// Advice implements daemon.Adviser.
func (c Config) Advice() daemon.Faults {
	if c.Policy != "" {
		return nil
	}
	return daemon.Faults{{Key: "policy", Err: fmt.Errorf("not set, so links with other sites are refused (rule %s); to permit site siteb, add the line\n"+
		"policy: /etc/isthmus/policy.yaml\nand write into that file\n%s", policy.NoPolicy, policy.Example(overlay.SiteID(c.Site), "siteb"))}}
}

// policy returns the wish as helpers are told.
func (e Encryption) policy() overlay.Encryption {
	p := overlay.Encryption{OtherSites: e.OtherSites, Inside: e.Inside}
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

// NAT is a site's address translation in the words of RFC 4787.
type NAT struct {
	Mapping   Setting[overlay.NATBehaviour] `yaml:"mapping" default:"auto" help:"none, endpoint-independent, address-dependent or address-and-port-dependent."`
	Filtering Setting[overlay.NATBehaviour] `yaml:"filtering" default:"auto" help:"none, endpoint-independent, address-dependent or address-and-port-dependent."`
	KeepsPort Setting[bool]                 `yaml:"keeps_port" default:"auto" help:"Whether the NAT keeps a connection's source port where it can."`
}

// Limits bound what a frontal holds.
type Limits struct {
	Processes int `yaml:"processes" default:"100000" min:"1" help:"Registered processes of the site."`
	PerNode   int `yaml:"processes_per_node" default:"4096" min:"1" help:"The same of one node."`
	Cache     int `yaml:"cache" default:"100000" min:"1" help:"Answers remembered; the least used goes first."`
	Pending   int `yaml:"pending" default:"4096" min:"1" help:"Connections dialled for a node, or expected from outside, that wait for their other half, and meetings that wait for their turn."`
	Links     int `yaml:"links" default:"8192" min:"1" help:"Connections carried at a time."`

	PendingPerNode int `yaml:"pending_per_node" default:"2048" min:"1" help:"What limits.pending counts, of one node."`
	LinksPerNode   int `yaml:"links_per_node" default:"4096" min:"1" help:"Connections carried at a time for one node."`

	Waiting      int `yaml:"waiting" default:"65536" min:"1" help:"Calls of helpers that wait for a process to start, or for a name."`
	WaitsPerNode int `yaml:"waiting_per_node" default:"512" min:"1" help:"The same of one node, about 35 KB each. A helper for whose processes there is no room asks every second instead."`

	HalfOpen          int `yaml:"half_open" default:"1024" min:"1" max:"1000000" help:"Connections to each port that have not shown yet who they are or what they are for, about 30 KB each. When there are as many, the source address that has the most loses its oldest, so that others get in."`
	HalfOpenPerSource int `yaml:"half_open_per_source" default:"512" min:"1" max:"1000000" help:"The same of one source: an IPv4 address, a /64 of IPv6."`

	PeerSessions int         `yaml:"peer_sessions" default:"16" min:"1" max:"100000" help:"Sessions of one peer: the same certificate's."`
	PeerStreams  int         `yaml:"peer_streams" default:"32" min:"2" max:"100000" help:"Streams in all sessions of one peer; more end the session. A peer needs one in each."`
	PeerCalls    int         `yaml:"peer_calls" default:"1280" min:"1" max:"10000000" help:"Calls of one helper that are not answered yet; more are refused. A helper has no more than max_open and the names that its processes look up."`
	PeerBytes    daemon.Size `yaml:"peer_bytes" default:"4MiB" min:"2MiB" max:"16GiB" help:"Bytes that came with these calls, begun ones included, of one peer; more end the session."`

	PeerBytesTotal daemon.Size `yaml:"peer_bytes_total" default:"512MiB" min:"16MiB" max:"1TiB" help:"The same of all peers, a quarter of the unit's MemoryMax. Where there are more, the peer that has the most loses its sessions."`
}

// halfOpen bounds the connections to a port that carries what.
func (l Limits) halfOpen(what string) accept.Bounds {
	return accept.Bounds{
		What: what, Total: l.HalfOpen, PerSource: l.HalfOpenPerSource,
		TotalSetting: "limits.half_open", SourceSetting: "limits.half_open_per_source",
	}
}

// gateway is what of it bounds the gateway.
func (l Limits) gateway() gateway.Limits {
	return gateway.Limits{
		Links: l.Links, LinksPerNode: l.LinksPerNode, Pending: l.Pending, PendingPerNode: l.PendingPerNode,
		HalfOpen: l.HalfOpen, HalfOpenPerSource: l.HalfOpenPerSource,
	}
}

// budget is what one peer may have under way.
func (l Limits) budget() control.Budget {
	return control.Budget{Sessions: l.PeerSessions, Streams: l.PeerStreams, Calls: l.PeerCalls, Bytes: int(l.PeerBytes), AllBytes: int(l.PeerBytesTotal), Request: control.StandardBudget.Request}
}

// Check says what is wrong with the settings as a whole.
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
			wrong("broker", "%s is there twice", b)
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
			wrong("encryption.plain_with", "%s is this site; encryption.inside says what is done within it", site)
		}
	}
	errs = append(errs, c.Quota.Check("quota"))
	c.checkData(wrong)
	c.checkPublic(wrong)
	return errors.Join(errs...)
}

func (c Config) checkData(wrong func(key, format string, args ...any)) {
	switch gateway := c.Profile.GatewayOnly; {
	case gateway && !c.DataListen.IsValid():
		wrong("data_listen", "profile.gateway_only says that the gateway carries the nodes' data; say on which address")
	case !gateway && c.DataListen.IsValid():
		wrong("data_listen", "only a site with profile.gateway_only: true needs it; elsewhere nodes connect by themselves")
	case gateway && c.DataListen.Addr().IsUnspecified():
		wrong("data_listen", "%v is not an address that nodes could dial; give the gateway's address inside the site", c.DataListen)
	}
}

func (c Config) checkPublic(wrong func(key, format string, args ...any)) {
	port := c.PublicListen.Port()
	inbound := c.SiteProfile().Inbound
	if !c.Profile.Inbound.Given && c.PublicListen.IsValid() {
		inbound = overlay.InboundOpen // it will be measured whether anything comes in
	}
	switch wanted := c.Profile.GatewayOnly && inbound != overlay.InboundNone; {
	case wanted && !c.PublicListen.IsValid():
		wrong("public_listen", "profile.inbound is %v for a gateway_only site; say on which address the gateway accepts what comes in", inbound)
	case !wanted && c.PublicListen.IsValid():
		wrong("public_listen", "only a site with profile.gateway_only: true and inbound connections needs it")
	case !c.PublicListen.IsValid() && c.PublicAddress.IsValid():
		wrong("public_address", "there is no public_listen that it could lead to")
	case wanted && !c.PublicAddress.IsValid() && c.PublicListen.Addr().IsUnspecified():
		wrong("public_address", "public_listen is %v; say by which address other sites reach it", c.PublicListen)
	case wanted && inbound == overlay.InboundPorts && port != 0 && !c.SiteProfile().Ports.Contains(port):
		wrong("public_listen", "port %d is outside profile.ports %v", port, c.SiteProfile().Ports)
	}
}
