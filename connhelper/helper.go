package connhelper

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/connhelper/race"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/encap"
	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit/dialwindow"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate"
	"github.com/isthmus-grid/isthmus/internal/pki/enrol"
	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Timeouts and intervals.
const (
	introTimeout    = 7 * time.Second        // for the first frame of a connection
	attemptTimeout  = 7 * time.Second        // for one technique, unless the budget is shorter: an answer on a path of which nothing is known (package rtt)
	agreeTimeout    = 16 * time.Second       // for one whose ends agree first, which takes 8 to 10 round trips
	relayTimeout    = 15 * time.Second       // for the relay: both ends have to reach it
	awaitStep       = 20 * time.Second       // for one long call about a process that has not started
	registerWait    = 5 * time.Second        // for the frontal to accept a registration
	rejoin          = time.Second            // between attempts to reach a frontal that is away; it is near, and an attempt is cheap
	peerDialTimeout = 12 * time.Second       // for the target's turn to dial, so that the asker still hears why it did not
	persistence     = 8 * time.Second        // for retries after every technique failed once
	longPersistence = 30 * time.Second       // the same, where nothing answered, or a daemon on the way is away
	longestPause    = 400 * time.Millisecond // between two of these retries
	maxBudget       = 10 * time.Minute       // for one dial, whatever the process requests
	watchTimeout    = 30 * time.Second       // for events about a carrier that was handed out
)

// Options of a helper. All fields but HTTPProxy, Address, Advertise and Limits are required.
type Options struct {
	Credentials *control.Credentials // of a helper: they name site and node
	Frontal     string               // host:port of the site's frontal
	HTTPProxy   carrier.HTTPProxy    // used where the site's profile requires it
	Address     netip.Addr           // where to listen for data; invalid: the address that faces the frontal
	Advertise   netip.Addr           // address under which other sites reach Address, if different
	Log         *slog.Logger
	MaxOpen     int // dials and signalling requests in progress at once, per helper

	// Limits bound the resources that others use at the helper.
	Limits Limits

	// AllowLoopback lets signalling requests name loopback addresses: for a grid that runs on one
	// host.
	AllowLoopback bool

	// Rule decides which addresses named by others are not contacted.
	Rule netrule.Rule

	// Audit receives a record of what the helper does; nil means none.
	Audit *audit.Log

	// Offer is what this node offers in the list of hosts. The zero Offer is nothing.
	Offer offer.Offer

	// Renew makes the helper renew its certificate in its file.
	Renew bool
}

// Helper is the daemon. Make it with New, run it with Serve. Each of its four callers has its own part of
// it: the local processes (processServer), the frontal (targetService), the nodes that dial this one
// (dataPort), and the node service (Dead, Forget, Hosts).
type Helper struct {
	*common
	opts  Options
	offer atomic.Pointer[offer.Offer] // of opts, or a later one

	ctl        *control.Endpoint
	reports    *reports
	delivery   *delivery
	traversals *traversals
	reserves   *reserves
	processes  *processServer
	callers    atomic.Pointer[nodeservice.Server] // for the limits of its socket in metrics; nil until there is one
}

// common is what all parts of a helper use.
type common struct {
	node     overlay.NodeID
	log      *slog.Logger
	audit    auditor
	uplink   *uplink
	site     siteProfile
	here     table
	outbound *outbound
	budgets  *budgets

	work sync.WaitGroup  // goroutines of Serve that nothing else waits for
	life context.Context // of Serve, for work that outlasts the call that started it; set before anything runs
}

