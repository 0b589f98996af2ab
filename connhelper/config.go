package connhelper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/ipc/local"
	"github.com/isthmus-grid/isthmus/internal/pki/enrol"
	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
)

// Config holds the helper's settings, from its file and flags.
type Config struct {
	Frontal       string              `yaml:"frontal" required:"true" example:"gateway.site-a.example:7440" help:"Where the site's frontal listens for helpers, host:port."`
	Socket        string              `yaml:"socket" default:"/run/isthmus/helper.sock" help:"The Unix socket on which local processes reach this helper. The environment variable ISTHMUS_HELPER of the processes names it."`
	Public        bool                `yaml:"public" default:"true" help:"Whether processes of every user of the node may use the socket (mode 0666). If false, only those of the helper's own user may (mode 0600): for a helper that belongs to one job."`
	Address       netip.Addr          `yaml:"address" example:"10.1.0.11" help:"The node's address on which other nodes dial it. Empty: the address from which the frontal is reached, or, where that is one of this host only, the one from which other sites are."`
	Advertise     netip.Addr          `yaml:"advertise" example:"198.51.100.11" help:"The address under which other sites dial this node, where a 1:1 NAT makes it differ from address."`
	MetricsListen netip.AddrPort      `yaml:"metrics_listen" example:"127.0.0.1:9444" help:"Address at which Prometheus reads this daemon's metrics, at /metrics. There is no access control, and the metrics name sites, proxies and projects. Without it there is no metrics server."`
	HTTPProxy     HTTPProxy           `yaml:"http_proxy" help:"The site's HTTP proxy; used if the site's profile permits no other outbound traffic."`
	NodeService   NodeServiceSettings `yaml:"node_service" help:"Files of the jobs that run here, and who may run them."`
	Offer         OfferSettings       `yaml:"offer" help:"Resources that the node offers to jobs from anywhere in the grid."`
	Audit         audit.Config        `yaml:"audit" help:"The audit log: every process and job of the node, every connection of a process, and every refusal."`
	TLS           TLS                 `yaml:"tls" help:"Certificate, key and CA of this helper."`
	Deny          []netip.Prefix      `yaml:"deny" example:"10.9.0.0/16" help:"Networks that this helper never dials or sends to, such as the site's management network."`
	Private       []netip.Prefix      `yaml:"private" example:"10.64.0.0/10" help:"Private networks (RFC 1918, 6598, 4193) in which processes of other sites are, if such networks are routed between sites, and networks that this host or the gateway is in, public ones too, if other sites share them: each of those by itself, as a larger one does not include it. Other addresses of remote processes on private networks and on these are not dialled: they belong to hosts of this site."`
	AllowLoopback bool                `yaml:"allow_loopback" default:"false" help:"Whether signalling requests may name loopback addresses: only for a grid that runs on one host."`
	Limits        Limits              `yaml:"limits" help:"Limits of this helper. Requests over a limit are refused as overloaded."`
	MaxOpen       int                 `yaml:"max_open" default:"1024" min:"1" max:"65536" help:"Connections being set up at a time; more are refused as overloaded."`
}

// HTTPProxy is the HTTP CONNECT proxy through which connections leave the site.
type HTTPProxy struct {
	Address      string      `yaml:"address" example:"proxy.site-a.example:3128" help:"The proxy's host:port; empty for none."`
	User         string      `yaml:"user" example:"isthmus" help:"User for Basic credentials; empty for none."`
	PasswordFile daemon.Path `yaml:"password_file" path:"file" help:"File with the password for Basic credentials."`
}

// carrier returns the settings, with the password read from its file.
func (p HTTPProxy) carrier() (carrier.HTTPProxy, error) {
	c := carrier.HTTPProxy{Addr: p.Address, User: p.User}
	if p.PasswordFile == "" {
		return c, nil
	}
	password, err := carrier.ReadPassword(string(p.PasswordFile))
	if err != nil {
		return c, fmt.Errorf("http_proxy.password_file: %w", err)
	}
	c.Password = password
	return c, nil
}

// TLS names the files of the helper's identity.
type TLS struct {
	Cert daemon.Path `yaml:"cert" required:"true" path:"file" example:"/var/lib/isthmus/helper/tls/cert.pem" help:"Certificate of this helper, PEM; it names the site and the node."`
	Key  daemon.Path `yaml:"key" required:"true" path:"file" example:"/var/lib/isthmus/helper/tls/key.pem" help:"Its private key, PEM."`
	CA   daemon.Path `yaml:"ca" required:"true" path:"file" example:"/var/lib/isthmus/helper/tls/ca.pem" help:"Certificate of the grid's CA, PEM."`

	Renew   bool        `yaml:"renew" default:"true" help:"Whether to renew the certificate after two thirds of its life, if the broker enrols. The daemon must be able to write the file; a certificate that is replaced by other means is also loaded without a restart."`
	Revoked daemon.Path `yaml:"revoked" example:"$STATE/revoked.pem" help:"File for the grid's revocation list. Empty: revoked.pem in the service manager's state folder (STATE_DIRECTORY); without one, the list is lost when the daemon ends, and the peers send it again."`
}

