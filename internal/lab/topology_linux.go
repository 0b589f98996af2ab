package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The interfaces of hosts.
const (
	nodeIface = "eth0"
	lanIface  = "lan0"
	wanIface  = "wan0"
)

// hostSysctls holds for every host; keys are below /proc/sys/net.
var hostSysctls = map[string]string{
	"ipv4/tcp_rmem":                   "4096 131072 33554432", // long fat paths must not end at the default 4-6 MB
	"ipv4/tcp_wmem":                   "4096 65536 33554432",
	"ipv4/tcp_no_metrics_save":        "1", // no connection learns from the one before
	"ipv4/icmp_ratelimit":             "0", // every refusal is told, not one a second
	"ipv4/conf/all/rp_filter":         "0",
	"ipv4/conf/default/rp_filter":     "0",
	"ipv6/conf/default/accept_dad":    "0",
	"ipv6/conf/default/addr_gen_mode": "1", // no link-local addresses, hence no chatter of theirs
}

func setSysctls(values map[string]string) error {
	for key, value := range values {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", key), []byte(value), 0); err != nil {
			return fmt.Errorf("setting net.%s to %q: %w", key, value, err)
		}
	}
	return nil
}

// switchFrames lets the nodes of a LAN reach each other whatever the gateway's
// rules say: its bridge stands for a switch. Where the kernel has br_netfilter
// it passes bridged frames to the rules for routed packets by default.
func switchFrames() error {
	err := setSysctls(map[string]string{"bridge/bridge-nf-call-iptables": "0", "bridge/bridge-nf-call-ip6tables": "0"})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// makeHosts makes a namespace for the internet and for every host.
func (l *Lab) makeHosts(ctx context.Context) (err error) {
	if l.internet, err = newHost(hostPlan{name: "internet"}); err != nil {
		return err
	}
	err = l.internet.Do(func() error {
		if err := setSysctls(hostSysctls); err != nil {
			return err
		}
		return setSysctls(map[string]string{"ipv4/ip_forward": "1"})
	})
	if err != nil {
		return err
	}
	for _, p := range l.plan.hosts {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := newHost(p)
		if err != nil {
			return err
		}
		l.hosts[p.name] = h
		if err := h.Do(func() error { return setSysctls(hostSysctls) }); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// connectHosts lays the wires and gives hosts their addresses, routes and rules.
func (l *Lab) connectHosts(ctx context.Context) error {
	if err := l.layWires(); err != nil {
		return err
	}
	for _, p := range l.plan.hosts {
		if err := ctx.Err(); err != nil {
			return err
		}
		h := l.hosts[p.name]
		if err := h.Do(func() error { return configureHost(p) }); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return l.internet.Do(func() error { return l.configureInternet() })
}

// layWires makes every veth pair with its two ends in place.
func (l *Lab) layWires() error {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening netlink: %w", err)
	}
	defer nl.Close()
	ports := make(map[int]int) // LAN ports used, by gateway
	for _, p := range l.plan.hosts {
		var err error
		if p.role == roleNode {
			gw := l.plan.hosts[p.gateway]
			err = wire(nl, l.hosts[p.name], nodeIface, l.hosts[gw.name], portName(ports[p.gateway]))
			ports[p.gateway]++
		} else {
			err = wire(nl, l.hosts[p.name], wanIface, l.internet, p.uplink)
		}
		if err != nil {
			return fmt.Errorf("connecting %s: %w", p.name, err)
		}
	}
	return nil
}

// portName is the gateway's end of the wire to its i-th node.
func portName(i int) string { return fmt.Sprintf("port%d", i) }

func wire(nl *netlink.Handle, a *Host, aName string, b *Host, bName string) error {
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: aName, Namespace: netlink.NsFd(a.ns.Fd())},
		PeerName:      bName,
		PeerNamespace: netlink.NsFd(b.ns.Fd()),
	}
	return nl.LinkAdd(veth)
}

// configureHost sets up the host of the calling thread.
func configureHost(p hostPlan) error {
	c, err := newConfigurer()
	if err != nil {
		return err
	}
	defer c.nl.Close()
	c.up("lo")
	switch p.role {
	case roleNode:
		c.address(nodeIface, netip.PrefixFrom(p.addr, 24))
		c.route(netip.Prefix{}, p.router, nodeIface)
	case roleGateway:
		c.gateway(p)
	case rolePublic, roleProxy:
		c.address(wanIface, netip.PrefixFrom(p.wan, 32))
		c.route(netip.PrefixFrom(p.router, 32), netip.Addr{}, wanIface)
		c.route(netip.Prefix{}, p.router, wanIface)
	}
	if p.rate > 0 {
		c.limit(wanIface, p.rate)
	}
	return c.err
}

// configureInternet routes among the uplinks. As on the real one, packets to
// private networks that nobody announces vanish.
func (l *Lab) configureInternet() error {
	c, err := newConfigurer()
	if err != nil {
		return err
	}
	defer c.nl.Close()
	c.up("lo")
	c.do("dropping packets to private networks", func() error {
		return c.nl.RouteAdd(&netlink.Route{Dst: ipNet(privateNet), Type: unix.RTN_BLACKHOLE})
	})
	for _, p := range l.plan.hosts {
		if p.uplink == "" {
			continue
		}
		if p.role == roleGateway {
			c.address(p.uplink, netip.PrefixFrom(p.router, 24))
		} else {
			c.address(p.uplink, netip.PrefixFrom(p.router, 32))
			c.route(netip.PrefixFrom(p.wan, 32), netip.Addr{}, p.uplink)
		}
		if p.routed {
			c.route(p.lan, p.wan, p.uplink)
		}
		if p.rate > 0 {
			c.limit(p.uplink, p.rate)
		}
	}
	return c.err
}

// A configurer changes the network namespace that it was made in. The first
// error stays and stops it.
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

// address gives the interface an address and sets it up.
func (c *configurer) address(name string, p netip.Prefix) {
	link := c.link(name)
	c.do(fmt.Sprintf("giving %s the address %v", name, p), func() error {
		return c.nl.AddrAdd(link, &netlink.Addr{IPNet: ipNet(p)})
	})
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

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// gateway sets up a gateway: the LAN's bridge, the WAN side, rules, and
// forwarding unless the nodes are hidden.
func (c *configurer) gateway(p hostPlan) {
	var bridge netlink.Link = &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: lanIface}}
	c.do("making the bridge "+lanIface, func() error { return c.nl.LinkAdd(bridge) })
	bridge = c.link(lanIface)
	for i := range p.nodes {
		port := c.link(portName(i))
		c.do("connecting "+portName(i), func() error {
			if err := c.nl.LinkSetMasterByIndex(port, bridge.Attrs().Index); err != nil {
				return err
			}
			return c.nl.LinkSetUp(port)
		})
	}
	c.address(lanIface, netip.PrefixFrom(p.addr, 24))
	c.address(wanIface, netip.PrefixFrom(p.wan, 24))
	c.route(netip.Prefix{}, p.router, wanIface)
	c.do("loading the rules of "+p.presetIs, func() error { return loadRules(p.rules) })
	c.do("setting sysctls", func() error { return setSysctls(p.preset.sysctl) })
	c.do("keeping the LAN's own frames out of the firewall", switchFrames)
	if !p.hidden {
		c.do("forwarding", func() error { return setSysctls(map[string]string{"ipv4/ip_forward": "1"}) })
	}
}

// limit lets the interface send rate bit/s, with 10 ms of tokens and up to 50 ms
// of packets waiting.
func (c *configurer) limit(name string, rate int64) {
	bytes := uint64(max(rate/8, 1))
	burst := uint32(max(bytes/100, 64<<10))
	link := c.link(name)
	c.do("limiting "+name, func() error {
		return c.nl.QdiscAdd(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			Rate:       bytes,
			Limit:      burst + uint32(max(bytes/20, 64<<10)),
			Buffer:     netlink.Xmittime(bytes, burst),
		})
	})
}
