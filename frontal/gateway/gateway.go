package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/frontal/directory"
	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/encap"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
	"github.com/isthmus-grid/isthmus/internal/limit/dialwindow"
	"github.com/isthmus-grid/isthmus/internal/limit/quota"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate"
	"github.com/isthmus-grid/isthmus/internal/nat/signalling"
	"github.com/isthmus-grid/isthmus/internal/nat/traverse"
	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Settings are the settings of the frontal that may change while it serves.
type Settings struct {
	Rule netrule.Rule  // for addresses named by others
	Dial time.Duration // timeout for dialling an address

	// OneHost means that the site's helpers are on this host, and so may be the grid: addresses of this host
	// only will do.
	OneHost bool
}

// Limits bounds the resources that a gateway uses.
type Limits struct {
	Links, LinksPerNode         int // carried at a time
	Pending, PendingPerNode     int // of pending or queued connections, each
	HalfOpen, HalfOpenPerSource int // unidentified connections to each port
}

// halfOpen bounds the unidentified connections to a port; carries names the port's use.
func (l Limits) halfOpen(what string) accept.Bounds {
	return accept.Bounds{
		What: what, Total: l.HalfOpen, PerSource: l.HalfOpenPerSource,
		TotalSetting: "limits.half_open", SourceSetting: "limits.half_open_per_source",
	}
}

// Options are the dependencies of a gateway.
type Options struct {
	Site overlay.SiteID
	Who  string // the frontal, for errors and refusals
	Log  *slog.Logger

	Settings func() Settings // in effect
	Profile  func() overlay.SiteProfile
	Limits   Limits
	Quota    *ratelimit.Limiter // limits of carried links

	HTTPProxy carrier.HTTPProxy  // the site's HTTP proxy, if there is one
	ProxyTLS  func() *tls.Config // for dialling the grid's proxies

	Registry   *directory.Registry
	Resolver   *directory.Resolver
	Up         *uplink.Set
	Reflectors func(context.Context) (*controlpb.ReflectorsResponse, error)

	NATFull func(connections int) // see encap.Dialer

	Life context.Context // ends with the frontal, and with it everything carried
	Open context.Context // ends before Life when the frontal drains: no new links
	Work *sync.WaitGroup // everything the frontal waits for
}

// Bounds are timeouts that no setting changes; tests shorten them.
type Bounds struct {
	Intro  time.Duration // for a connection's first frame
	Carry  time.Duration // for a node to fetch a dialled connection
	Meet   time.Duration // for both ends of a coordinated traversal to connect
	Refuse time.Duration // for a refusal to be read
}

// standardBounds are those of a gateway.
var standardBounds = Bounds{Intro: 7 * time.Second, Carry: 10 * time.Second, Meet: 17 * time.Second, Refuse: 2 * time.Second}

// Gateway carries the data of a site's nodes that have no route out. See New.
type Gateway struct {
	site          overlay.SiteID
	who           string
	log           *slog.Logger
	settings      func() Settings
	profile       func() overlay.SiteProfile
	askReflectors func(context.Context) (*controlpb.ReflectorsResponse, error)
	registry      *directory.Registry
	resolver      *directory.Resolver
	up            *uplink.Set
	ctx           context.Context // see Options.Life
	open          context.Context
	work          *sync.WaitGroup

	httpProxy carrier.HTTPProxy
	window    *dialwindow.Window // of connections out of the site
	proxies   *encap.Dialer      // dials the grid's proxies

	// The gateway as an end of coordinated traversals.
	traversals traversals
	reflectors *coordinate.ReflectorCache
	portPool   *coordinate.PortPool
	engine     *traverse.Engine // nil without CAP_NET_RAW; set by Start

	nodes, outside *accept.HalfOpen // unidentified connections, by port

	// The owner sets these before the first connection. The zero value of an address means none.
	Audit      *audit.Log                               // nil is none
	PassOn     func(c *net.TCPConn, first []byte) error // to a predecessor
	DataAddr   netip.AddrPort                           // address for the site's nodes
	PublicAddr netip.AddrPort                           // address for other sites

	// New sets these; a test sets others.
	Bounds Bounds
	Dial   func(ctx context.Context, addr string) (*net.TCPConn, error) // out of the site as its egress allows
	NewEnd func(ctx context.Context, ipv6 bool) (signalling.End, error) // of coordinated traversals; it is Side

	mu      sync.Mutex // guards the fields below; never held while calling or dialling
	allowed *allowed
	carries *carries
	returns *returns
	links   links
}

