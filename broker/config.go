package broker

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/daemon/httpserve"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/internal/pki/oidc"
)

// Config holds the settings of a broker. Its name is in its certificate.
type Config struct {
	Listen        netip.AddrPort   `yaml:"listen" default:"[::]:443" help:"Address to accept frontals, proxies and admins on. Sites only need outbound access to it."`
	Advertise     []netip.AddrPort `yaml:"advertise" example:"203.0.113.5:443" help:"Addresses at which sites reach this broker, one of each version of IP, where they differ from this host's own: if a NAT translates them. Sites use them, and the proxies, to learn their reflexive addresses. Empty: the address to which a site connects and, of listen [::], the other version's by which this host reaches other networks, unless that is private and the first is not."`
	STUNListen    netip.AddrPort   `yaml:"stun_listen" default:"[::]:3478" help:"Address of the STUN server, from which sites learn their UDP mapping; the same TCP port shows them whether their firewall permits ports other than 443 outbound. \"\" is none."`
	TLS           TLS              `yaml:"tls" help:"Certificate, key and CA of this broker."`
	MetricsListen netip.AddrPort   `yaml:"metrics_listen" example:"127.0.0.1:9441" help:"Address at which Prometheus reads this daemon's metrics, at /metrics. There is no access control, and the metrics name sites, proxies and projects. Without it there is no metrics server."`
	Enrol         Enrol            `yaml:"enrol" help:"How this broker issues certificates to clients that present a token (isthmus ca token), and renews certificates. Without it, the broker does neither."`
	Store         daemon.Path      `yaml:"store" example:"etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/isthmus" help:"Where this broker stores persistent state: used tokens, revocations, published names. A file, used by this broker only, or an etcd that several brokers share, with a key prefix used by this grid only. Empty: broker.db in the service manager's state folder (STATE_DIRECTORY); without one, names and revocations are lost when the broker ends, and the broker cannot enrol."`
	StoreTLS      StoreTLS         `yaml:"store_tls" help:"TLS settings for the etcd."`
	StatusListen  netip.AddrPort   `yaml:"status_listen" example:"127.0.0.1:9480" help:"Address of the status page, for a browser: sites, processes, how sites connect, and why. It is read-only and has no access control, so it must be a loopback address unless status_open is true. Without it there is no status page."`
	StatusOpen    bool             `yaml:"status_open" default:"false" help:"Let status_listen be an address that other hosts reach: all of them see the names of sites, users and projects, and addresses of proxies. Put an authenticating proxy in front of it."`
	Lease         time.Duration    `yaml:"lease" default:"60s" min:"1s" max:"1h" help:"How long a site's processes stay registered after its frontal's session ended. A frontal that reconnects within this time has lost nothing."`
	ProxyChoice   registry.Choice  `yaml:"proxy_choice" default:"least-loaded" enum:"least-loaded,round-robin" help:"How to choose the proxy of a link: by the fraction of its capacity in use, or round-robin."`
	ProxyNetworks []netip.Prefix   `yaml:"proxy_networks" example:"203.0.113.0/28" help:"Networks in which proxies are believed to be at the addresses that they advertise. Others count if the proxy's session comes from there, or it answers there when this broker dials it: list those that this broker cannot dial."`
	RelayLimit    daemon.Size      `yaml:"relay_limit" default:"0B" min:"0B" help:"Bytes that one relayed link may carry, both directions together; 0B is no limit."`
	Audit         audit.Config     `yaml:"audit" help:"The audit log: every signalling request with its decision, every session, and every refused caller."`
	AllowLoopback bool             `yaml:"allow_loopback" default:"false" help:"Let sites and proxies register loopback addresses. Only for a grid whose daemons all run on one machine."`
	Limits        Limits           `yaml:"limits" help:"Limits of the broker. Requests over a limit are refused as overloaded."`
}

// budget returns the bounds on one peer's sessions, streams, calls and bytes.
func (l Limits) budget() control.Budget {
	return control.Budget{Sessions: l.PeerSessions, Streams: l.PeerStreams, Calls: l.PeerCalls, Bytes: int(l.PeerBytes), AllBytes: int(l.PeerBytesTotal), Request: control.StandardBudget.Request}
}

// Check validates the keys against each other.
func (c Config) Check() error {
	if at := c.StatusListen; at.IsValid() && !at.Addr().IsLoopback() && !c.StatusOpen {
		return daemon.Wrong("status_listen", "%v can be reached by others, and the page has no access control; use 127.0.0.1 and a tunnel (ssh -L), or set status_open: true", at)
	}
	for _, a := range c.Advertise {
		if kind := multihome.Unreachable(a.Addr()); kind != "" && !(kind == "loopback" && c.AllowLoopback) {
			return daemon.Wrong("advertise", "%v (%s) is not an address that sites can dial; give one that they can, or remove the key", a, kind)
		}
	}
	return c.checkStore()
}

