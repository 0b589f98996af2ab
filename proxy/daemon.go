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

	"github.com/isthmus-grid/isthmus/internal/audit"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/enrol"
	"github.com/isthmus-grid/isthmus/internal/metrics"
	"github.com/isthmus-grid/isthmus/internal/pace"
	"github.com/isthmus-grid/isthmus/internal/ticket"
	"github.com/isthmus-grid/isthmus/internal/vantage"
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

// serve is the daemon from its settings to its end.
func serve(ctx context.Context, cfg Config, log *slog.Logger, ready func(...string)) error {
	creds, err := control.LoadCredentials(string(cfg.TLS.Cert), string(cfg.TLS.Key), string(cfg.TLS.CA))
	if err != nil {
		return err
	}
	if id := creds.Identity(); id.Role != control.RoleProxy {
		return fmt.Errorf("%s is the certificate of %v, want one of a proxy", cfg.TLS.Cert, id)
	}
	if err := enrol.KeepRevoked(creds, string(cfg.TLS.Revoked)); err != nil {
		return err
	}
	set := cfg.Settings()
	set.Name, set.Key = creds.Identity().Name, ticket.NewKey()
	if set.Audit, err = audit.Open(cfg.Audit, creds.Identity().String(), log); err != nil {
		return err
	}
	defer set.Audit.Start()()
	daemon.OnChange(ctx, set.Audit.NoteChange)
	if set.Quota, err = pace.New(cfg.Quota.Rules(), string(cfg.Quota.State), log); err != nil {
		return err
	}
	warnOfLimits(set.Limits, log)

	listeners, err := listenAll(ctx, cfg.Listen)
	if err != nil {
		return err
	}
	hooks := daemon.HooksOf(ctx)
	set.PassOn = hooks.Return
	s := New(set, log)
	hooks.CountWork("links", s.linkCount)
	daemon.OnReload(ctx, []string{"limits.links", "limits.waiting", "limits.handshakes"}, func(next Config) (func(), error) {
		return func() { s.SetLimits(Limits(next.Limits)) }, nil
	})
	daemon.OnReload(ctx, pace.LiveKeys(), func(next Config) (func(), error) {
		return func() { set.Quota.SetRules(next.Quota.Rules()) }, nil
	})
	var sockets *vantage.Sockets // set before the first session
	e := control.NewEndpoint(creds, log, func(r grpc.ServiceRegistrar) {
		controlpb.RegisterAdminServer(r, admin{server: s})
		controlpb.RegisterVantagesServer(r, vantages{log: log, point: func() vantage.Point {
			return vantage.Point{Observer: s.observer, Sockets: sockets}
		}})
	})
	defer e.Close()
	e.SetTrust(control.Trust{Cut: s.cutFor})
	facts, stopMetrics, err := metrics.Start(ctx, cfg.MetricsListen, s.metrics(creds), log)
	if err != nil {
		for _, ln := range listeners {
			ln.Close()
		}
		return err
	}
	defer stopMetrics()

	ctx, cancel := context.WithCancel(ctx)
	var session, draining sync.WaitGroup
	defer session.Wait()
	defer draining.Wait()
	defer cancel()
	// Whatever a predecessor let go of it has let go of when ready returns.
	log.Info("serving", "name", set.Name, "listen", fmt.Sprint(bound(listeners)), "brokers", strings.Join(cfg.Broker, " "))
	ready(append([]string{"listen=" + bound(listeners)[0].String()}, facts...)...)
	lettable, letGo := context.WithCancel(ctx) // what a successor takes over
	var let sync.WaitGroup
	defer let.Wait()
	defer letGo()
	stunPort := uint16(0)
	if sockets = serveSTUN(lettable, &let, cfg.STUNListen, s); sockets != nil {
		stunPort = sockets.Port()
	}
	o := &offerer{server: s, key: set.Key, advertise: cfg.Advertise, listen: bound(listeners), stunPort: stunPort, log: log}
	if cfg.TLS.Renew {
		session.Go(func() { enrol.Keep(ctx, creds, log, o.renewed) })
	}
	for _, broker := range cfg.Broker {
		let.Go(func() {
			e.Keep(lettable, control.DialConfig{Addr: broker, Role: control.RoleBroker}, o.run)
		})
	}
	draining.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-hooks.Draining():
		}
		if hooks.Succeeded() {
			s.StopAccepting()
			letGo()
			stopMetrics()
			let.Wait()
			hooks.LetGo()
			s.serveReturned(ctx, hooks.Returned())
		} else {
			s.Drain(ctx)
		}
	})
	err = s.Serve(ctx, listeners...)
	if err == nil && ctx.Err() == nil {
		draining.Wait() // what a successor passes on is served to its end
	}
	return err
}

// listenAll opens every listener or none.
func listenAll(ctx context.Context, addrs []netip.AddrPort) ([]*net.TCPListener, error) {
	var open []*net.TCPListener
	for _, a := range addrs {
		ports := overlay.Ports{First: a.Port(), Last: a.Port()}
		ln, err := daemon.Socket(ctx, "listen "+a.String(), func() (*net.TCPListener, error) {
			return carrier.ListenIn(ctx, a.Addr(), ports)
		})
		if err != nil {
			for _, ln := range open {
				ln.Close()
			}
			if errors.Is(err, overlay.ErrPortRangeFull) {
				err = fmt.Errorf("%v is in use; another program, or another proxy, listens there (ss -ltnp)", a)
			}
			return nil, fmt.Errorf("listen: %w", err)
		}
		open = append(open, ln)
	}
	return open, nil
}

// bound returns the addresses that are listened on.
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

// admin lets the broker, and nobody else, see the status.
type admin struct {
	controlpb.UnimplementedAdminServer
	server *Server
}

// Status implements controlpb.AdminServer.
func (a admin) Status(context.Context, *controlpb.StatusRequest) (*controlpb.StatusResponse, error) {
	b, err := json.Marshal(a.server.Status())
	return &controlpb.StatusResponse{Json: b}, err
}
