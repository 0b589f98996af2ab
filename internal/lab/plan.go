package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/internal/lab/wan"
)

// A plan is a Spec with every address, interface and path decided.
type plan struct {
	hosts []hostPlan // gateways before their nodes
	paths []wan.Path
}

// A hostRole says how a host is connected.
type hostRole uint8

const (
	roleNode    hostRole = iota // eth0 on its site's LAN
	roleGateway                 // lan0 bridge and wan0
	rolePublic                  // wan0 only
	roleProxy                   // public, and runs the site's CONNECT proxy
)

var roleNames = [...]string{"node", "gateway", "public", "proxy"}

type hostPlan struct {
	name     string // site/host
	role     hostRole
	addr     netip.Addr // what other hosts of its site use; of a gateway its LAN address
	wan      netip.Addr // on wan0; invalid for a node
	router   netip.Addr // the default route; invalid when there is none
	uplink   string     // the interface's name in the internet namespace; "" for a node
	rate     int64      // bit/s of uplink, 0 is no limit
	gateway  int        // index in hosts of a node's gateway
	routed   bool       // a gateway whose LAN the internet knows
	hidden   bool       // a gateway that forwards nothing
	preset   preset     // of a gateway
	rules    string     // of a gateway
	nodes    int        // how many LAN ports a gateway has
	lan      netip.Prefix
	presetIs string // the preset's full name, for people
}

var (
	privateNet   = netip.MustParsePrefix("10.0.0.0/8")
	publicRouter = netip.MustParseAddr("203.0.113.1")
	publicNet    = [3]byte{203, 0, 113}
)

// makePlan decides all of spec, which must have passed Check.
func makePlan(spec Spec) plan {
	var p plan
	site, public := byte(0), byte(1)
	nextPublic := func() netip.Addr {
		public++
		return netip.AddrFrom4([4]byte{publicNet[0], publicNet[1], publicNet[2], public})
	}
	for _, s := range spec.Sites {
		if s.Preset == Public {
			for _, n := range s.Nodes {
				p.addPublic(s, n, rolePublic, nextPublic())
			}
			continue
		}
		site++
		var proxy netip.Addr
		if s.hasProxy() {
			proxy = nextPublic()
			p.addPublic(s, proxyNode, roleProxy, proxy)
		}
		p.addSite(s, site, proxy)
	}
	p.addPaths(spec)
	return p
}

func (p *plan) uplinkName() string {
	n := 0
	for _, h := range p.hosts {
		if h.uplink != "" {
			n++
		}
	}
	return fmt.Sprintf("w%d", n)
}

func (p *plan) addPublic(s Site, name string, role hostRole, addr netip.Addr) {
	p.hosts = append(p.hosts, hostPlan{
		name: s.Name + "/" + name, role: role, addr: addr, wan: addr, router: publicRouter,
		uplink: p.uplinkName(), rate: s.Uplink, presetIs: Public,
	})
}

func (p *plan) addSite(s Site, number byte, proxy netip.Addr) {
	lanAddr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, number, 0, byte(i)}) }
	gw := hostPlan{
		name: s.Name + "/" + s.gateway(), role: roleGateway,
		addr: lanAddr(1), lan: netip.PrefixFrom(lanAddr(0), 24),
		wan:    netip.AddrFrom4([4]byte{100, 64, number, 2}),
		router: netip.AddrFrom4([4]byte{100, 64, number, 1}),
		uplink: p.uplinkName(), rate: s.Uplink,
		hidden: strings.HasPrefix(s.Preset, noRoute), nodes: len(s.Nodes), presetIs: s.Preset,
	}
	gw.preset, _ = lookupPreset(s.Preset) // Check has found it
	gw.routed = !gw.hidden && !gw.preset.translates()
	vars := ruleVars{ext: gw.wan, host: lanAddr(11), proxy: proxy}
	if gw.hidden {
		vars.host = gw.addr // whatever a hidden host would get is for the gateway
	}
	gw.rules = gw.preset.ruleset(gw.hidden, vars)
	at := len(p.hosts)
	p.hosts = append(p.hosts, gw)
	for i, n := range s.Nodes {
		node := hostPlan{
			name: s.Name + "/" + n, role: roleNode, addr: lanAddr(11 + i), router: gw.addr,
			gateway: at, presetIs: s.Preset,
		}
		if gw.hidden {
			node.router = netip.Addr{}
		}
		p.hosts = append(p.hosts, node)
	}
}

// addPaths makes a path for each ordered pair of places on the WAN, sorted by
// names so that equal specs give equal seeds to equal paths.
func (p *plan) addPaths(spec Spec) {
	uplink := make(map[string]string)
	for _, h := range p.hosts {
		if h.uplink != "" {
			uplink[h.endpoint()] = h.uplink
		}
	}
	for pair, shape := range spec.paths() {
		p.paths = append(p.paths, wan.Path{
			From: pair[0], To: pair[1], In: uplink[pair[0]], Out: uplink[pair[1]], Shape: shape,
		})
	}
	slices.SortFunc(p.paths, func(a, b wan.Path) int {
		return strings.Compare(a.From+" "+a.To, b.From+" "+b.To)
	})
}

// endpoint returns the host's name on the WAN: a gateway stands for its site.
func (h hostPlan) endpoint() string {
	if h.role == roleGateway {
		return siteOf(h.name)
	}
	return h.name
}

// dnsName returns host.site, the name that programs in the lab may use.
func (h hostPlan) dnsName() string {
	site, host, _ := strings.Cut(h.name, "/")
	return host + "." + site
}

// hostsFile returns the text of /etc/hosts.
func (p plan) hostsFile() string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n::1 localhost\n")
	for _, h := range p.hosts {
		fmt.Fprintf(&b, "%v %s\n", h.addr, h.dnsName())
		if h.role == roleGateway {
			fmt.Fprintf(&b, "%v wan.%s\n", h.wan, siteOf(h.name))
		}
	}
	return b.String()
}