// New returns a gateway. It does not listen: its owner does.
func New(o Options) *Gateway {
	g := &Gateway{
		site: o.Site, who: o.Who, log: o.Log, settings: o.Settings, profile: o.Profile, askReflectors: o.Reflectors,
		registry: o.Registry, resolver: o.Resolver, up: o.Up, ctx: o.Life, open: o.Open, work: o.Work,
		httpProxy: o.HTTPProxy, window: dialwindow.New(o.Log), proxies: encap.NewDialer(o.ProxyTLS),
		traversals: newTraversals(o.Limits), reflectors: coordinate.NewReflectorCache(), portPool: coordinate.NewPortPool(),
		Bounds:  standardBounds,
		allowed: newAllowed(o.Settings().Rule, AllowedFor),
		carries: newCarries(o.Limits),
		returns: newReturns(o.Limits),
		links:   newLinks(o.Limits.Links, o.Limits.LinksPerNode, o.Quota),
	}
	refused := func(from net.Addr, err error) {
		g.mu.Lock()
		g.links.refused++
		g.mu.Unlock()
		g.auditRefusal(from.String(), "data-overloaded", err)
	}
	g.nodes = accept.NewHalfOpen(o.Limits.halfOpen("data connections of nodes whose first frame has not arrived"), refused)
	g.outside = accept.NewHalfOpen(o.Limits.halfOpen("data connections from outside whose first frame has not arrived"), refused)
	g.NewEnd, g.Dial = g.Side, g.dialOut
	g.proxies.NATFull = o.NATFull
	return g
}

// dialOut dials an address outside the site, through its HTTP proxy if required.
func (g *Gateway) dialOut(ctx context.Context, addr string) (*net.TCPConn, error) {
	if g.profile().Egress.ThroughHTTPProxy() {
		return carrier.DialTCP(ctx, addr, g.httpProxy)
	}
	return dialwindow.Dial(ctx, g.window, func(ctx context.Context) (*net.TCPConn, error) {
		return carrier.DialTCP(ctx, addr, carrier.HTTPProxy{})
	})
}

// Reload applies new settings and limits.
func (g *Gateway) Reload(l Limits, rules quota.Rules) {
	g.nodes.SetMax(l.HalfOpen, l.HalfOpenPerSource)
	g.outside.SetMax(l.HalfOpen, l.HalfOpenPerSource)
	g.links.quota.SetRules(rules)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.allowed.rule = g.settings().Rule
	g.links.places.SetMax(l.Links, l.LinksPerNode)
}

// Allow permits dialling an address of a process of another site, which the broker named to this
// site, for a while.
func (g *Gateway) Allow(addr string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.allowed.name(addr, true, time.Now())
}

// Check returns why an address may not be dialled at a time, or nil.
func (g *Gateway) Check(addr string, at time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, err := g.allowed.check(addr, at)
	return err
}

// Expire removes entries that are no longer waited for.
func (g *Gateway) Expire(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.returns.expire(now)
}

// Cut ends the links of processes and returns how many there were.
func (g *Gateway) Cut(processes []overlay.ProcessName, reason error) (ended int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.links.cut(processes, reason)
}

// Status is the state of a gateway.
type Status struct {
	Links      LinkCounters
	Traversals TraversalCounters
	Quota      ratelimit.Status
	Waiting    map[string]int // the users of limits
}

// Status returns the state of the gateway.
func (g *Gateway) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Status{
		Links: g.links.counters(), Traversals: g.traversals.counters(), Quota: g.links.quota.Status(),
		Waiting: map[string]int{
			"half_open": g.nodes.Stats().Used + g.outside.Stats().Used, "carries": len(g.carries.wait),
			"returns": len(g.returns.wait), "traversals": g.traversals.line.Stats().Used,
		},
	}
}

// Limits returns the usage of the limits.
func (g *Gateway) Limits() []metrics.Limit {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := []metrics.Limit{{Name: "traversals", Used: len(g.traversals.places), Max: cap(g.traversals.places)}}
	all = append(all, metrics.LimitsOf("pending_carries", "pending_carries_per_node", g.carries.count.Stats())...)
	all = append(all, metrics.LimitsOf("pending_returns", "pending_returns_per_node", g.returns.count.Stats())...)
	all = append(all, metrics.LimitsOf("pending_traversals", "pending_traversals_per_node", g.traversals.line.Stats())...)
	all = append(all, metrics.LimitsOf("links", "links_per_node", g.links.places.Stats())...)
	all = append(all, metrics.LimitsOf("half_open_data", "half_open_data_per_source", g.nodes.Stats())...)
	return append(all, metrics.LimitsOf("half_open_public", "half_open_public_per_source", g.outside.Stats())...)
}

// QuotaMetrics returns the Prometheus metrics of the quota.
func (g *Gateway) QuotaMetrics() metrics.Source { return g.links.quota.Metrics() }

// auditRefusal records a refused request.
func (g *Gateway) auditRefusal(peer, rule string, err error) {
	g.Audit.Append(audit.Record{Event: audit.Refusal, Peer: peer, Rule: rule, Reason: err.Error(), Sites: []string{string(g.site)}})
}

func (g *Gateway) forbidden(format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s", g.who, overlay.ErrForbidden, fmt.Sprintf(format, args...))
}

// LinkCount returns the number of carried links.
func (g *Gateway) LinkCount() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.links.live)
}

// A handler owns the connection if it returns nil, and otherwise returns why it is refused.
type handler func(context.Context, *net.TCPConn, *wire.Intro) error

// ServeNodes accepts the data of the site's own nodes. See serve.
func (g *Gateway) ServeNodes(ln *net.TCPListener) error { return g.serve(ln, g.fromNode, g.nodes) }

// ServeOutside accepts data from other sites. See serve.
func (g *Gateway) ServeOutside(ln *net.TCPListener) error {
	return g.serve(ln, g.fromOutside, g.outside)
}
