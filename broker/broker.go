package broker

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/internal/limit/accept"
	"github.com/isthmus-grid/isthmus/internal/nat/reflector"
	"github.com/isthmus-grid/isthmus/internal/pki/enrol"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Broker serves frontals, proxies and admins. Safe for concurrent use: New and Serve set the fields before
// the first session, and what changes later is in fields that have locks of their own.
type Broker struct {
	name      string
	epoch     uint64
	cfg       Config                 // as of the start
	live      atomic.Pointer[Config] // current settings, see config
	log       *slog.Logger
	registry  *registry.Registry
	proxies   proxies
	entering  func() // called before a session enters the registry or the proxies; nil except in tests
	plans     planner
	sessions  sessions
	counters  counters
	grants    *grants
	reflector reflectorState
	measured  measurements
	policies  policies
	outcomes  outcomes
	hosts     *hosts
	traffic   traffic.Meter
	endpoint  *control.Endpoint
	audit     *audit.Log // nil: no audit log; set before Serve
	creds     *control.Credentials
	enrolment *enrol.Server // nil: this broker does not enrol
	store     *storeManager
	names     *sharedNames
	started   time.Time

	half, observed *accept.HalfOpen // connections that have not authenticated yet

	waits *limit.Counter[overlay.SiteID] // callers waiting, by site; the registry bounds the sum

	signalling    *limit.Counter[overlay.SiteID] // in flight, by the asker's site
	signallingMax time.Duration                  // bound of one signalling request
}

// signallingMax bounds one signalling request. The target's helper has shorter bounds for its part,
// so this one is for peers that do not respond.
const signallingMax = 15 * time.Second

// New returns a broker, named as in its credentials. It starts nothing; call Serve, once.
func New(cfg Config, creds *control.Credentials, log *slog.Logger) (*Broker, error) {
	id := creds.Identity()
	if id.Role != control.RoleBroker {
		return nil, fmt.Errorf("the certificate is that of %v, not of a broker; issue one for \"broker NAME\"", id)
	}
	b := &Broker{
		name: id.Name, epoch: max(rand.Uint64(), 1), cfg: cfg, log: log, started: time.Now(),
		creds:    creds,
		registry: registry.New(cfg.Lease, cfg.Limits.registry()),
		proxies:  proxies{Proxies: registry.NewProxies(cfg.Limits.Proxies)},
		hosts:    newHosts(cfg.Lease, cfg.Limits.Hosts),
		signalling: limit.NewCounter[overlay.SiteID](limit.Bounds{
			What: "signalling requests in flight", Total: cfg.Limits.Signalling, PerKey: cfg.Limits.SignallingPerSite,
			TotalSetting: "limits.signalling", KeySetting: "limits.signalling_per_site",
		}),
		signallingMax: signallingMax,
		grants:        newGrants(creds),
	}
	b.half = accept.NewHalfOpen(accept.Bounds{Total: cfg.Limits.HalfOpen, PerSource: cfg.Limits.HalfOpenPerSource}, b.turnedAway)
	b.observed = accept.NewHalfOpen(accept.Bounds{
		What: "connections that ask for their address", Total: cfg.Limits.HalfOpen, PerSource: cfg.Limits.HalfOpenPerSource,
		TotalSetting: "limits.half_open", SourceSetting: "limits.half_open_per_source",
	}, b.turnedAway)
	b.waits = limit.NewCounter[overlay.SiteID](limit.Bounds{What: "callers of one site that wait for a process or a name", PerKey: cfg.Limits.WaitsPerSite, KeySetting: "limits.waiting_per_site"})
	b.reflector = newReflectorState(id.String(), b.observed, log)
	b.live.Store(&cfg)
	var err error
	if b.store, err = newStoreManager(cfg, creds, log); err != nil {
		return nil, err
	}
	b.names = newSharedNames(b.store, cfg.Lease, log)
	b.endpoint = control.NewEndpoint(creds, log, func(r grpc.ServiceRegistrar) {
		controlpb.RegisterDirectoryServer(r, directory{b: b})
		controlpb.RegisterSitesServer(r, sites{b: b})
		controlpb.RegisterRelaysServer(r, relays{b: b})
		controlpb.RegisterTrafficServer(r, carriers{b: b})
		controlpb.RegisterAdminServer(r, admin{b: b})
	})
	b.endpoint.Refused, b.endpoint.OverBudget = b.auditCaller, b.auditOverBudget
	b.endpoint.SetHalfOpen(b.half)
	b.endpoint.Data = func(ctx context.Context, c *tls.Conn) { b.reflector.observer.Take(ctx, carrier.Unread(c, nil)) }
	b.endpoint.SetBudget(cfg.Limits.budget())
	b.endpoint.SetTrust(control.Trust{Renew: b.renew})
	return b, nil
}

