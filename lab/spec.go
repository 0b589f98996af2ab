package lab

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

// Limits of a Spec. They follow from the address plan and from what one emulator can handle;
// MaxSites squared paths are counted.
const (
	MaxSites  = 100 // sites with a gateway
	MaxNodes  = 200 // nodes of one site
	MaxPublic = 200 // public hosts of all sites and CONNECT proxies together
)

// A Spec is a whole lab: its sites and the WAN between them.
type Spec struct {
	WAN   WAN
	Sites []Site
	// IPv6 gives IPv6 to all sites whose gateway does not translate addresses, filtered by the same
	// rules as their IPv4. Presets that include IPv6 do not need it.
	IPv6 bool
	// Window is the most bytes of a TCP connection's buffer, in each direction, on every host; 0 is so much that no path
	// is limited by it. The kernel counts more than the data in it.
	Window int64
}

// minWindow and maxWindow are the bounds of a Window; the latter is what there is without.
const (
	minWindow = 16 << 10
	maxWindow = 32 << 20
)

// A WAN is the shape of the paths between endpoints. An endpoint is a site's
// gateway, named like the site, or a public host, named "site/host".
type WAN struct {
	Default wan.Shape  // of each direction of every path
	Pairs   []PairSpec // exceptions; a later one wins
}

// A PairSpec changes some values of the paths between two sites or endpoints.
type PairSpec struct {
	From, To string // an endpoint, or a site, which means all its endpoints
	Both     bool   // the other direction as well
	Apply    func(*wan.Shape)
}

// A Site is a gateway with nodes behind it or, with preset "public", a set of hosts that are on the
// internet themselves.
type Site struct {
	Name    string
	Preset  string   // one of Presets, or "public"
	Nodes   []string // host names, unique in the site
	Gateway string   // the gateway's host name; "" means "gw"
	Uplink  int64    // bit/s of the gateway's access link in each direction; 0 is no limit
	Burst   int64    // bytes that pass an idle access link at once; 0 is 10 ms of Uplink, but at least 64 KiB
	// CPU is how many cores each node's commands may use together, in the order of Nodes; the last one is that of all
	// further nodes, and none is no limit. It needs root.
	CPU []float64
	// Second adds a second uplink as in the preset two-uplinks, for IPv4 only.
	Second bool
	// OnlyIPv6 gives the site IPv6 and removes every IPv4 route out from its hosts; the gateway
	// must not translate addresses.
	OnlyIPv6 bool
	// UDPLife replaces the life of UDP mappings in a preset that ends them at a certain age
	// (nat-double), in whole milliseconds; 0 keeps the preset's.
	UDPLife time.Duration
}

// Public is the preset of a site whose nodes are hosts on the internet.
const Public = "public"

// minUDPLife is the shortest life of a mapping that the reaper can enforce.
const minUDPLife = 200 * time.Millisecond

// minBurst is the minimum burst of an access link: the bucket never passes a larger packet, and a
// timer refills it.
const minBurst = 4 << 10

// minCores and maxCores are what a node may be limited to: the kernel knows no part below 1 ms of 1 s.
const (
	minCores = 0.001
	maxCores = 1024.0
)

// cores returns the limit of a node, or 0 if there is none.
func (s Site) cores(node int) float64 {
	if len(s.CPU) == 0 {
		return 0
	}
	return s.CPU[min(node, len(s.CPU)-1)]
}

// proxyNode is the host name of a site's CONNECT proxy.
const proxyNode = "proxy"

// gateway returns the gateway's host name.
func (s Site) gateway() string {
	if s.Gateway == "" {
		return "gw"
	}
	return s.Gateway
}

// multihomed reports whether the site has two uplinks.
func (s Site) multihomed() bool {
	p, err := lookupPreset(s.Preset)
	return s.Second || err == nil && p.second
}

// hasProxy reports whether the lab runs a CONNECT proxy for the site.
func (s Site) hasProxy() bool {
	p, err := lookupPreset(s.Preset)
	return err == nil && p.proxy
}

// overlaps reports whether other sites have the same addresses.
func (s Site) overlaps() bool {
	p, err := lookupPreset(s.Preset)
	return err == nil && p.overlaps
}

// outerProvider returns the provider between the site's gateway and the internet, or nil.
func (s Site) outerProvider() *provider {
	p, err := lookupPreset(s.Preset)
	if err != nil {
		return nil
	}
	return p.outer
}

// ipv6At reports whether the hosts of the site have IPv6.
func (s Spec) ipv6At(site Site) bool {
	p, err := lookupPreset(site.Preset)
	if err != nil { // it is Public
		return s.anyIPv6()
	}
	return p.ipv6 || (s.IPv6 || site.OnlyIPv6) && !p.translates() && (p.outer == nil || !p.outer.rules.translates())
}

// anyIPv6 reports whether any site has IPv6. Public hosts then have it too.
func (s Spec) anyIPv6() bool {
	return s.IPv6 || slices.ContainsFunc(s.Sites, func(site Site) bool {
		p, err := lookupPreset(site.Preset)
		return site.OnlyIPv6 || err == nil && p.ipv6
	})
}