// CheckFiles checks the files that the keys name.
func (c Config) CheckFiles() error {
	errs := []error{control.CheckFiles(c.TLS.Cert, c.TLS.Key, c.TLS.CA, control.OfRole(control.RoleBroker, ""))}
	if roots, err := control.ReadRoots(string(c.TLS.CA)); err == nil && c.Enrol.enabled() {
		_, err := ca.LoadIssuer(string(c.Enrol.Cert), string(c.Enrol.Key), roots)
		errs = append(errs, daemon.WrongFile("enrol.cert", err))
	}
	if file := c.Enrol.OIDC.CA; file != "" {
		_, err := poolOf(file)
		errs = append(errs, daemon.WrongFile("enrol.oidc.ca", err))
	}
	if c.sharedStore() {
		_, err := c.StoreTLS.config()
		errs = append(errs, daemon.WrongFile("store_tls", err))
	}
	return errors.Join(errs...)
}

// poolOf reads certificates of an authority outside the grid.
func poolOf(file daemon.Path) (*x509.CertPool, error) {
	text, err := os.ReadFile(string(file))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no PEM certificate in it; it must hold those that its server is to be verified with", file)
	}
	return pool, nil
}

// TLS names the files of a broker's credentials, all PEM.
type TLS struct {
	Cert daemon.Path `yaml:"cert" required:"true" path:"file" example:"/etc/isthmus/broker.pem" help:"Certificate of this broker, issued by the grid's CA."`
	Key  daemon.Path `yaml:"key" required:"true" path:"file" example:"/etc/isthmus/broker.key" help:"Private key of the certificate."`
	CA   daemon.Path `yaml:"ca" required:"true" path:"file" example:"/etc/isthmus/ca.pem" help:"Certificate of the grid's CA."`

	Renew   bool        `yaml:"renew" default:"true" help:"Whether to renew the certificate after two thirds of its life, if the broker enrols. The daemon must be able to write the file; a certificate that is replaced by other means is also loaded without a restart."`
	Revoked daemon.Path `yaml:"revoked" example:"$STATE/revoked.pem" help:"File for the grid's revocation list, if store is not a file: with an etcd, for when the etcd is unreachable. Empty: revoked.pem in the service manager's state folder (STATE_DIRECTORY)."`
}

// Enrol is the broker's part of the grid's CA.
type Enrol struct {
	Cert    daemon.Path   `yaml:"cert" path:"file" example:"/etc/isthmus/issuer.pem" help:"Issuing certificate, created offline (isthmus ca issuer)."`
	Key     daemon.Path   `yaml:"key" path:"file" example:"/etc/isthmus/issuer.key" help:"Private key of the issuing certificate."`
	Longest time.Duration `yaml:"longest" default:"2160h" min:"1m" max:"87600h" help:"Maximum lifetime of a certificate that this broker issues, regardless of the token."`
	OIDC    OIDC          `yaml:"oidc" help:"An identity provider outside the grid, whose tokens this broker accepts instead of its own: ID tokens of OpenID Connect, WLCG tokens, SciTokens. They give short-lived certificates to users only. Without an issuer, no such token is accepted."`
}

// OIDC configures the identity provider that the broker trusts for enrolment.
type OIDC struct {
	Issuer   string      `yaml:"issuer" example:"https://idp.example.org/realms/science" help:"The provider, exactly as its tokens name it (iss)."`
	Audience string      `yaml:"audience" example:"https://broker.example.org" help:"Required audience of the tokens (aud): a name that no other service has, the client's name with OpenID Connect. A token for any audience is refused."`
	Profile  string      `yaml:"profile" default:"oidc" enum:"oidc,wlcg,scitoken" help:"Profile of the tokens: ID tokens, version 1 of WLCG's profile, or version 2 of SciTokens."`
	Scope    string      `yaml:"scope" example:"compute.create" help:"Scope that the tokens must contain; required with wlcg and scitoken."`
	CA       daemon.Path `yaml:"ca" path:"file" example:"/etc/isthmus/provider-ca.pem" help:"CA certificates to verify the provider's HTTPS server with. Empty: the system's."`
	Keys     string      `yaml:"keys" example:"https://idp.example.org/realms/science/certs" help:"URL of the provider's keys. Empty: as its OpenID configuration says."`

	UserClaim     string            `yaml:"user_claim" default:"sub" example:"preferred_username" help:"The claim that names the user. Choose one that the provider never reassigns to another user."`
	UserPrefix    string            `yaml:"user_prefix" example:"science-" help:"Prefix for the user name, so that it differs from other users of the grid."`
	Users         map[string]string `yaml:"users" example:"{ada@example.org: ada}" help:"Map from the claim's values to users. If it is not empty, other values are refused."`
	ProjectsClaim string            `yaml:"projects_claim" example:"wlcg.groups" help:"The claim that names groups, or scope. Without it, the certificates name no project."`
	Projects      map[string]string `yaml:"projects" example:"{/climate/production: climate}" help:"Map from its values to the grid's projects. Other values give no project."`

	Valid   time.Duration `yaml:"valid" default:"12h" min:"1m" max:"744h" help:"Lifetime of a user's certificate that is issued for a token. It is not renewed: a new token gives another."`
	Longest time.Duration `yaml:"longest" default:"24h" min:"1m" max:"744h" help:"Maximum lifetime of an accepted token."`
	Once    bool          `yaml:"once" default:"true" help:"Whether each token works once at this broker."`
}

