package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-grid/isthmus/lab/wan"
)

// A plan is a Spec with every address, interface and path assigned.
type plan struct {
	hosts []hostPlan // gateways before their nodes
	paths []wan.Path
}

// A hostRole is the way in which a host is connected.
type hostRole uint8

const (
	roleNode     hostRole = iota // eth0 on its site's LAN
	roleGateway                  // lan0 bridge and wan0
	roleProvider                 // lan0 to a gateway, and wan0
	rolePublic                   // wan0 only
	roleProxy                    // public, and runs the site's CONNECT proxy
)

var roleNames = [...]string{"node", "gateway", "provider", "public", "proxy"}

type hostPlan struct {
	addrs             // IPv4
	six      addrs    // IPv6; all invalid where the host has none
	name     string   // site/host
	role     hostRole // how it is connected
	uplink   string   // the interface's name in the internet namespace; "" for a host connected to another host
	second   *second  // of a gateway with a second uplink, and of its nodes; or nil
	rate     int64    // bit/s of the site's access link, 0 is no limit
	burst    int64    // see Site.Burst
	on       int      // index in hosts: a node's gateway, a gateway's provider; -1 is the internet
	hidden   bool     // a gateway that forwards nothing
	only6    bool     // of a node or gateway: no route out over IPv4
	preset   preset   // of a gateway or provider
	outer    provider // of a provider
	others   []addrs  // of a provider with several gateways: its addresses for each but the first
	rules    string   // of a gateway or provider
	cores    float64  // that its commands may use; 0 is no limit
	nodes    int      // number of LAN ports of a gateway
	presetIs string   // the preset's full name, for display
}

// A second holds a host's addresses of its site's second uplink.
type second struct {
	addrs
	uplink string // as in hostPlan; of a gateway
	back   bool   // see preset.back
}

// makePlan plans all of spec, which must have passed Check.
func makePlan(spec Spec) plan {
	var p plan
	site, public := byte(0), byte(1)
	addPublic := func(s Site, name string, role hostRole) hostPlan {
		public++
		h := hostPlan{
			addrs: four.publicHost(public), name: s.Name + "/" + name, role: role, on: -1,
			uplink: p.uplinkName(), rate: s.Uplink, burst: s.Burst, presetIs: Public,
		}
		if spec.anyIPv6() {
			h.six = six.publicHost(public)
		}
		p.hosts = append(p.hosts, h)
		return h
	}
	for _, s := range spec.Sites {
		if s.Preset == Public {
			for i, n := range s.Nodes {
				addPublic(s, n, rolePublic)
				p.hosts[len(p.hosts)-1].cores = s.cores(i)
			}
			continue
		}
		site++
		var proxy hostPlan
		if s.hasProxy() {
			proxy = addPublic(s, proxyNode, roleProxy)
		}
		p.addSite(s, site, proxy, spec.ipv6At(s))
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
		if h.second != nil && h.second.uplink != "" {
			n++
		}
	}
	return fmt.Sprintf("w%d", n)
}

// addSite adds the gateway, the provider before it, and the nodes behind.
func (p *plan) addSite(s Site, number byte, proxy hostPlan, ipv6 bool) {
	preset, _ := lookupPreset(s.Preset) // Check has found it
	hidden, only6 := strings.HasPrefix(s.Preset, noRoute), preset.only6 || s.OnlyIPv6
	lan := number
	if preset.overlaps {
		lan = overlapping
	}
	gw := hostPlan{
		addrs: four.gateway(number, lan, !hidden && !preset.translates()), name: s.Name + "/" + s.gateway(),
		role: roleGateway, on: -1, rate: s.Uplink, burst: s.Burst, hidden: hidden, only6: only6, preset: preset, nodes: len(s.Nodes), presetIs: s.Preset,
	}
	vars := ruleVars{
		ext: gw.wan, own: gw.addr, host: four.node(lan, 0), proxy: proxy.addr, proxy6: proxy.six.addr, hidden: hidden, ipv6: ipv6,
		second: s.multihomed(),
	}
	if hidden {
		vars.host = gw.addr // the gateway gets what a hidden host would get
	}
	gw.rules = preset.ruleset(vars)
	if ipv6 {
		gw.six = six.gateway(number, number, !hidden)
	}
	if shared := p.sharedProvider(preset); shared >= 0 {
		gw.on = shared
		on := &p.hosts[shared]
		on.others = append(on.others, four.provider(number, gw.addrs, on.preset.translates()))
	} else if preset.outer != nil {
		gw.on = len(p.hosts)
		p.addProvider(s, number, gw)
	} else {
		gw.uplink = p.uplinkName()
	}
	at := len(p.hosts)
	p.hosts = append(p.hosts, gw)
	if s.multihomed() {
		p.hosts[at].second = &second{
			addrs: fourSecond.gateway(number, number, !hidden && !preset.translates()), uplink: p.uplinkName(), back: preset.back,
		}
	}
	for i, n := range s.Nodes {
		node := hostPlan{name: s.Name + "/" + n, role: roleNode, on: at, only6: only6, presetIs: s.Preset, cores: s.cores(i)}
		node.addrs = gw.nodeBehind(four.node(lan, i), hidden)
		if s.multihomed() && !preset.back && !hidden {
			node.second = &second{addrs: p.hosts[at].second.nodeBehind(fourSecond.node(number, i), hidden)}
		}
		if ipv6 {
			node.six = gw.six.nodeBehind(six.node(number, i), hidden)
		}
		p.hosts = append(p.hosts, node)
	}
}