// endpoints returns the names of the site's endpoints on the WAN.
func (s Site) endpoints() []string {
	if s.Preset == Public {
		names := make([]string, len(s.Nodes))
		for i, n := range s.Nodes {
			names[i] = s.Name + "/" + n
		}
		return names
	}
	if s.hasProxy() {
		return []string{s.Name, s.Name + "/" + proxyNode}
	}
	return []string{s.Name}
}

// endpoints returns all endpoints on the WAN, in the order of the sites.
func (s Spec) endpoints() []string {
	var all []string
	for _, site := range s.Sites {
		if s.place(site.Name) == site.Name {
			all = append(all, site.endpoints()...)
		}
	}
	return all
}

// place returns the first site with the same provider as the named one, which is the site itself
// unless its preset's sites share one.
func (s Spec) place(name string) string {
	i := slices.IndexFunc(s.Sites, func(site Site) bool { return site.Name == name })
	if i < 0 {
		return name
	}
	outer := s.Sites[i].outerProvider()
	if outer == nil || !outer.shared {
		return name
	}
	return s.Sites[slices.IndexFunc(s.Sites, func(site Site) bool { return site.Preset != Public && site.outerProvider() == outer })].Name
}

// expand returns the endpoints of a name in a PairSpec.
func (s Spec) expand(name string) []string {
	name = s.place(name)
	for _, site := range s.Sites {
		if site.Name == name {
			return site.endpoints()
		}
		for _, e := range site.endpoints() {
			if e == name {
				return []string{e}
			}
		}
	}
	return nil
}

// paths returns the shape of every ordered pair of endpoints. A site's own CONNECT proxy is at the
// site's edge: there is no WAN between the two, and its paths to all others have the site's shape
// unless a pair says otherwise.
func (s Spec) paths() map[[2]string]wan.Shape {
	all := s.endpoints()
	shapes := make(map[[2]string]wan.Shape, len(all)*len(all))
	for _, from := range all {
		for _, to := range all {
			switch {
			case from == to:
			case from+"/"+proxyNode == to && s.isProxy(to), to+"/"+proxyNode == from && s.isProxy(from):
				shapes[[2]string{from, to}] = wan.Shape{}
			default:
				shapes[[2]string{from, to}] = s.WAN.Default
			}
		}
	}
	for _, p := range s.WAN.Pairs {
		whole := s.isSite(p.From) || s.isSite(p.To)
		for _, from := range s.expand(p.From) {
			for _, to := range s.expand(p.To) {
				if from == to || whole && siteOf(from) == siteOf(to) {
					continue // a pair of the site concerns its paths to others
				}
				change(shapes, from, to, p.Apply)
				if p.Both {
					change(shapes, to, from, p.Apply)
				}
			}
		}
	}
	return shapes
}

func change(shapes map[[2]string]wan.Shape, from, to string, apply func(*wan.Shape)) {
	s := shapes[[2]string{from, to}]
	apply(&s)
	shapes[[2]string{from, to}] = s
}

func (s Spec) isSite(name string) bool { return !strings.Contains(name, "/") }

// isProxy reports whether the endpoint is a CONNECT proxy of the lab.
func (s Spec) isProxy(endpoint string) bool {
	for _, site := range s.Sites {
		if site.hasProxy() && endpoint == site.Name+"/"+proxyNode {
			return true
		}
	}
	return false
}

// siteOf returns the site of a host or endpoint name.
func siteOf(name string) string {
	site, _, _ := strings.Cut(name, "/")
	return site
}