// New returns a helper that runs with Serve.
func New(opts Options) (*Helper, error) {
	id := opts.Credentials.Identity()
	if id.Role != control.RoleHelper {
		return nil, fmt.Errorf("the certificate is that of %v; a helper needs a helper's certificate", id)
	}
	audit := auditor{log: opts.Audit, node: id.Node()}
	c := &common{
		node: id.Node(), log: opts.Log, audit: audit, here: newTable(), uplink: newUplink(id.Node(), opts.Frontal, opts.Log),
		budgets: newBudgets(opts.Limits.orDefault(), opts.MaxOpen, audit),
		outbound: &outbound{
			node: id.Node(), audit: audit, rule: opts.Rule, allowLoopback: opts.AllowLoopback, httpProxy: opts.HTTPProxy,
			proxies: encap.NewDialer(func() *tls.Config { return opts.Credentials.DataClient(control.RoleProxy) }),
			window:  dialwindow.New(opts.Log),
		},
	}
	h := &Helper{
		common: c, opts: opts, reports: &reports{common: c},
		delivery: &delivery{common: c, crypt: newEncryption(opts.Log, id.Site)},
		traversals: &traversals{
			common: c, address: opts.Address, oneHost: opts.AllowLoopback,
			reflectors: coordinate.NewReflectorCache(), portPool: coordinate.NewPortPool(), hasAddress: carrier.HasAddress,
		},
		reserves: &reserves{common: c, requesting: make(chan struct{}, maxReserving)},
	}
	h.processes = &processServer{
		common: c, delivery: h.delivery, reserves: h.reserves,
		names: &publishedNames{common: c}, traffic: &trafficReports{common: c},
		dialler: &dialler{
			common: c, sizes: &sizes{common: c}, paths: race.NewCache(), reports: h.reports,
			delivery: h.delivery, traversals: h.traversals, reserves: h.reserves,
		},
	}
	h.outbound.proxies.NATFull = h.reports.full
	h.offer.Store(&opts.Offer)
	target := &targetService{common: c, delivery: h.delivery, traversals: h.traversals, reserves: h.reserves, opts: &h.opts}
	h.ctl = control.NewEndpoint(opts.Credentials, opts.Log, func(r grpc.ServiceRegistrar) { controlpb.RegisterTargetServer(r, target) })
	h.ctl.SetTrust(control.Trust{Cut: h.cutFor})
	return h, nil
}

// SetOffer changes what this node offers in the list of hosts, and sends it to the frontal without
// a new session. ctx bounds that; a frontal that is away receives it when it is back.
func (h *Helper) SetOffer(ctx context.Context, o offer.Offer) error {
	h.offer.Store(&o)
	f, _ := h.uplink.currentFrontal()
	if f == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	_, err := controlpb.NewNodesClient(f.session.Conn()).Enter(ctx, &controlpb.EnterRequest{Software: control.Software, Offer: o.ToPB()})
	return control.FromStatus(err)
}

// Serve accepts processes on ln, a Unix socket, and serves their requests until ctx ends. It
// returns when everything it started has ended; carriers that were handed out live on.
func (h *Helper) Serve(ctx context.Context, ln *net.UnixListener) error {
	ctx, cancel := context.WithCancel(ctx)
	h.life = ctx
	defer h.work.Wait()
	defer h.outbound.proxies.Close()
	defer h.ctl.Close() // waits for calls of peers, which may start work
	defer cancel()
	var err error
	if h.traversals.engine, err = coordinate.OpenEngine(h.log); err != nil {
		return err
	}
	h.work.Go(func() { coordinate.ServeEngine(ctx, h.traversals.engine, h.log) })
	h.work.Go(func() { h.traversals.portPool.Serve(ctx) })
	h.work.Go(func() { h.followRevocations(ctx) })
	if h.opts.Renew {
		h.work.Go(func() { enrol.Keep(ctx, h.opts.Credentials, h.log, h.uplink.renewed) })
	}
	port := func() *dataPort {
		return &dataPort{common: h.common, delivery: h.delivery, reports: h.reports}
	}
	data, four, six := port(), port(), port()
	h.work.Go(func() {
		h.ctl.Keep(ctx, control.DialConfig{Addr: h.opts.Frontal, Role: control.RoleFrontal, Longest: rejoin, Down: h.uplink.down}, func(ctx context.Context, s *control.Session) error {
			return h.enter(ctx, s, data, four, six)
		})
	})
	defer data.close()
	defer four.close()
	defer six.close()
	return h.processes.serve(ctx, ln)
}