// Serve accepts sessions on ln until ctx ends or ln fails, and closes ln. It returns when every
// goroutine it started has ended.
func (b *Broker) Serve(ctx context.Context, ln net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var own sync.WaitGroup
	defer own.Wait()
	defer b.endpoint.Close()
	defer cancel()
	if a, ok := ln.Addr().(*net.TCPAddr); ok {
		b.reflector.listening = a.AddrPort()
	}
	front := reflector.NewFront(ln, b.reflector.observer, b.half, b.log)
	own.Go(func() { b.sweep(ctx) })
	own.Go(func() { front.Serve(ctx) })
	own.Go(func() { b.serveSTUN(ctx) })
	own.Go(func() { b.followRevocations(ctx) })
	own.Go(func() { b.store.follow(ctx) })
	own.Go(func() { b.store.serve(ctx) })
	own.Go(func() { b.names.follow(ctx) })
	own.Go(func() { b.names.serve(ctx, b.registry) })
	if b.cfg.TLS.Renew {
		own.Go(func() { enrol.Keep(ctx, b.creds, b.log, b.renewOwn) })
	}
	b.log.Info("broker serves", "name", b.name, "listen", ln.Addr().String(), "epoch", b.epoch)
	return b.endpoint.Serve(ctx, front, b.admit, b.joined)
}

// sweep drops entries whose lease has expired, until ctx ends.
func (b *Broker) sweep(ctx context.Context) {
	tick := time.NewTicker(min(max(b.cfg.Lease/4, 10*time.Millisecond), 5*time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if n := b.registry.Expire(now); n > 0 {
				b.counters.expired.Add(uint64(n))
				b.log.Info("processes dropped: their lease is over", "count", n)
			}
			b.hosts.expire(now)
			known := func(id overlay.SiteID) bool { _, err := b.registry.Site(id); return err == nil }
			b.measured.keep(known)
			b.policies.keep(known)
			b.outcomes.drop(known)
			b.traffic.Expire(now)
		}
	}
}

// admit decides which peers may have a session with a broker.
func (b *Broker) admit(id control.Identity) error {
	switch id.Role {
	case control.RoleFrontal, control.RoleProxy, control.RoleAdmin:
	case control.RoleHelper:
		return fmt.Errorf("%w: %v is not for the broker to serve; a helper joins the frontal of its site", overlay.ErrForbidden, id)
	default:
		return fmt.Errorf("%w: %v is not for the broker to serve", overlay.ErrForbidden, id)
	}
	if n := b.sessions.count(); n >= b.config().Limits.Sessions {
		return fmt.Errorf("%w: the broker has %d sessions, its limit", overlay.ErrOverloaded, n)
	}
	return nil
}

// joined watches one session until it ends.
func (b *Broker) joined(ctx context.Context, s *control.Session) {
	holder, err := b.sessions.holder(s)
	if err != nil {
		return // it ended before this ran
	}
	b.log.Info("session began", "peer", s.Peer().String(), "from", s.RemoteAddr().String())
	b.auditSession(s, "began")
	<-ctx.Done()
	s.Close() // so that no late call on it can join again
	b.sessions.remove(s)
	b.leave(holder)
	b.hosts.leave(holder, time.Now())
	b.log.Info("session ended", "peer", s.Peer().String())
	b.auditSession(s, "ended")
}

// replaced ends a session whose site or proxy has a newer one.
func (b *Broker) replaced(old registry.Holder, by control.Identity) {
	if s := b.sessions.byHolder(old); s != nil {
		b.log.Warn("session replaced by a newer one of the same peer", "peer", by.String(), "old_from", s.RemoteAddr().String())
		s.Close()
	}
}

// caller returns the session of a call if the peer has the role want.
func (b *Broker) caller(ctx context.Context, want control.Role) (*control.Session, registry.Holder, error) {
	s := control.SessionOf(ctx)
	if got := s.Peer(); got.Role != want {
		return nil, 0, fmt.Errorf("%w: this call is for a %v, and this session is that of %v", overlay.ErrForbidden, want, got)
	}
	holder, err := b.sessions.holder(s)
	return s, holder, err
}

// leave removes from the registry what an ended session registered.
func (b *Broker) leave(h registry.Holder) {
	now := time.Now()
	b.registry.Leave(h, now)
	b.proxies.Leave(h, now)
}

// entered is called after a session has entered something into the registry. If the session ended
// meanwhile, joined may have cleaned up too early, and entered cleans up again.
func (b *Broker) entered(s *control.Session, h registry.Holder) error {
	if b.sessions.byHolder(h) != nil {
		return nil
	}
	b.leave(h)
	return fmt.Errorf("%w: the session of %v has ended", overlay.ErrUnreachable, s.Peer())
}

// fail counts an error by its class and converts it for gRPC.
func (b *Broker) fail(err error) error {
	b.counters.fault(err)
	return control.Status(err)
}
