// Package grid runs a whole Isthmus in a lab: a CA, a broker, proxies, a frontal on every gateway
// and a helper on every node, each a real process in its host's network namespace, with settings
// files as an admin would write them. The demo, benchmarks and whole-system tests use it.
//
// It uses the daemons only from outside: their command lines, files and control calls. Its state is
// the Grid value and the files in its folder.
package grid

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ca"
	"github.com/isthmus-grid/isthmus/lab"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Ports that the daemons of a grid listen on.
const (
	brokerPort       = 443
	proxyPort        = 443
	frontalPort      = 7440
	frontalData      = 7441
	frontalPublic    = lab.FirstOpenPort // inside the range that port-range sites open
	connectProxyPort = 3128
)

// Config says which daemons run where.
type Config struct {
	// Binary returns the command line that runs a daemon: "broker", "frontal",
	// "proxy" or "helper"; or "helpers", for Peers.
	Binary func(daemon string) []string

	Broker  string   // host of the broker, "site/host"
	Standby string   // host of a second broker, the daemon "broker 2"; "" without one
	Proxies []string // hosts of the proxies; each is named after its host

	// Settings are added to a daemon's settings file, by the name of the daemon
	// ("broker", "proxy p1", "frontal sitea", "helper sitea/n1") or of its kind.
	Settings map[string]map[string]any

	// Bare leaves sites without a policy and helpers without an offer, which is the daemons'
	// default: then only links within sites are permitted, and no node takes a job. Helpers still
	// have a starter, for offers that a test makes later. Without Bare every frontal has a policy
	// that permits all links, and every helper offers one job to all users, unless Settings say
	// otherwise.
	Bare bool

	// Enrol makes the brokers issue certificates of the grid's CA for its tokens.
	Enrol bool

	// Peers gives a host ("site/host") the helpers of several nodes, by their names, instead of its
	// own: for grids of more nodes than a machine has room for hosts. Binary("helpers") runs them
	// in one process, the daemon "helpers site/host", with a --config for each.
	Peers map[string][]string

	// Names makes sites and proxies reach the brokers by name, at all addresses that these have.
	Names bool

	// IPv6 makes all daemons use only IPv6, which every host that runs one must have.
	IPv6 bool

	// Measured omits from a site's profile everything that its frontal can measure. What remains is
	// known only to an admin: whether nodes have a route out, where they are, which ports may be
	// tried, and who may open raw sockets. AwaitMeasured waits for the rest.
	Measured bool

	// Profile, if not nil, replaces the profile of a site's preset.
	Profile func(site string, p overlay.SiteProfile) overlay.SiteProfile
}

// Grid is a running Isthmus. Its methods are safe for concurrent use, except
// that one daemon is started and stopped by one goroutine at a time.
type Grid struct {
	Lab     *lab.Lab
	cfg     Config
	dir     string
	ca      *ca.CA
	order   []*Daemon
	daemons map[string]*Daemon
	sites   map[string]string // preset by site
	helpers map[string]int    // number by site

	starters     map[string]*Daemon // by host, where jobs have accounts of their own
	starterOrder []*Daemon
}

// Public is a site for the broker and a proxy.
var Public = lab.Site{Name: "public", Preset: lab.Public, Nodes: []string{"broker", "proxy"}}

// Up builds sites and starts a grid there; if cfg names no broker, also Public, with the broker and
// a proxy. The process must have gone through lab.Enter. down ends everything.
func Up(ctx context.Context, spec lab.Spec, cfg Config) (g *Grid, down func() error, err error) {
	if cfg.Broker == "" {
		spec.Sites = append([]lab.Site{Public}, spec.Sites...)
		cfg.Broker, cfg.Proxies = "public/broker", []string{"public/proxy"}
	}
	l, err := lab.Up(ctx, spec)
	if err != nil {
		return nil, nil, err
	}
	if g, err = Start(ctx, l, cfg); err != nil {
		return nil, nil, errors.Join(err, l.Close())
	}
	return g, func() error { return errors.Join(g.Close(), l.Close()) }, nil
}