// enter declares the node on a new session, registers its processes, and keeps the session in use
// until it ends. It opens the data ports: four is for nodes that reach their frontal over IPv6, and six
// for a site whose firewall lets more in over IPv6.
func (h *Helper) enter(ctx context.Context, s *control.Session, data, four, six *dataPort) error {
	callCtx, cancel := context.WithTimeout(ctx, registerWait)
	defer cancel()
	r, err := controlpb.NewNodesClient(s.Conn()).Enter(callCtx, &controlpb.EnterRequest{Software: control.Software, Offer: h.offer.Load().ToPB()})
	if err != nil {
		return fmt.Errorf("entering %v at %v: %w", h.node, s.Peer(), control.FromStatus(err))
	}
	profile, err := control.ProfileFromPB(overlay.SiteID(r.Site), r.Profile)
	if err != nil {
		return err
	}
	if profile.Site != h.node.Site {
		return fmt.Errorf("%w: %v says it serves %s, this node is %v", overlay.ErrForbidden, s.Peer(), profile.Site, h.node)
	}
	carrier.LimitMTU(profile.MTU)
	h.outbound.proxies.SetNodes(int(r.Nodes))
	h.site.Store(&profile)
	h.delivery.crypt.set(control.EncryptionFromPB(r.Encryption))
	f := &frontal{session: s, profile: profile, data: r.DataAddress}
	if f.networks, err = h.opts.networks(r.GatewayNetworks); err != nil {
		return err
	}
	ip := h.traversals.ownAddress(s)
	f.local, err = data.listen(ip, profile)
	if err != nil {
		// Other nodes cannot dial this one, but it can dial, and relays work.
		h.log.Warn("no data port: other nodes cannot dial this one", "error", err)
	}
	over4, err := four.listenOverIPv4(f.local, profile)
	if err != nil {
		h.log.Warn("no data port of IPv4: nodes of other sites cannot dial this one over IPv4", "error", err)
	}
	f.public = publicAddress(profile, over4, h.opts.Advertise)
	if f.public6, err = six.listenOverIPv6(f.local, profile); err != nil {
		h.log.Warn("no data port of IPv6: nodes of other sites cannot dial this one over IPv6", "error", err)
	}
	h.uplink.set(f)
	defer h.uplink.clear(f)
	h.log.Info("joined", "site", profile.Site, "frontal", h.opts.Frontal, "listening", addrText(f.local), "public", addrText(f.public), "public6", addrText(f.public6))
	for _, p := range h.here.all() {
		err := h.uplink.register(ctx, f, p)
		if err == nil {
			err = h.processes.names.publishAgain(ctx, f, p)
		}
		switch {
		case err == nil:
		case ctx.Err() != nil, errors.Is(err, overlay.ErrUnreachable), errors.Is(err, overlay.ErrTimeout):
			// The frontal has not refused the process: the next session will decide.
			return fmt.Errorf("registering %v at %v: %w", p.name, s.Peer(), err)
		default:
			p.reject(err)
		}
	}
	if change := h.traversals.awaitMove(ctx, s.LocalAddr().Addr(), ip, over4.Addr(), f.public6.Addr()); change != "" {
		h.log.Info("entering again, since the addresses of this node have changed", "change", change)
		s.Close()
	}
	<-ctx.Done()
	return nil
}

// networks returns those in which no process of another site is looked for, which the gateway or this host is in; none for
// a grid on one host, on whose networks all sites are.
func (o Options) networks(ofGateway []string) ([]netip.Prefix, error) {
	if o.AllowLoopback {
		return nil, nil
	}
	all, err := control.NetworksFromPB(ofGateway)
	if err != nil {
		return nil, fmt.Errorf("networks of the gateway: %w", err)
	}
	return append(all, netrule.Networks(multihome.Prefixes())...), nil
}

// publicAddress returns where other sites dial this node's listener; invalid when they cannot. The
// frontal fills it in for nodes behind the gateway.
func publicAddress(p overlay.SiteProfile, local netip.AddrPort, advertise netip.Addr) netip.AddrPort {
	if !local.IsValid() || p.GatewayOnly || p.Inbound == overlay.InboundNone {
		return netip.AddrPort{}
	}
	if advertise.IsValid() {
		return netip.AddrPortFrom(advertise, local.Port())
	}
	if p.NAT.Translates() {
		return netip.AddrPort{}
	}
	return local
}

// addrText formats an address for the log.
func addrText(a netip.AddrPort) string {
	if !a.IsValid() {
		return "none"
	}
	return a.String()
}