// enabled reports whether a provider is configured.
func (o OIDC) enabled() bool { return o.Issuer != "" }

// rules returns the settings in the form of package oidc.
func (o OIDC) rules() oidc.Rules {
	return oidc.Rules{
		Issuer: o.Issuer, Audience: o.Audience, Profile: oidc.Profile(o.Profile), Scope: o.Scope, Longest: o.Longest,
		UserClaim: o.UserClaim, UserPrefix: o.UserPrefix, Users: o.Users, ProjectsClaim: o.ProjectsClaim, Projects: o.Projects,
	}
}

// Check validates the keys against each other.
func (o OIDC) Check() error {
	if !o.enabled() {
		if o.Audience != "" {
			return daemon.Wrong("audience", "there is no issuer; a broker that accepts a provider's tokens needs both")
		}
		return nil
	}
	if err := o.rules().Check(); err != nil {
		return daemon.Wrong("issuer", "%v", err)
	}
	return nil
}

// enabled reports whether the broker enrols.
func (e Enrol) enabled() bool { return e.Cert != "" }

// Check validates the keys against each other.
func (e Enrol) Check() error {
	if e.Cert == "" && e.Key == "" && !e.OIDC.enabled() {
		return nil
	}
	for _, k := range []struct {
		key  string
		path daemon.Path
	}{{"cert", e.Cert}, {"key", e.Key}} {
		if k.path == "" {
			return daemon.Wrong(k.key, "a broker that enrols needs cert and key")
		}
	}
	return nil
}

// Limits bound what a broker and its registry hold.
type Limits struct {
	Sessions     int `yaml:"sessions" default:"4096" min:"1" help:"Sessions of frontals, proxies and admins."`
	Sites        int `yaml:"sites" default:"1000" min:"1" help:"Sites, including those whose frontal is not connected."`
	Proxies      int `yaml:"proxies" default:"1000" min:"1" help:"Proxies."`
	Processes    int `yaml:"processes" default:"1000000" min:"1" help:"Registered processes of all sites."`
	PerSite      int `yaml:"processes_per_site" default:"100000" min:"1" help:"Registered processes of one site."`
	Hosts        int `yaml:"hosts" default:"20000" min:"1" max:"20000" help:"Nodes in the list of hosts, including those whose helper or frontal is not connected. If there are more, the sites with the most list only as many as there is room for, each the same number."`
	Waiting      int `yaml:"waiting" default:"100000" min:"1" help:"Pending lookups of processes that have not started."`
	WaitsPerSite int `yaml:"waiting_per_site" default:"10000" min:"1" help:"The same for one site, about 13 KB each."`
	NamesPerSite int `yaml:"names_per_site" default:"10000" min:"1" max:"100000" help:"Published names of one site, of 100000 in all."`
	Signalling   int `yaml:"signalling" default:"10000" min:"1" help:"Signalling requests in flight."`

	SignallingPerSite int `yaml:"signalling_per_site" default:"5000" min:"1" help:"The same for requests of one site."`

	HalfOpen          int `yaml:"half_open" default:"1024" min:"1" max:"1000000" help:"Connections that are not authenticated yet, about 30 KB each. At the limit, the source address with the most connections loses its oldest one to make room. As many again may query their reflexive address."`
	HalfOpenPerSource int `yaml:"half_open_per_source" default:"512" min:"1" max:"1000000" help:"The same for one source: an IPv4 address, an IPv6 /64."`

	Enrolments          int `yaml:"enrolments" default:"64" min:"1" max:"100000" help:"Certificate requests processed at a time."`
	EnrolmentsPerSource int `yaml:"enrolments_per_source" default:"16" min:"1" max:"100000" help:"The same for one source."`

	PeerSessions int         `yaml:"peer_sessions" default:"16" min:"1" max:"100000" help:"Sessions of one peer, that is, with the same certificate."`
	PeerStreams  int         `yaml:"peer_streams" default:"32" min:"2" max:"100000" help:"Streams in all sessions of one peer; exceeding it ends the session. A peer needs one per session."`
	PeerCalls    int         `yaml:"peer_calls" default:"20000" min:"1" max:"10000000" help:"Unanswered calls of one peer, about 13 KB each; more are refused. A frontal has one for each process that its site waits for, and one for each signalling request."`
	PeerBytes    daemon.Size `yaml:"peer_bytes" default:"16MiB" min:"5MiB" max:"16GiB" help:"Bytes received with these calls of one peer, incomplete ones included; exceeding it ends the session."`

	PeerBytesTotal daemon.Size `yaml:"peer_bytes_total" default:"1GiB" min:"16MiB" max:"1TiB" help:"The same for all peers, a quarter of the unit's MemoryMax. Over the limit, the peer with the most bytes loses its sessions."`
}

