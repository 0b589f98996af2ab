package frontal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/frontal/directory"
	"github.com/isthmus-grid/isthmus/frontal/gateway"
	"github.com/isthmus-grid/isthmus/frontal/ledger"
	"github.com/isthmus-grid/isthmus/frontal/measure"
	"github.com/isthmus-grid/isthmus/frontal/outcomes"
	"github.com/isthmus-grid/isthmus/frontal/permit"
	"github.com/isthmus-grid/isthmus/frontal/uplink"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/internal/pki/enrol"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Frontal is one site's gateway. Peers call it through Serve. It has no lock: its fields do not
// change while it serves, and each of its packages synchronizes itself.
type Frontal struct {
	site  overlay.SiteID
	who   string // "frontal sitea", for errors and refusals
	epoch uint64
	start time.Time
	live  atomic.Pointer[Config] // see config
	log   *slog.Logger
	audit *audit.Log // nil for none; set before Serve

	// The packages below frontal.
	up       *uplink.Set
	registry *directory.Registry
	resolver *directory.Resolver
	awaits   *directory.Awaits
	hosts    *directory.Hosts
	gateway  *gateway.Gateway
	measure  *measure.Monitor
	permit   *permit.Judge
	memory   *outcomes.Memory // of outcomes of techniques
	ledgers  *ledger.Ledgers  // of records that helpers have added to the audit log
	sessions sessionLimit     // of a NAT before the site

	nodesSeen seenNodes // outside profile.networks

	// The sessions with helpers, brokers and admins.
	creds     *control.Credentials
	endpoint  *control.Endpoint
	half      *accept.HalfOpen       // unauthenticated control connections
	waits     *limit.Counter[string] // pending waiting calls of helpers, by node
	httpProxy carrier.HTTPProxy      // the site's HTTP proxy, if there is one

	ctx    context.Context // ends with Serve
	cancel context.CancelFunc
	open   context.Context    // ends before ctx when the frontal drains: no new connections or sessions
	shut   context.CancelFunc // ends open
	work   sync.WaitGroup     // everything Serve waits for

	stopMetrics func() // ends the metrics server; may be called again
}

// New returns a frontal with checked settings. It fails if the certificate is not that of the
// site's frontal. Nothing runs until Serve.
func New(cfg Config, creds *control.Credentials, log *slog.Logger) (*Frontal, error) {
	site := overlay.SiteID(cfg.Site)
	if id := creds.Identity(); id.Role != control.RoleFrontal || id.Site != site {
		return nil, fmt.Errorf("site is %s, but the certificate is that of %v; it must be that of frontal %s", site, id, site)
	}
	quota, err := ratelimit.New(cfg.Quota.Rules(), string(cfg.Quota.State), log)
	if err != nil {
		return nil, err
	}
	proxy, err := cfg.HTTPProxy.load()
	if err != nil {
		return nil, err
	}
	own, err := permit.Load(string(cfg.Policy))
	if err != nil {
		return nil, err
	}
	f := &Frontal{
		site: site, who: "frontal " + cfg.Site, log: log, creds: creds,
		epoch: rand.Uint64() | 1, start: time.Now(),
		registry: directory.NewRegistry(site, cfg.Grace, cfg.Limits.Processes, cfg.Limits.PerNode),
		memory:   outcomes.New(), ledgers: ledger.New(),

		stopMetrics: func() {},
	}
	f.sessions.log, f.sessions.news = log, func() {
		f.work.Go(func() {
			f.joinAgain()
			f.resolver.Forget() // the plans from before
		})
	}
	f.waits = limit.NewCounter[string](limit.Bounds{
		What: "calls that wait for a process or a name", Total: cfg.Limits.Waiting, PerKey: cfg.Limits.WaitsPerNode,
		TotalSetting: "limits.waiting", KeySetting: "limits.waiting_per_node",
	})
	f.half = accept.NewHalfOpen(cfg.Limits.halfOpen("unauthenticated control connections"), f.auditCaller)
	f.live.Store(&cfg)
	f.permit = permit.New(permit.Options{
		Site: site, Who: f.who, Log: log, File: func() string { return string(f.config().Policy) }, Audit: func(r audit.Record) { f.audit.Append(r) },
	}, own)
	f.httpProxy = proxy
	f.measure = f.newMeasure()
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.open, f.shut = context.WithCancel(f.ctx)
	f.up = uplink.New(f.who, cfg.Broker, cfg.Patience, log)
	f.hosts = directory.NewHosts(site, f.who, f.up, log)
	f.resolver = directory.NewResolver(f.ctx, &f.work, f.who, site, f.up, cfg.Limits.Cache, cfg.CacheAge)
	f.awaits = directory.NewAwaits(f.ctx, &f.work, f.who, f.registry, f.resolver, f.up)
	f.gateway = f.newGateway(quota)
	f.endpoint = control.NewEndpoint(creds, log, func(r grpc.ServiceRegistrar) {
		controlpb.RegisterDirectoryServer(r, &directoryServer{f: f})
		controlpb.RegisterNodesServer(r, &nodesServer{f: f})
		controlpb.RegisterTargetServer(r, &targetServer{f: f})
		controlpb.RegisterAdminServer(r, &adminServer{f: f})
	})
	f.hosts.Note = func(node string) string {
		if node == "" {
			return f.endpoint.OwnContested()
		}
		return f.endpoint.Contested(control.Identity{Role: control.RoleHelper, Site: site, Name: node})
	}
	f.endpoint.Refused, f.endpoint.OverBudget = f.auditCaller, f.auditOverBudget
	f.endpoint.SetHalfOpen(f.half)
	f.endpoint.SetBudget(cfg.Limits.budget())
	f.endpoint.SetTrust(control.Trust{PassEnrol: f.passEnrolment, Renew: f.renew, Cut: f.cutFor})
	return f, nil
}

