package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"

	"github.com/urfave/cli/v2"
	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/limit/ratelimit"
	"github.com/isthmus-grid/isthmus/internal/nat/reflector"
	"github.com/isthmus-grid/isthmus/internal/pki/enrol"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Spec describes the daemon.
func Spec() daemon.Spec[Config] {
	return daemon.Spec[Config]{
		Name:  "isthmus-proxy",
		Usage: "relay links between processes that cannot reach each other",
		Serve: serve,
	}
}

// Main runs the daemon as a program of its own.
func Main() { daemon.Main(Spec()) }

// Command returns the daemon as a command of a larger program.
func Command() *cli.Command { return daemon.Command(Spec()) }

// serve runs the daemon with its settings until it ends.
func serve(ctx context.Context, cfg Config, log *slog.Logger, ready func(...string)) error {
	creds, err := identify(cfg.TLS)
	if err != nil {
		return err
	}
	set, err := cfg.open(creds, log)
	if err != nil {
		return err
	}
	defer set.Audit.Start()()
	daemon.OnChange(ctx, set.Audit.NoteChange)
	warnOfLimits(set.Limits, log)
	listeners, err := listenAll(ctx, cfg.Listen)
	if err != nil {
		return err
	}
	hooks := daemon.HooksOf(ctx)
	set.PassOn = hooks.Return
	s := New(set, log)
	hooks.CountWork("links", s.linkCount)
	reload(ctx, s, set.Quota)
	facts, stopMetrics, err := metrics.Start(ctx, cfg.MetricsListen, s.metrics(creds), log)
	if err != nil {
		closeAll(listeners)
		return err
	}
	defer stopMetrics()
	l := &life{cfg: cfg, creds: creds, server: s, listeners: listeners, hooks: hooks, stopMetrics: stopMetrics, log: log}
	return l.run(ctx, func() {
		at := bound(listeners)
		log.Info("serving", "name", set.Name, "listen", fmt.Sprint(at), "brokers", strings.Join(cfg.Broker, " "))
		ready(append([]string{"listen=" + at[0].String()}, facts...)...)
	})
}

// identify loads the certificate, which must be a proxy's.
func identify(t TLS) (*control.Credentials, error) {
	creds, err := control.LoadCredentials(string(t.Cert), string(t.Key), string(t.CA))
	if err != nil {
		return nil, err
	}
	if id := creds.Identity(); id.Role != control.RoleProxy {
		return nil, fmt.Errorf("%s is the certificate of %v, want one of a proxy", t.Cert, id)
	}
	return creds, enrol.KeepRevoked(creds, string(t.Revoked))
}

// open returns the Settings of the proxy, with their files open.
func (c Config) open(creds *control.Credentials, log *slog.Logger) (set Settings, err error) {
	set = c.Settings()
	set.Name, set.Key, set.TLS = creds.Identity().Name, ticket.NewKey(), creds.DataServer
	if set.Audit, err = audit.Open(c.Audit, creds.Identity().Key(), log); err != nil {
		return set, err
	}
	set.Quota, err = ratelimit.New(c.Quota.Rules(), string(c.Quota.State), log)
	return set, err
}

// reload makes s adopt the settings that may change while it serves.
func reload(ctx context.Context, s *Server, quota *ratelimit.Limiter) {
	daemon.OnReload(ctx, []string{"limits.links", "limits.waiting", "limits.handshakes", "limits.handshakes_per_source"}, func(next Config) (func(), error) {
		return func() { s.SetLimits(Limits(next.Limits)) }, nil
	})
	daemon.OnReload(ctx, ratelimit.LiveKeys(), func(next Config) (func(), error) {
		return func() { quota.SetRules(next.Quota.Rules()) }, nil
	})
}

// life is everything around a running Server: the sessions with the brokers, the renewal of its
// certificate, and how they end.
type life struct {
	cfg         Config
	creds       *control.Credentials
	server      *Server
	listeners   []*net.TCPListener
	hooks       *daemon.Hooks
	stopMetrics func()
	log         *slog.Logger

	sockets *reflector.Sockets // set before the first session

	// What a successor takes over: the brokers' sessions and the STUN sockets. They end with letGo, and
	// let waits for that.
	let   sync.WaitGroup
	letGo context.CancelFunc
}