// Start issues certificates, writes settings, starts the daemons in order and
// returns when all are ready. Close the grid before the lab.
func Start(ctx context.Context, l *lab.Lab, cfg Config) (*Grid, error) {
	dir, err := os.MkdirTemp(lab.Dir(), "grid-")
	if err != nil {
		return nil, err
	}
	authority, _, err := ca.New("lab", 24*time.Hour)
	if err != nil {
		return nil, err
	}
	g := &Grid{Lab: l, cfg: cfg, dir: dir, ca: authority, daemons: map[string]*Daemon{}, sites: map[string]string{}, helpers: map[string]int{}, starters: map[string]*Daemon{}}
	if err := errors.Join(os.Chmod(lab.Dir(), 0o711), os.Chmod(dir, 0o711)); err != nil { // jobs must be able to reach their folders
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := g.plan(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := g.startStarters(ctx); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	for _, d := range g.order {
		if err := d.Start(ctx); err != nil {
			return nil, errors.Join(err, g.Close())
		}
	}
	if err := g.Settled(ctx); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// Close stops the daemons, last started first, and removes their files.
func (g *Grid) Close() error {
	var errs []error
	for i := len(g.order) - 1; i >= 0; i-- {
		errs = append(errs, g.order[i].Stop())
	}
	for _, d := range g.starterOrder {
		errs = append(errs, d.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(g.dir))...)
}

// Daemon returns a daemon by name: "broker", "proxy p1", "frontal sitea", "helper sitea/n1". It
// panics if there is no such daemon.
func (g *Grid) Daemon(name string) *Daemon {
	d, ok := g.daemons[name]
	if !ok {
		panic("grid: no daemon " + name)
	}
	return d
}

// Daemons returns all daemons in the order in which they were started.
func (g *Grid) Daemons() []*Daemon { return g.order }

// Socket returns the path of the helper's socket on a node.
func (g *Grid) Socket(node string) string {
	return filepath.Join(g.dir, safe("helper "+node)+".sock")
}

// Store returns the folder in which the job agent on a node keeps the files of jobs.
func (g *Grid) Store(node string) string {
	return filepath.Join(g.dir, safe("store "+node))
}

// Preset returns the preset of a site.
func (g *Grid) Preset(site string) string { return g.sites[site] }

// plan assigns daemons to hosts with their settings, and writes the files.
func (g *Grid) plan() error {
	if err := g.checkHosts(); err != nil {
		return err
	}
	var brokers []string
	for i, name := range g.brokers() {
		host := g.Lab.Host([]string{g.cfg.Broker, g.cfg.Standby}[i])
		brokers = append(brokers, g.called(host, brokerPort))
		settings := map[string]any{"listen": g.everywhere(brokerPort)}
		if g.cfg.Enrol {
			if err := g.letEnrol(name, settings); err != nil {
				return err
			}
		}
		err := g.add(name, host, control.Identity{Role: control.RoleBroker, Name: safe(name)}, settings)
		if err != nil {
			return err
		}
	}
	for _, name := range g.cfg.Proxies {
		host := g.Lab.Host(name)
		_, short, _ := cut(name)
		err := g.add("proxy "+short, host, control.Identity{Role: control.RoleProxy, Name: short}, map[string]any{
			"listen":    []string{g.everywhere(proxyPort)},
			"advertise": g.public(host, proxyPort),
			"broker":    oneOf(brokers),
		})
		if err != nil {
			return err
		}
	}
	for _, host := range g.Lab.Hosts() {
		if host.Role() == "gateway" {
			of := brokers
			if host.OnlyIPv6() && !g.cfg.IPv6 && !g.cfg.Names {
				of = nil
				for i := range brokers {
					of = append(of, netip.AddrPortFrom(g.Lab.Host([]string{g.cfg.Broker, g.cfg.Standby}[i]).Addr6(), brokerPort).String())
				}
			}
			if err := g.addSite(host, of); err != nil {
				return err
			}
		}
	}
	return nil
}

// letEnrol makes a broker issue certificates.
func (g *Grid) letEnrol(broker string, settings map[string]any) error {
	dir := filepath.Join(g.dir, "issuer-"+safe(broker))
	cert, key, err := g.ca.WriteIssuer(dir, ca.OnlineRoles, time.Now().Add(24*time.Hour))
	settings["enrol"] = map[string]any{"cert": cert, "key": key}
	settings["store"] = filepath.Join(dir, "broker.db")
	return err
}

// oneOf returns a list of one as its element, for daemons that do not accept a list.
func oneOf(list []string) any {
	if len(list) == 1 {
		return list[0]
	}
	return list
}

// brokers returns the names of the brokers.
func (g *Grid) brokers() []string {
	if g.cfg.Standby == "" {
		return []string{"broker"}
	}
	return []string{"broker", "broker 2"}
}

// profile returns the profile that the frontal of a site is configured with.
func (g *Grid) profile(site, preset string) (overlay.SiteProfile, error) {
	p, err := lab.Profile(preset)
	if err != nil {
		return p, err
	}
	p.Site = overlay.SiteID(site)
	if g.cfg.IPv6 {
		p = OverIPv6(p)
	}
	if g.cfg.Profile != nil {
		p = g.cfg.Profile(site, p)
	}
	return p, nil
}

// OverIPv6 returns the profile of a preset for daemons that use only IPv6.
func OverIPv6(p overlay.SiteProfile) overlay.SiteProfile {
	p.NAT = overlay.NAT{} // it applies to IPv4
	p.IPv6 = false        // there is no other version
	return p
}

// adminsPart returns the part of a profile that cannot be measured.
func adminsPart(p overlay.SiteProfile) map[string]any {
	part := map[string]any{"gateway_only": p.GatewayOnly, "privileged": p.Privileged}
	if p.HighPortsOnly {
		part["high_ports_only"] = true
	}
	if len(p.Networks) > 0 {
		part["networks"] = p.Networks
	}
	if p.Ports != (overlay.Ports{}) {
		part["ports"] = p.Ports
	}
	if len(p.Forbidden) > 0 {
		part["forbidden"] = p.Forbidden
	}
	return part
}

// Private are the private networks in which a lab's sites reach each other: there are no others
// with the same addresses.
var Private = []string{"10.0.0.0/8", "100.64.0.0/10"}

// networks returns the networks at which other sites reach a site's nodes.
func (g *Grid) networks(gateway *lab.Host, p overlay.SiteProfile) []netip.Prefix {
	ip, bits := g.addr(gateway), 24
	var all []netip.Prefix
	if six := gateway.Addr6(); six.IsValid() && !g.cfg.IPv6 && !p.GatewayOnly {
		all = append(all, netip.PrefixFrom(six, 64).Masked()) // for what is measured of IPv6
	}
	switch {
	case p.GatewayOnly || p.Inbound == overlay.InboundNone:
		return all
	case p.NAT.Translates():
		ip, bits = g.wan(gateway), g.wan(gateway).BitLen()
	case ip.Is6():
		bits = 64
	}
	return append(all, netip.PrefixFrom(ip, bits).Masked())
}

// addSite adds the frontal on a gateway and the helpers on the nodes behind.
func (g *Grid) addSite(gateway *lab.Host, brokers []string) error {
	site, _, _ := cut(gateway.Name())
	g.sites[site] = gateway.Preset()
	profile, err := g.profile(site, gateway.Preset())
	if err != nil {
		return err
	}
	if profile.Networks == nil {
		profile.Networks = g.networks(gateway, profile)
	}
	var connect map[string]any
	if p := g.Lab.Proxy(site); p != nil {
		host := g.Lab.Host(site + "/proxy")
		connect = map[string]any{"address": g.at(host, connectProxyPort)}
	}
	frontalAddr := g.at(gateway, frontalPort)
	settings := map[string]any{
		"site": site, "broker": oneOf(brokers), "listen": frontalAddr,
		"profile": profile,
		"private": Private,
	}
	if g.cfg.Measured {
		settings["profile"] = adminsPart(profile)
	}
	if profile.GatewayOnly {
		settings["data_listen"] = g.at(gateway, frontalData)
	}
	if profile.GatewayOnly && profile.Inbound != overlay.InboundNone {
		outside := netip.AddrPortFrom(g.wan(gateway), frontalPublic).String()
		settings["public_listen"] = outside
		if profile.NAT.Translates() { // incoming connections are forwarded to the inside address
			settings["public_listen"] = g.at(gateway, frontalPublic)
			settings["public_address"] = outside
		}
	}
	if connect != nil {
		settings["http_proxy"] = connect
	}
	err = g.add("frontal "+site, gateway, control.Identity{Role: control.RoleFrontal, Site: profile.Site}, settings)
	if err != nil {
		return err
	}
	for _, host := range g.Lab.Hosts() {
		owner, node, _ := cut(host.Name())
		if owner != site || host.Role() != "node" {
			continue
		}
		nodes := g.cfg.Peers[host.Name()]
		if nodes == nil {
			nodes = []string{node}
		}
		var helpers []*Daemon
		for _, node := range nodes {
			name := site + "/" + node
			settings := map[string]any{
				"frontal": frontalAddr, "socket": g.Socket(name), "private": Private,
				"node_service": map[string]any{"store": g.Store(name), "end_jobs": true, "owner": []string{"*@*/*"}},
			}
			if connect != nil && !profile.GatewayOnly {
				settings["http_proxy"] = connect
			}
			if profile.NAT.Translates() && profile.Inbound != overlay.InboundNone && !profile.GatewayOnly {
				settings["advertise"] = g.wan(gateway).String()
			}
			d, err := g.daemon("helper "+name, host, control.Identity{Role: control.RoleHelper, Site: profile.Site, Name: node}, settings)
			if err != nil {
				return err
			}
			helpers = append(helpers, d)
		}
		g.helpers[site] += len(helpers)
		if g.cfg.Peers[host.Name()] == nil {
			g.enrol(helpers[0])
		} else {
			g.enrol(g.combineHelpers("helpers "+host.Name(), helpers))
		}
	}
	return nil
}

// combineHelpers returns one process that runs all the helpers.
func (g *Grid) combineHelpers(name string, helpers []*Daemon) *Daemon {
	argv := g.cfg.Binary("helpers")
	for _, d := range helpers {
		argv = append(argv, "--config", d.settings)
	}
	return &Daemon{Name: name, Host: helpers[0].Host, argv: argv, log: filepath.Join(g.dir, safe(name)+".log")}
}

// add adds a daemon to the grid.
func (g *Grid) add(name string, host *lab.Host, id control.Identity, settings map[string]any) error {
	d, err := g.daemon(name, host, id, settings)
	if err != nil {
		return err
	}
	g.enrol(d)
	return nil
}

func (g *Grid) enrol(d *Daemon) {
	g.order = append(g.order, d)
	g.daemons[d.Name] = d
}

// openPolicy is the policy of a site that permits everything.
const openPolicy = `contact: whoever runs the lab
rules:
- {name: everything, effect: allow}
`

// permit adds to a daemon's settings what it needs to permit anything, unless those or Bare say
// otherwise.
func (g *Grid) permit(role control.Role, settings map[string]any) error {
	if g.cfg.Bare {
		return nil
	}
	switch role {
	case control.RoleFrontal:
		if _, given := settings["policy"]; given {
			return nil
		}
		file := filepath.Join(g.dir, "policy.yaml")
		settings["policy"] = file
		return os.WriteFile(file, []byte(openPolicy), 0o644)
	case control.RoleHelper:
		// Many helpers that measure at once would measure each other.
		offer := map[string]any{"jobs": 1, "power": labPower, "allow": []any{map[string]any{"identity": "*@*/*"}}}
		given, _ := settings["offer"].(map[string]any)
		maps.Copy(offer, given)
		settings["offer"] = offer
	}
	return nil
}

// labPower is the power that the nodes of a lab offer, if their settings do not say otherwise.
const labPower = 1000

// mergeSettings returns the setting is merged over was, key by key if both have keys.
func mergeSettings(was, is any) any {
	old, both := was.(map[string]any)
	more, ok := is.(map[string]any)
	if !both || !ok {
		return is
	}
	merged := maps.Clone(old)
	maps.Copy(merged, more)
	return merged
}

// daemon issues a daemon's certificate and writes its settings file.
func (g *Grid) daemon(name string, host *lab.Host, id control.Identity, settings map[string]any) (*Daemon, error) {
	files, err := g.ca.Write(g.dir, id, time.Now().Add(24*time.Hour))
	if err != nil {
		return nil, err
	}
	settings["tls"] = map[string]any{"cert": files.Cert, "key": files.Key, "ca": files.CA}
	settings["log"] = map[string]any{"format": "json"}
	for _, key := range []string{id.Role.String(), name} {
		for k, v := range g.cfg.Settings[key] {
			settings[k] = mergeSettings(settings[k], v)
		}
	}
	if err := g.permit(id.Role, settings); err != nil {
		return nil, err
	}
	if id.Role == control.RoleHelper {
		if err := g.addStarter(host, settings); err != nil {
			return nil, err
		}
	}
	text, err := yaml.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("settings of %s: %w", name, err)
	}
	file := filepath.Join(g.dir, safe(name)+".yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	return &Daemon{
		Name: name, Host: host, settings: file,
		argv: append(g.cfg.Binary(id.Role.String()), "--config", file), log: filepath.Join(g.dir, safe(name)+".log"),
	}, nil
}

// Admin opens a control session with a daemon from the daemon's own host, as an admin would.
func (g *Grid) Admin(ctx context.Context, name string) (*control.Session, func(), error) {
	d := g.Daemon(name)
	creds, err := g.ca.Credentials(control.Identity{Role: control.RoleAdmin, Name: "grid"})
	if err != nil {
		return nil, nil, err
	}
	return dialAdmin(ctx, creds, d, g.addr(d.Host))
}

// Issue writes a certificate of this grid's CA for id, as a second or a misbehaving daemon would
// hold it, and returns its files. A user's certificate names projects.
func (g *Grid) Issue(id control.Identity, notAfter time.Time, projects ...string) (ca.Files, error) {
	return g.ca.Write(g.dir, id, notAfter, projects...)
}

// Revoke revokes certificates of this grid's CA: it gives the broker a revocation list as an admin
// would.
func (g *Grid) Revoke(ctx context.Context, ids ...control.Identity) error {
	_, der, err := g.ca.Revoke(g.dir, ids, nil, time.Now())
	if err != nil {
		return err
	}
	s, done, err := g.Admin(ctx, "broker")
	if err != nil {
		return err
	}
	defer done()
	_, err = controlpb.NewAdminClient(s.Conn()).Revoke(ctx, &controlpb.RevocationList{Der: der})
	return control.FromStatus(err)
}