// sharedProvider returns the index of the provider that the preset's sites share, or -1 if there is
// none, or none yet.
func (p *plan) sharedProvider(preset preset) int {
	if preset.outer == nil || !preset.outer.shared {
		return -1
	}
	return slices.IndexFunc(p.hosts, func(h hostPlan) bool {
		return h.role == roleProvider && h.outer.shared && h.outer.host == preset.outer.host
	})
}

// addProvider adds the router between the gateway and the internet.
func (p *plan) addProvider(s Site, number byte, gw hostPlan) {
	outer := *gw.preset.outer
	if s.UDPLife > 0 {
		outer.udpLife = s.UDPLife
	}
	h := hostPlan{
		addrs: four.provider(number, gw.addrs, outer.rules.translates()),
		name:  s.Name + "/" + outer.host, role: roleProvider, on: -1, uplink: p.uplinkName(), rate: s.Uplink, burst: s.Burst,
		preset: outer.rules, outer: outer, presetIs: s.Preset,
	}
	if gw.six.wan.IsValid() {
		h.six = six.provider(number, gw.six, false)
	}
	h.rules = outer.rules.ruleset(ruleVars{
		ext: h.wan, life: outer.udpLife, ipv6: h.six.wan.IsValid(), silent: outer.mtu > 0,
	})
	p.hosts = append(p.hosts, h)
}

// addPaths makes a path for each ordered pair of endpoints on the WAN, sorted by names so that
// equal specs give equal seeds to equal paths.
func (p *plan) addPaths(spec Spec) {
	uplink := make(map[string]string)
	for _, h := range p.hosts {
		if h.uplink != "" {
			uplink[h.endpoint()] = h.uplink
		}
		if h.second != nil && h.second.uplink != "" {
			uplink[secondOf(h.endpoint())] = h.second.uplink
		}
	}
	for pair, shape := range spec.paths() {
		for _, from := range p.ends(pair[0]) {
			for _, to := range p.ends(pair[1]) {
				p.paths = append(p.paths, wan.Path{From: from, To: to, In: uplink[from], Out: uplink[to], Shape: shape})
			}
		}
	}
	slices.SortFunc(p.paths, func(a, b wan.Path) int {
		return strings.Compare(a.From+" "+a.To, b.From+" "+b.To)
	})
}

// secondOf returns the name that an endpoint's second uplink has on the WAN.
func secondOf(endpoint string) string { return endpoint + secondName }

// A second uplink's interface at its gateway, and its suffix in names.
const (
	secondIface = "wan1"
	secondName  = "/" + secondIface
)

// ends returns the names that an endpoint has on the WAN, one for each uplink.
func (p plan) ends(endpoint string) []string {
	for _, h := range p.hosts {
		if h.second != nil && h.second.uplink != "" && h.endpoint() == endpoint {
			return []string{endpoint, secondOf(endpoint)}
		}
	}
	return []string{endpoint}
}

// joined adds the counters of an endpoint's second uplink to those of its first.
func joined(counters []wan.Counter) (all []wan.Counter) {
	at := map[[2]string]int{}
	for _, c := range counters {
		c.From, c.To = strings.TrimSuffix(c.From, secondName), strings.TrimSuffix(c.To, secondName)
		i, ok := at[[2]string{c.From, c.To}]
		if !ok {
			at[[2]string{c.From, c.To}] = len(all)
			all = append(all, c)
			continue
		}
		a := &all[i]
		if n := a.Packets + c.Packets; n > 0 {
			a.LateAvg = (a.LateAvg*time.Duration(a.Packets) + c.LateAvg*time.Duration(c.Packets)) / time.Duration(n)
		}
		a.Packets, a.Bytes, a.Messages = a.Packets+c.Packets, a.Bytes+c.Bytes, a.Messages+c.Messages
		a.Dropped, a.Lost, a.Overflowed = a.Dropped+c.Dropped, a.Lost+c.Lost, a.Overflowed+c.Overflowed
		a.Duplicated, a.LateMax = a.Duplicated+c.Duplicated, max(a.LateMax, c.LateMax)
	}
	return all
}

// families returns the host's addresses in the versions of IP that it has.
func (h hostPlan) families() []addrs {
	if !h.six.addr.IsValid() {
		return []addrs{h.addrs}
	}
	return []addrs{h.addrs, h.six}
}

// defaultRoute returns the router in a through which the host reaches the internet; not valid if
// there is none.
func (h hostPlan) defaultRoute(a addrs) netip.Addr {
	if h.only6 && a.router.Is4() {
		return netip.Addr{}
	}
	return a.router
}

// endpoint returns the host's name on the WAN: a gateway, or the provider before it, stands for its
// site.
func (h hostPlan) endpoint() string {
	if h.role == roleGateway || h.role == roleProvider {
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
		for _, a := range h.families() {
			fmt.Fprintf(&b, "%v %s\n", a.addr, h.dnsName())
			if h.role == roleGateway {
				fmt.Fprintf(&b, "%v wan.%s\n", a.wan, siteOf(h.name))
			}
		}
	}
	return b.String()
}