// Check checks that the keys fit together.
func (c Config) Check() error {
	var errs []error
	if _, _, err := net.SplitHostPort(c.Frontal); err != nil && c.Frontal != "" {
		errs = append(errs, daemon.Wrong("frontal", "want host:port: %v", err))
	}
	for _, own := range []struct {
		key string
		ip  netip.Addr
	}{{"address", c.Address}, {"advertise", c.Advertise}} {
		kind := multihome.Unreachable(own.ip)
		if kind != "" && !(kind == "loopback" && c.AllowLoopback) {
			errs = append(errs, daemon.Wrong(own.key, "%v (%s) is not an address that other nodes can dial; give one that they can, or remove the key (a grid on one host sets allow_loopback: true)", own.ip, kind))
		}
	}
	return errors.Join(errs...)
}

// CheckFiles checks the files that the keys name, and that the jobs that are offered a place can run.
func (c Config) CheckFiles() error {
	errs := []error{control.CheckFiles(c.TLS.Cert, c.TLS.Key, c.TLS.CA, control.OfRole(control.RoleHelper, ""))}
	if file := c.HTTPProxy.PasswordFile; file != "" {
		_, err := carrier.ReadPassword(string(file))
		errs = append(errs, daemon.WrongFile("http_proxy.password_file", err))
	}
	if dir := c.NodeService.storeOrParent(); c.Offer.Jobs > 0 && dir != "" {
		if err := nodeservice.CheckStore(dir); err != nil {
			errs = append(errs, daemon.Wrong("node_service.store", "%s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

var spec = daemon.Spec[Config]{
	Name:  "isthmus-helper",
	Usage: "connect the processes of this node to those of other nodes",
	Serve: serve,
}

// Command returns the daemon as a command of another program.
func Command() *cli.Command { return daemon.Command(spec) }

// Main runs the daemon as a program of its own.
func Main() { daemon.Main(spec) }

func serve(ctx context.Context, cfg Config, log *slog.Logger, ready func(facts ...string)) error {
	why, offers := cfg.setAccounts(&nodeservice.Options{}), cfg.Offer.Jobs > 0
	takeable := func(offered *OfferSettings) {
		if why != "" && offered.Jobs > 0 {
			log.Warn("no jobs are taken", "reason", why)
			offered.Jobs = 0
		}
	}
	takeable(&cfg.Offer)
	creds, err := control.LoadCredentials(string(cfg.TLS.Cert), string(cfg.TLS.Key), string(cfg.TLS.CA))
	if err != nil {
		return err
	}
	if err := enrol.KeepRevoked(creds, string(cfg.TLS.Revoked)); err != nil {
		return err
	}
	httpProxy, err := cfg.HTTPProxy.carrier()
	if err != nil {
		return err
	}
	trail, err := audit.Open(cfg.Audit, creds.Identity().Key(), log)
	if err != nil {
		return err
	}
	defer trail.Start()()
	daemon.OnChange(ctx, trail.NoteChange)
	h, err := New(Options{
		Audit:         trail,
		Credentials:   creds,
		Frontal:       cfg.Frontal,
		HTTPProxy:     httpProxy,
		Address:       cfg.Address,
		Advertise:     cfg.Advertise,
		Log:           log,
		MaxOpen:       cfg.MaxOpen,
		Limits:        cfg.Limits,
		AllowLoopback: cfg.AllowLoopback,
		Rule:          cfg.rule(),
		Offer:         cfg.Offer.Offer(),
		Renew:         cfg.TLS.Renew,
	})
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if cfg.Public {
		mode = 0o666
	}
	ln, err := local.ListenUnix(cfg.Socket, mode)
	if err != nil {
		return err
	}
	g, err := newNodeService(h, cfg, offers, creds, log)
	if err != nil {
		ln.Close()
		return err
	}
	daemon.OnReload(ctx, []string{"offer"}, func(next Config) (func(), error) {
		takeable(&next.Offer)
		policy := next.Offer.Policy()
		policy.Lease = cfg.NodeService.Orphan
		if err := policy.Check(); err != nil {
			return nil, fmt.Errorf("offer: %w", err)
		}
		return func() {
			if err := errors.Join(g.server.SetPolicy(policy), h.SetOffer(ctx, next.Offer.Offer())); err != nil {
				log.Warn("the offer is not in effect everywhere yet", "error", err)
			}
		}, nil
	})
	facts, stop, err := metrics.Start(ctx, cfg.MetricsListen, h.metrics(creds), log)
	if err != nil {
		ln.Close()
		return err
	}
	defer stop()
	return serveAll(ctx, h, g, ln, mode, func() { ready(append([]string{"socket=" + cfg.Socket}, facts...)...) })
}

// rule returns the rule for addresses that others name; the networks that this host is in change, and a session with the
// frontal knows them.
func (c Config) rule() netrule.Rule { return netrule.Rule{Deny: c.Deny, Private: c.Private} }
