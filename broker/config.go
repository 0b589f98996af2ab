package broker

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/daemon/httpserve"
	"github.com/isthmus-grid/isthmus/internal/pki/oidc"
)

// Config holds the settings of a broker. Its name is in its certificate.
type Config struct {
	Listen        netip.AddrPort  `yaml:"listen" default:"[::]:443" help:"Address to accept frontals, proxies and admins on. Sites need no more than a way out to it."`
	Advertise     netip.AddrPort  `yaml:"advertise" example:"203.0.113.5:443" help:"Address at which sites reach this broker, if a NAT makes it another than its own. They ask it, and the proxies, how they look from outside."`
	STUNListen    netip.AddrPort  `yaml:"stun_listen" default:"[::]:3478" help:"Address of the STUN server, by which sites learn their UDP mapping; the same TCP port tells them whether more than port 443 is let out. \"\" is none."`
	TLS           TLS             `yaml:"tls" help:"Who this broker is, and whom it believes."`
	MetricsListen netip.AddrPort  `yaml:"metrics_listen" example:"127.0.0.1:9441" help:"Address at which Prometheus reads this daemon's figures, at /metrics. Whoever reaches it may read it: it names sites, proxies and projects. Without it there is none."`
	Enrol         Enrol           `yaml:"enrol" help:"How this broker gives certificates to whoever shows a token (isthmus ca token), and new ones for those that run out. Without it, it does not."`
	Store         daemon.Path     `yaml:"store" example:"etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379/isthmus" help:"Where this broker keeps what must last: used tokens, revocations, published names. A file, which is this broker's alone, or an etcd that several brokers share, with a prefix of the keys that is this grid's alone. Empty: broker.db in the service manager's state folder (STATE_DIRECTORY), or else in the folder of enrol.state; without any, names and revocations are forgotten at the end, and the broker cannot enrol."`
	StoreTLS      StoreTLS        `yaml:"store_tls" help:"How an etcd is talked with."`
	StatusListen  netip.AddrPort  `yaml:"status_listen" example:"127.0.0.1:9480" help:"Address of the status page, for a browser: sites, processes, how sites connect, and why. It can only be read, and asks nobody who reads it, so it must be an address of this host alone unless status_open says otherwise. Without it there is none."`
	StatusOpen    bool            `yaml:"status_open" default:"false" help:"Let status_listen be an address that others reach: whoever does sees the names of sites, users and projects, and addresses of proxies. Put something in front of it that asks who they are."`
	Lease         time.Duration   `yaml:"lease" default:"60s" min:"1s" max:"1h" help:"How long a site's processes stay known after its frontal's session ended. A frontal that comes back within it has lost nothing."`
	ProxyChoice   registry.Choice `yaml:"proxy_choice" default:"least-loaded" enum:"least-loaded,round-robin" help:"How to choose the proxy of a link: by the part of its capacity in use, or each in turn."`
	RelayLimit    daemon.Size     `yaml:"relay_limit" default:"0B" min:"0B" help:"Bytes that one relayed link may carry, both ways together; 0B is no limit."`
	Audit         audit.Config    `yaml:"audit" help:"The audit log: every introduction with what was decided, every session, and every caller that was refused."`
	AllowLoopback bool            `yaml:"allow_loopback" default:"false" help:"Let sites and proxies register loopback addresses. Only for a grid whose daemons all run on one machine."`
	Limits        Limits          `yaml:"limits" help:"What the broker holds at most. Whoever asks for more is told that it is overloaded."`
}

// budget returns the bounds on one peer's sessions, streams, calls and bytes.
func (l Limits) budget() control.Budget {
	return control.Budget{Sessions: l.PeerSessions, Streams: l.PeerStreams, Calls: l.PeerCalls, Bytes: int(l.PeerBytes), AllBytes: int(l.PeerBytesTotal), Request: control.StandardBudget.Request}
}