// wordRE matches valid site and host names, which become part of a host name.
var wordRE = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$`)

// Check returns an error in the spec, a daemon.Fault with its key, or nil.
func (s Spec) Check() error {
	if len(s.Sites) == 0 {
		return daemon.Wrong("sites", "no site; give at least one with a name and a preset")
	}
	if s.Window != 0 && (s.Window < minWindow || s.Window > maxWindow) {
		return daemon.Wrong("window", "%d bytes; want %d to %d", s.Window, minWindow, maxWindow)
	}
	seen := make(map[string]bool)
	gateways, public := 0, 0
	for i, site := range s.Sites {
		key := fmt.Sprintf("sites[%d]", i)
		if err := site.check(key); err != nil {
			return err
		}
		if seen[site.Name] {
			return daemon.Wrong(key+".name", "site %q is there twice", site.Name)
		}
		seen[site.Name] = true
		if site.Preset == Public {
			public += len(site.Nodes)
			continue
		}
		gateways++
		if site.hasProxy() {
			public++
		}
	}
	if gateways > MaxSites {
		return daemon.Wrong("sites", "%d sites have a gateway; the address plan ends at %d", gateways, MaxSites)
	}
	if public > MaxPublic {
		return daemon.Wrong("sites", "%d public hosts and proxies; the address plan ends at %d", public, MaxPublic)
	}
	return s.checkWAN()
}

func (s Site) check(key string) error {
	if !wordRE.MatchString(s.Name) {
		return daemon.Wrong(key+".name", "%q is no site name; use lower-case letters, digits and inner dashes, 32 at most", s.Name)
	}
	if s.Preset != Public {
		if _, err := lookupPreset(s.Preset); err != nil {
			return daemon.Wrong(key+".preset", "%w", err)
		}
	} else if s.Gateway != "" {
		return daemon.Wrong(key+".gateway", "a public site has no gateway")
	}
	if len(s.Nodes) == 0 {
		return daemon.Wrong(key+".nodes", "no node; give a count or a list of names")
	}
	if len(s.Nodes) > MaxNodes {
		return daemon.Wrong(key+".nodes", "%d nodes; at most %d fit in a site", len(s.Nodes), MaxNodes)
	}
	if s.Uplink < 0 {
		return daemon.Wrong(key+".uplink", "%d bit/s is negative", s.Uplink)
	}
	if s.Burst != 0 && s.Burst < minBurst {
		return daemon.Wrong(key+".burst", "%d bytes are less than the %d of a few packets", s.Burst, minBurst)
	}
	if len(s.CPU) > len(s.Nodes) {
		return daemon.Wrong(key+".cpu", "%d limits for %d nodes", len(s.CPU), len(s.Nodes))
	}
	for _, cores := range s.CPU {
		if !(cores >= minCores && cores <= maxCores) {
			return daemon.Wrong(key+".cpu", "%g cores; want %g to %g", cores, minCores, maxCores)
		}
	}
	outer := s.outerProvider()
	if s.Second && (s.Preset == Public || outer != nil || s.overlaps()) {
		return daemon.Wrong(key+".second", "a second uplink is a gateway's that is on the internet itself, with addresses of its own")
	}
	if s.OnlyIPv6 && (s.Preset == Public || !(Spec{}).ipv6At(s)) {
		return daemon.Wrong(key+".only-ipv6", "preset %s has no IPv6: its gateway, or what lies before it, translates addresses, or it has none", s.Preset)
	}
	if s.UDPLife != 0 {
		if outer == nil || outer.udpLife == 0 {
			return daemon.Wrong(key+".udp-life", "preset %s does not end UDP mappings at a certain age", s.Preset)
		}
		if s.UDPLife < minUDPLife || s.UDPLife%time.Millisecond != 0 {
			return daemon.Wrong(key+".udp-life", "%v is not %v or more in whole milliseconds", s.UDPLife, minUDPLife)
		}
	}
	names := map[string]bool{}
	if outer != nil {
		names[outer.host] = true
	}
	if s.Preset != Public {
		if names[s.gateway()] {
			return daemon.Wrong(key+".gateway", "the name %q is taken in this site", s.gateway())
		}
		names[s.gateway()] = true
		if !wordRE.MatchString(s.gateway()) {
			return daemon.Wrong(key+".gateway", "%q is no host name; use lower-case letters, digits and inner dashes, 32 at most", s.Gateway)
		}
	}
	if s.hasProxy() {
		names[proxyNode] = true
	}
	for _, n := range s.Nodes {
		if !wordRE.MatchString(n) {
			return daemon.Wrong(key+".nodes", "%q is no host name; use lower-case letters, digits and inner dashes, 32 at most", n)
		}
		if names[n] {
			return daemon.Wrong(key+".nodes", "the name %q is taken in this site", n)
		}
		names[n] = true
	}
	return nil
}

func (s Spec) checkWAN() error {
	if err := s.WAN.Default.Validate(); err != nil {
		return daemon.Wrong("wan", "%w", err)
	}
	for i, p := range s.WAN.Pairs {
		key := fmt.Sprintf("wan.pairs[%d]", i)
		for _, name := range []string{p.From, p.To} {
			if len(s.expand(name)) == 0 {
				return daemon.Wrong(key, "%q is neither a site nor a public host (site/host) of this file", name)
			}
		}
		if p.From == p.To {
			return daemon.Wrong(key, "both ends are %q", p.From)
		}
		shape := s.WAN.Default
		p.Apply(&shape)
		if err := shape.Validate(); err != nil {
			return daemon.Wrong(key, "%w", err)
		}
	}
	return nil
}

// Load reads and checks the spec in file.
func Load(file string) (Spec, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Spec{}, fmt.Errorf("lab spec: %w", err)
	}
	return Parse(file, text)
}

// Between returns a PairSpec for both directions between a and b (sites or
// endpoints) with the given round-trip time: each direction gets half.
func Between(a, b string, rtt time.Duration) PairSpec {
	return PairSpec{From: a, To: b, Both: true, Apply: func(s *wan.Shape) { s.Delay = rtt / 2 }}
}

// Nodes returns the names of n nodes given as a count in a spec: n1 to n<n>.
func Nodes(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("n%d", i+1)
	}
	return names
}