// registry returns the registry's share of the limits.
func (l Limits) registry() registry.Limits {
	return registry.Limits{Sites: l.Sites, Processes: l.Processes, PerSite: l.PerSite, Waiting: l.Waiting, NamesPerSite: l.NamesPerSite}
}

// DefaultConfig returns the settings of a broker without a configuration.
func DefaultConfig() Config { return daemon.Defaults[Config]() }

// Name is the program's name.
const Name = "isthmus-broker"

// Spec describes the broker as a daemon.
func Spec() daemon.Spec[Config] {
	return daemon.Spec[Config]{
		Name:  Name,
		Usage: "keep the registry of sites and processes, and decide how two sites connect",
		Serve: serve,
	}
}

// Command returns the broker as a command, for a binary that holds several daemons.
func Command() *cli.Command { return daemon.Command(Spec()) }

func serve(ctx context.Context, cfg Config, log *slog.Logger, ready func(facts ...string)) error {
	creds, err := control.LoadCredentials(string(cfg.TLS.Cert), string(cfg.TLS.Key), string(cfg.TLS.CA))
	if err != nil {
		return err
	}
	b, err := New(cfg, creds, log)
	if err != nil {
		return err
	}
	defer b.store.close()
	daemon.OnReload(ctx, liveKeys, b.reload)
	if err := b.openEnrolment(); err != nil {
		return err
	}
	hooks := daemon.HooksOf(ctx)
	if !hooks.Succeeds() {
		if err := b.store.open(ctx, false); err != nil {
			return err
		}
	}
	ln, err := daemon.Socket(ctx, "listen "+cfg.Listen.String(), func() (*net.TCPListener, error) {
		return net.ListenTCP("tcp", net.TCPAddrFromAddrPort(cfg.Listen))
	})
	if err != nil {
		return fmt.Errorf("listen %v: %w; is another daemon on that port, or the right to ports below 1024 missing?", cfg.Listen, err)
	}
	if b.audit, err = audit.Open(cfg.Audit, creds.Identity().Key(), log); err != nil {
		ln.Close()
		return err
	}
	defer b.audit.Start()()
	daemon.OnChange(ctx, b.audit.NoteChange)
	facts, stop, err := metrics.Start(ctx, cfg.MetricsListen, b.metrics(creds), log)
	if err != nil {
		ln.Close()
		return err
	}
	defer stop()
	page, err := httpserve.Open(ctx, "status_listen", cfg.StatusListen, b.page(cfg.StatusOpen), log)
	if err != nil {
		ln.Close()
		return err
	}
	stopPage := page.Start(ctx)
	defer stopPage()
	facts = append(facts, page.Facts()...)
	// When ready returns, a predecessor has released everything that it hands over.
	ready(append([]string{"listen=" + ln.Addr().String()}, facts...)...)
	b.openSTUN(ctx)
	if hooks.Succeeds() {
		if err := b.store.open(ctx, true); err != nil {
			return err
		}
	}
	// There is nothing to drain: each peer opens another session, with the successor or another
	// broker, and registers everything there again.
	serving, end := context.WithCancel(ctx)
	defer end()
	var drain sync.WaitGroup
	defer drain.Wait()
	drain.Go(func() {
		defer end()
		select {
		case <-hooks.Draining():
		case <-serving.Done():
		}
	})
	err = b.Serve(serving, ln)
	end() // ends the wait for the drain, if serving failed
	stop()
	stopPage()
	b.store.close()
	hooks.LetGo()
	return err
}