// run serves until ctx ends or another process has taken over, and returns when everything it
// started has ended. It calls ready once, when the sockets are open: when ready returns, a
// predecessor has released its resources.
func (l *life) run(ctx context.Context, ready func()) error {
	e := l.endpoint()
	defer e.Close()
	ctx, cancel := context.WithCancel(ctx)
	var renewing, draining, following sync.WaitGroup
	defer renewing.Wait()
	defer draining.Wait()
	defer following.Wait()
	defer cancel()
	ready()
	lettable, letGo := context.WithCancel(ctx)
	l.letGo = letGo
	defer l.let.Wait()
	defer letGo()
	o := l.offerer(lettable)
	if l.cfg.TLS.Renew {
		renewing.Go(func() { enrol.Keep(ctx, l.creds, l.log, o.renewed) })
	}
	for _, broker := range l.cfg.Broker {
		l.let.Go(func() {
			e.Keep(lettable, control.DialConfig{Addr: broker, Role: control.RoleBroker, AskIdle: control.AskBrokerIdle}, o.run)
		})
	}
	draining.Go(func() { l.drain(ctx) })
	following.Go(func() { l.followRevocations(ctx) })
	err := l.server.Serve(ctx, l.listeners...)
	if err == nil && ctx.Err() == nil {
		draining.Wait() // connections that a successor passes on are served to their end
	}
	return err
}

// endpoint returns the endpoint on which brokers call this proxy.
func (l *life) endpoint() *control.Endpoint {
	e := control.NewEndpoint(l.creds, l.log, func(r grpc.ServiceRegistrar) {
		controlpb.RegisterAdminServer(r, admin{server: l.server})
		controlpb.RegisterReflectorServer(r, callBackServer{log: l.log, point: func() reflector.Point {
			return reflector.Point{Observer: l.server.observer, Sockets: l.sockets}
		}})
	})
	e.SetTrust(control.Trust{Cut: l.server.cutFor})
	return e
}

// offerer returns the offerer that announces this proxy to the brokers, after opening the sockets
// that it announces.
func (l *life) offerer(lettable context.Context) *offerer {
	o := &offerer{server: l.server, key: l.server.set.Key, advertise: l.cfg.Advertise, listen: bound(l.listeners), log: l.log}
	if l.sockets = serveSTUN(lettable, &l.let, l.cfg.STUNListen, l.server); l.sockets != nil {
		o.stun = l.sockets
	}
	return o
}

// drain waits for the request to end, and then ends the proxy without cutting links.
func (l *life) drain(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-l.hooks.Draining():
	}
	if !l.hooks.Succeeded() {
		l.server.Drain(ctx)
		return
	}
	l.server.StopAccepting()
	l.letGo()
	l.stopMetrics()
	l.let.Wait()
	l.hooks.LetGo()
	l.server.serveReturned(ctx, l.hooks.Returned())
}

// listenAll opens all listeners or none.
func listenAll(ctx context.Context, addrs []netip.AddrPort) ([]*net.TCPListener, error) {
	var open []*net.TCPListener
	for _, a := range addrs {
		ports := overlay.Ports{First: a.Port(), Last: a.Port()}
		ln, err := daemon.Socket(ctx, "listen "+a.String(), func() (*net.TCPListener, error) {
			return carrier.ListenIn(ctx, a.Addr(), ports)
		})
		if err != nil {
			closeAll(open)
			if errors.Is(err, overlay.ErrPortRangeFull) {
				err = fmt.Errorf("%v is in use; another program, or another proxy, listens there (ss -ltnp)", a)
			}
			return nil, fmt.Errorf("listen: %w", err)
		}
		open = append(open, ln)
	}
	return open, nil
}

func closeAll(listeners []*net.TCPListener) {
	for _, ln := range listeners {
		ln.Close()
	}
}

// bound returns the addresses that the listeners are bound to.
func bound(listeners []*net.TCPListener) []netip.AddrPort {
	var out []netip.AddrPort
	for _, ln := range listeners {
		out = append(out, ln.Addr().(*net.TCPAddr).AddrPort())
	}
	return out
}

func warnOfLimits(l Limits, log *slog.Logger) {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil {
		return
	}
	if err := l.openFiles(uint64(files.Cur)); err != nil {
		log.Warn("too few open files allowed", "error", err)
	}
}

// admin shows the status to the broker, and only to it.
type admin struct {
	controlpb.UnimplementedAdminServer
	server *Server
}

// Status implements controlpb.AdminServer.
func (a admin) Status(context.Context, *controlpb.StatusRequest) (*controlpb.StatusResponse, error) {
	b, err := json.Marshal(a.server.Status())
	return &controlpb.StatusResponse{Json: b}, err
}