// Check validates the keys against each other.
func (c Config) Check() error {
	if at := c.StatusListen; at.IsValid() && !at.Addr().IsLoopback() && !c.StatusOpen {
		return daemon.Wrong("status_listen", "%v can be reached by others, and the page asks nobody who reads it; use 127.0.0.1 and a tunnel (ssh -L), or say status_open: true", at)
	}
	return c.checkStore()
}

// TLS names the files of a broker's credentials, all PEM.
type TLS struct {
	Cert daemon.Path `yaml:"cert" required:"true" path:"file" example:"/etc/isthmus/broker.pem" help:"Certificate of this broker, issued by the grid's CA."`
	Key  daemon.Path `yaml:"key" required:"true" path:"file" example:"/etc/isthmus/broker.key" help:"Private key of the certificate."`
	CA   daemon.Path `yaml:"ca" required:"true" path:"file" example:"/etc/isthmus/ca.pem" help:"Certificate of the grid's CA."`

	Renew   bool        `yaml:"renew" default:"true" help:"Whether to renew the certificate after two thirds of its life, if the broker enrols. The file must be this daemon's to write; a certificate that somebody else puts there is taken over without a restart, too."`
	Revoked daemon.Path `yaml:"revoked" example:"$STATE/revoked.pem" help:"File to keep the grid's revocation list in, if store is not a file: with an etcd, for when that is away. Empty: revoked.pem in the service manager's state folder (STATE_DIRECTORY). A store in a file takes over the list that an older version kept here, and renames it."`
}

// Enrol is the broker's part of the grid's CA.
type Enrol struct {
	Cert    daemon.Path   `yaml:"cert" path:"file" example:"/etc/isthmus/issuer.pem" help:"Issuing certificate, made offline (isthmus ca issuer)."`
	Key     daemon.Path   `yaml:"key" path:"file" example:"/etc/isthmus/issuer.key" help:"Private key of the issuing certificate."`
	State   daemon.Path   `yaml:"state" example:"$STATE/used-tokens" help:"File in which an older version remembered used tokens. The store takes it over at the first start, and renames it."`
	Longest time.Duration `yaml:"longest" default:"2160h" min:"1m" max:"87600h" help:"The longest that a certificate is valid which this broker issues, whatever its token says."`
	OIDC    OIDC          `yaml:"oidc" help:"An identity provider outside the grid, whose tokens this broker takes in place of its own: ID tokens of OpenID Connect, WLCG tokens, SciTokens. They give users certificates for a short time, and nobody else any. Without an issuer, none is believed."`
}