// load returns the proxy with its password.
func (h HTTPProxy) load() (carrier.HTTPProxy, error) {
	p := carrier.HTTPProxy{Addr: h.Address, User: h.User}
	if h.PasswordFile == "" {
		return p, nil
	}
	password, err := carrier.ReadPassword(string(h.PasswordFile))
	if err != nil {
		return p, fmt.Errorf("http_proxy.password_file: %w", err)
	}
	p.Password = password
	return p, nil
}

// Serve listens, keeps the session with the broker and serves the site's helpers until ctx ends or
// a listener fails. It calls ready once it listens, with the addresses as facts; it does not wait
// for the broker. It returns when everything it started has ended. Serve may be called once.
func (f *Frontal) Serve(ctx context.Context, ready func(facts ...string)) error {
	defer f.gateway.ServeQuota()()
	defer f.auditSums(true)     // when no helper can report any more
	var sessions sync.WaitGroup // ended before the endpoint, and with it the last handler, ends
	defer f.work.Wait()
	defer f.endpoint.Close()
	defer sessions.Wait()
	defer f.cancel()
	defer context.AfterFunc(ctx, f.cancel)()

	hooks := daemon.HooksOf(ctx)
	f.gateway.PassOn, f.gateway.Audit = hooks.Return, f.audit
	hooks.CountWork("links", f.gateway.LinkCount)
	ln, err := f.listen(ctx)
	if err != nil {
		return err
	}
	if err := f.gateway.Start(); err != nil {
		ln.close()
		return err
	}
	f.log.Info("serving", "site", f.site, "control", ln.control.Addr().String(), "data", addrText(f.gateway.DataAddr), "public", addrText(f.gateway.PublicAddr), "brokers", strings.Join(f.config().Broker, " "))
	// By the time ready returns, a predecessor has released everything that it hands over.
	ready(ln.facts...)
	failed := make(chan error, 3)
	sessions.Go(func() { failed <- f.endpoint.Serve(f.open, ln.control, f.admit, f.helperJoined) })
	for _, d := range ln.data {
		sessions.Go(func() { failed <- d.serve(d.TCPListener) })
	}
	for _, to := range f.up.All {
		sessions.Go(func() {
			f.endpoint.Keep(f.open, control.DialConfig{
				Addr: to.Address, Role: control.RoleBroker, AskIdle: control.AskBrokerIdle, HTTPProxy: f.httpProxy, Small: true, Down: func(err error) { f.up.Failed(to, err) },
			}, func(ctx context.Context, s *control.Session) error { return f.brokerJoined(ctx, to, s) })
		})
	}
	f.work.Go(func() { f.up.ForwardReports(f.ctx) })
	f.work.Go(f.sweep)
	f.work.Go(func() { f.measure.Run(f.ctx) })
	f.work.Go(func() { f.hosts.Tell(f.ctx) })
	f.work.Go(f.tellTraffic)
	f.permit.Describe()
	if f.config().TLS.Renew {
		f.work.Go(func() { enrol.Keep(f.ctx, f.creds, f.log, f.up.Renew) })
	}

	daemon.OnReload(ctx, liveKeys, f.reload)
	select {
	case <-f.ctx.Done():
		return nil
	case <-hooks.Draining():
		f.shut()
		sessions.Wait()
		f.drain(hooks)
		return nil
	case err := <-failed:
		if f.ctx.Err() != nil {
			return nil
		}
		return err
	}
}

// listeners are the listeners of Serve.
type listeners struct {
	control net.Listener
	data    []dataListener
	facts   []string
}

// dataListener accepts one kind of data connection.
type dataListener struct {
	*net.TCPListener
	serve func(*net.TCPListener) error
}

func (l *listeners) close() {
	if l.control != nil {
		l.control.Close()
	}
	for _, d := range l.data {
		d.Close()
	}
}

