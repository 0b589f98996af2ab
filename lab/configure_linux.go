package lab

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A configurer changes the network namespace that it was made in. It keeps the first error and does
// nothing after it.
type configurer struct {
	nl  *netlink.Handle
	err error
}

func newConfigurer() (*configurer, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening netlink: %w", err)
	}
	return &configurer{nl: nl}, nil
}

func (c *configurer) do(what string, fn func() error) {
	if c.err != nil {
		return
	}
	if err := fn(); err != nil {
		c.err = fmt.Errorf("%s: %w", what, err)
	}
}

func (c *configurer) link(name string) (link netlink.Link) {
	c.do("finding "+name, func() (err error) {
		link, err = c.nl.LinkByName(name)
		return err
	})
	return link
}

func (c *configurer) up(name string) {
	link := c.link(name)
	c.do("setting up "+name, func() error { return c.nl.LinkSetUp(link) })
}

// address gives the interface an address and sets it up. With an IPv6 address it gets a link-local
// one, without which a router does not look for neighbours.
func (c *configurer) address(name string, p netip.Prefix) {
	link := c.link(name)
	add := func(p netip.Prefix, flags int) {
		c.do(fmt.Sprintf("giving %s the address %v", name, p), func() error {
			return c.nl.AddrAdd(link, &netlink.Addr{IPNet: ipNet(p), Flags: flags})
		})
	}
	if p.Addr().Is4() {
		add(p, 0)
	} else { // without duplicate address detection they can be used at once
		add(p, unix.IFA_F_NODAD)
		add(netip.PrefixFrom(linkLocal(p.Addr()), 64), unix.IFA_F_NODAD)
	}
	c.do("setting up "+name, func() error { return c.nl.LinkSetUp(link) })
}

// route adds a route; without a destination it is the default route, without a
// router the destination is on the link. With neither it does nothing.
func (c *configurer) route(to netip.Prefix, router netip.Addr, iface string) {
	if !to.IsValid() && !router.IsValid() {
		return
	}
	link := c.link(iface)
	c.do(fmt.Sprintf("routing %v by %v", to, router), func() error {
		r := &netlink.Route{LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK}
		if to.IsValid() {
			r.Dst = ipNet(to)
		}
		if router.IsValid() {
			r.Gw, r.Scope = router.AsSlice(), netlink.SCOPE_UNIVERSE
		}
		return c.nl.RouteAdd(r)
	})
}

// replaceRoute makes packets to a network use another router than before.
func (c *configurer) replaceRoute(to netip.Prefix, router netip.Addr, iface string) {
	link := c.link(iface)
	c.do(fmt.Sprintf("routing %v by %v", to, router), func() error {
		return c.nl.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(to), Gw: router.AsSlice()})
	})
}

// secondTable is the routing table of packets with an address of the second uplink.
const secondTable = 2

// second sets up a gateway's second uplink. Packets that nodes send with one of its addresses leave
// by it (RFC 8043, section 3); the gateway's own packets do so only on request: its second default
// route has the worse metric.
func (c *configurer) second(s second) {
	c.address(secondIface, netip.PrefixFrom(s.wan, s.bits))
	link := c.link(secondIface)
	if s.back {
		return
	}
	c.address(lanIface, netip.PrefixFrom(s.addr, s.bits))
	c.do("the second default route", func() error {
		r := netlink.Route{LinkIndex: link.Attrs().Index, Gw: s.router.AsSlice(), Priority: 200}
		if err := c.nl.RouteAdd(&r); err != nil {
			return err
		}
		r.Table, r.Priority = secondTable, 0
		return c.nl.RouteAdd(&r)
	})
	c.do("routing by source address", func() error {
		near, far := netlink.NewRule(), netlink.NewRule()
		near.Priority, near.Table, near.SuppressPrefixlen = 98, unix.RT_TABLE_MAIN, 0 // all but the default route
		far.Priority, far.Table, far.Src = 99, secondTable, ipNet(netip.PrefixFrom(s.addr, s.bits).Masked())
		if err := c.nl.RuleAdd(near); err != nil {
			return err
		}
		return c.nl.RuleAdd(far)
	})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// gateway sets up a gateway: the LAN's bridge, the WAN side, rules, and
// forwarding unless the nodes are hidden.
func (c *configurer) gateway(p hostPlan) {
	c.bridge(p.nodes)
	for _, a := range p.families() {
		c.address(lanIface, netip.PrefixFrom(a.addr, a.bits))
		c.address(wanIface, netip.PrefixFrom(a.wan, a.bits))
		c.route(netip.Prefix{}, p.defaultRoute(a), wanIface)
	}
	if p.second != nil {
		c.second(*p.second)
	}
	c.do("keeping the LAN's own frames out of the firewall", switchFrames)
	c.firewall(p)
}

// bridge makes lan0 a bridge with the given number of ports.
func (c *configurer) bridge(ports int) {
	var bridge netlink.Link = &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: lanIface}}
	c.do("making the bridge "+lanIface, func() error { return c.nl.LinkAdd(bridge) })
	bridge = c.link(lanIface)
	for i := range ports {
		port := c.link(portName(i))
		c.do("connecting "+portName(i), func() error {
			if err := c.nl.LinkSetMasterByIndex(port, bridge.Attrs().Index); err != nil {
				return err
			}
			return c.nl.LinkSetUp(port)
		})
	}
}

// provider sets up the router between a gateway, or several, and the internet.
func (c *configurer) provider(p hostPlan) {
	if p.outer.shared {
		c.bridge(1 + len(p.others))
	}
	for _, a := range slices.Concat(p.families(), p.others) {
		c.address(lanIface, netip.PrefixFrom(a.addr, a.bits))
		for _, n := range a.inside {
			c.route(n, a.nextHop, lanIface)
		}
	}
	c.onInternet(p)
	if p.outer.mtu > 0 {
		c.mtu(wanIface, p.outer.mtu)
	}
	if p.outer.udpRate > 0 {
		c.limitUDP(lanIface, p.outer.udpRate)
		c.limitUDP(wanIface, p.outer.udpRate)
	}
	c.firewall(p)
}

// firewall loads the rules of a gateway or provider and lets it forward unless
// the nodes are hidden.
func (c *configurer) firewall(p hostPlan) {
	c.do("loading the rules of "+p.presetIs, func() error { return loadRules(p.rules) })
	c.do("setting sysctls", func() error { return setSysctls(p.preset.sysctl) })
	if !p.hidden {
		c.do("forwarding", func() error { return setSysctls(forwarding) })
	}
}

// mtu sets the interface's MTU in bytes.
func (c *configurer) mtu(name string, bytes int) {
	link := c.link(name)
	c.do(fmt.Sprintf("giving %s an MTU of %d", name, bytes), func() error { return c.nl.LinkSetMTU(link, bytes) })
}

// SetMTU sets the MTU of an interface of the calling thread's network namespace in bytes: a path
// that changes while a test runs. Call it in Host.Do; a gateway's interfaces are lan0 and wan0.
func SetMTU(name string, bytes int) error {
	c, err := newConfigurer()
	if err != nil {
		return err
	}
	defer c.nl.Close()
	c.mtu(name, bytes)
	return c.err
}