// OIDC configures the identity provider that the broker trusts for enrolment.
type OIDC struct {
	Issuer   string      `yaml:"issuer" example:"https://idp.example.org/realms/science" help:"The provider, exactly as its tokens name it (iss)."`
	Audience string      `yaml:"audience" example:"https://broker.example.org" help:"Whom the tokens must be for (aud): a name that no other service has, the client's name with OpenID Connect. A token for anybody is refused."`
	Profile  string      `yaml:"profile" default:"oidc" enum:"oidc,wlcg,scitoken" help:"By which rules the tokens are made: ID tokens, version 1 of WLCG's profile, or version 2 of SciTokens."`
	Scope    string      `yaml:"scope" example:"compute.create" help:"What the tokens must give leave for; needed with wlcg and scitoken."`
	CA       daemon.Path `yaml:"ca" path:"file" example:"/etc/isthmus/provider-ca.pem" help:"Certificates of the authorities by which the provider's HTTPS server is judged. Empty: the system's."`
	Keys     string      `yaml:"keys" example:"https://idp.example.org/realms/science/certs" help:"Where the provider's keys are. Empty: its OpenID configuration says so."`

	UserClaim     string            `yaml:"user_claim" default:"sub" example:"preferred_username" help:"The claim that names the user. Choose one that the provider never gives to somebody else."`
	UserPrefix    string            `yaml:"user_prefix" example:"science-" help:"What is put before it, so that it is no other user of the grid."`
	Users         map[string]string `yaml:"users" example:"{ada@example.org: ada}" help:"From the claim's values to users. If there are any, nobody else is a user."`
	ProjectsClaim string            `yaml:"projects_claim" example:"wlcg.groups" help:"The claim that names groups, or scope. Without it, the certificates name no project."`
	Projects      map[string]string `yaml:"projects" example:"{/climate/production: climate}" help:"From its values to the grid's projects. Other values give none."`

	Valid   time.Duration `yaml:"valid" default:"12h" min:"1m" max:"744h" help:"How long a user's certificate is valid that is given for a token. It is not renewed: a new token gives another."`
	Longest time.Duration `yaml:"longest" default:"24h" min:"1m" max:"744h" help:"The longest life of a token that is believed."`
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
			return daemon.Wrong("audience", "there is no issuer; a broker that believes a provider needs both")
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
	if e.Cert == "" && e.Key == "" && e.State == "" && !e.OIDC.enabled() {
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
	Sessions      int `yaml:"sessions" default:"4096" min:"1" help:"Sessions of frontals, proxies and admins."`
	Sites         int `yaml:"sites" default:"1000" min:"1" help:"Sites, those whose frontal is away included."`
	Proxies       int `yaml:"proxies" default:"1000" min:"1" help:"Proxies."`
	Processes     int `yaml:"processes" default:"1000000" min:"1" help:"Registered processes of all sites."`
	PerSite       int `yaml:"processes_per_site" default:"100000" min:"1" help:"Registered processes of one site."`
	Hosts         int `yaml:"hosts" default:"20000" min:"1" max:"20000" help:"Nodes in the list of hosts, those whose helper or frontal is away included."`
	Waiting       int `yaml:"waiting" default:"100000" min:"1" help:"Callers that wait for a process to start."`
	WaitsPerSite  int `yaml:"waiting_per_site" default:"10000" min:"1" help:"The same of one site, about 13 KB each."`
	NamesPerSite  int `yaml:"names_per_site" default:"10000" min:"1" max:"100000" help:"Published names of one site, of 100000 in all."`
	Introductions int `yaml:"introductions" default:"10000" min:"1" help:"Introductions in flight."`

	IntroductionsPerSite int `yaml:"introductions_per_site" default:"5000" min:"1" help:"The same that one site asked for."`

	HalfOpen          int `yaml:"half_open" default:"1024" min:"1" max:"1000000" help:"Connections that have not proved yet who they are, about 30 KB each. When there are as many, the source address that has the most loses its oldest, so that others get in. As many again may ask how they look from outside."`
	HalfOpenPerSource int `yaml:"half_open_per_source" default:"512" min:"1" max:"1000000" help:"The same of one source: an IPv4 address, a /64 of IPv6."`

	Enrolments          int `yaml:"enrolments" default:"64" min:"1" max:"100000" help:"Requests for certificates that are judged at a time."`
	EnrolmentsPerSource int `yaml:"enrolments_per_source" default:"16" min:"1" max:"100000" help:"The same of one source."`

	PeerSessions int         `yaml:"peer_sessions" default:"16" min:"1" max:"100000" help:"Sessions of one peer: the same certificate's."`
	PeerStreams  int         `yaml:"peer_streams" default:"32" min:"2" max:"100000" help:"Streams in all sessions of one peer; more end the session. A peer needs one in each."`
	PeerCalls    int         `yaml:"peer_calls" default:"20000" min:"1" max:"10000000" help:"Calls of one peer that are not answered yet, about 13 KB each; more are refused. A frontal has one for each process that its site waits for, and each introduction."`
	PeerBytes    daemon.Size `yaml:"peer_bytes" default:"16MiB" min:"5MiB" max:"16GiB" help:"Bytes that came with these calls, begun ones included, of one peer; more end the session."`

	PeerBytesTotal daemon.Size `yaml:"peer_bytes_total" default:"1GiB" min:"16MiB" max:"1TiB" help:"The same of all peers, a quarter of the unit's MemoryMax. Where there are more, the peer that has the most loses its sessions."`
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
		Usage: "know who is where, and decide how two sites connect",
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
	if b.audit, err = audit.Open(cfg.Audit, creds.Identity().String(), log); err != nil {
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