// socket listens at a setting's address, or returns the predecessor's socket.
func (f *Frontal) socket(ctx context.Context, key string, at netip.AddrPort) (*net.TCPListener, error) {
	ln, err := daemon.Socket(ctx, key+" "+at.String(), func() (*net.TCPListener, error) {
		if key == "public_listen" && at.Port() == 0 {
			return carrier.ListenIn(ctx, at.Addr(), f.config().ports())
		}
		return listenTCP(ctx, at)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return ln, nil
}

func (f *Frontal) listen(ctx context.Context) (l listeners, err error) {
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	c, err := f.socket(ctx, "listen", f.config().Listen)
	if err != nil {
		return l, err
	}
	l.control = c
	l.facts = append(l.facts, "listen="+c.Addr().String())
	if f.config().DataListen.IsValid() {
		d, err := f.socket(ctx, "data_listen", f.config().DataListen)
		if err != nil {
			return l, err
		}
		f.gateway.DataAddr = addrOf(d)
		l.data = append(l.data, dataListener{d, f.gateway.ServeNodes})
		l.facts = append(l.facts, "data="+f.gateway.DataAddr.String())
	}
	if f.config().PublicListen.IsValid() {
		d, err := f.listenPublic(ctx)
		if err != nil {
			return l, err
		}
		l.data = append(l.data, dataListener{d, f.gateway.ServeOutside})
		l.facts = append(l.facts, "public="+f.gateway.PublicAddr.String())
	}
	return l, nil
}

// listenPublic listens inside the site's port range and records the address that other sites get.
func (f *Frontal) listenPublic(ctx context.Context) (*net.TCPListener, error) {
	d, err := f.socket(ctx, "public_listen", f.config().PublicListen)
	if err != nil {
		return nil, err
	}
	f.gateway.PublicAddr = f.config().PublicAddress
	if !f.gateway.PublicAddr.IsValid() {
		f.gateway.PublicAddr = addrOf(d)
	}
	if f.gateway.PublicAddr.Port() == 0 {
		f.gateway.PublicAddr = netip.AddrPortFrom(f.gateway.PublicAddr.Addr(), addrOf(d).Port())
	}
	return d, nil
}

func listenTCP(ctx context.Context, at netip.AddrPort) (*net.TCPListener, error) {
	lc := net.ListenConfig{KeepAlive: -1}
	lc.SetMultipathTCP(false) // such a socket cannot be spliced
	ln, err := lc.Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	return ln.(*net.TCPListener), nil
}

func addrOf(ln *net.TCPListener) netip.AddrPort {
	return gateway.PlainAddr(ln.Addr().(*net.TCPAddr).AddrPort())
}

func addrText(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// admit admits the helpers of this site, and admins.
func (f *Frontal) admit(id control.Identity) error {
	switch {
	case id.Role == control.RoleAdmin, id.Role == control.RoleHelper && id.Site == f.site:
		return nil
	case id.Role == control.RoleHelper:
		return fmt.Errorf("%v belongs to another site than %s", id, f.who)
	}
	return fmt.Errorf("%v has no business with %s, which serves the helpers of its site", id, f.who)
}

// refusedTime is how long a helper that was refused may take to end its session.
const refusedTime = 10 * time.Second

// helperJoined keeps the registry consistent with one session.
func (f *Frontal) helperJoined(ctx context.Context, s *control.Session) {
	id := s.Peer()
	if id.Role != control.RoleHelper || s.Visiting() {
		return
	}
	if err := f.endpoint.Claim(s); err != nil { // as its first call is told
		if !errors.Is(err, overlay.ErrForbidden) {
			return // it has ended
		}
		f.log.Warn("helper refused", "from", s.RemoteAddr().String(), "error", err)
		f.auditRefusal(id.String()+" "+s.RemoteAddr().String(), "session", err)
		f.hosts.Changed() // what is said of the node
		sleep.For(ctx, refusedTime)
		s.Close()
		return
	}
	replaced := f.registry.Attach(id.Name, s, time.Now())
	f.log.Info("helper joined", "node", id.Node().String(), "from", s.RemoteAddr().String(), "replaces", replaced != nil)
	f.auditSession(s, "began")
	if replaced != nil {
		replaced.Close()
	}
	<-ctx.Done()
	f.registry.Detach(id.Name, s, time.Now())
	f.hosts.Leave(s)
	f.log.Info("helper left", "node", id.Node().String(), "grace", f.config().Grace.String())
	f.auditSession(s, "ended")
}

// sweep withdraws the processes of helpers that did not reconnect, until the frontal ends.
func (f *Frontal) sweep() {
	tick := time.NewTicker(min(max(f.config().Grace/8, 10*time.Millisecond), 5*time.Second))
	defer tick.Stop()
	for {
		select {
		case <-f.open.Done():
			return // the successor's registry is authoritative
		case <-tick.C:
		}
		f.auditSums(false)
		now := time.Now()
		gone := f.registry.Expire(now)
		f.gateway.Expire(now)
		f.hosts.Expire(now)
		f.sessions.expire(now)
		for _, p := range gone {
			f.log.Warn("process dropped: its helper did not register it again in time", "job", p.Process.Job, "rank", p.Process.Rank, "node", p.Node.String(), "grace", f.config().Grace.String())
		}
		if err := f.up.Withdraw(f.ctx, uplink.Withdrawals(gone)); err != nil && f.ctx.Err() == nil {
			f.log.Warn("cannot withdraw processes at the broker; it drops them when their lease expires", "processes", len(gone), "error", err)
		}
	}
}
