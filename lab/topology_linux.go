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
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The interfaces of hosts.
const (
	nodeIface = "eth0"
	lanIface  = "lan0"
	wanIface  = "wan0"
)

// hostSysctls applies to every host, and the spec's window; keys are below /proc/sys/net.
var hostSysctls = map[string]string{
	"ipv4/tcp_no_metrics_save":        "1", // no connection learns from the one before
	"ipv4/icmp_ratelimit":             "0", // every error is sent, not one per second
	"ipv4/conf/all/rp_filter":         "0",
	"ipv4/conf/default/rp_filter":     "0",
	"ipv6/conf/default/accept_dad":    "0",
	"ipv6/conf/default/addr_gen_mode": "1", // no link-local addresses without other addresses, hence no traffic of theirs
	"ipv6/icmp/ratelimit":             "0",
}

// windowSysctls limits the buffers of TCP connections. Without a limit long fat paths must not feel the default of 4 to 6 MB.
func windowSysctls(window int64) map[string]string {
	most := int64(maxWindow)
	if window > 0 {
		most = window
	}
	return map[string]string{
		"ipv4/tcp_rmem": fmt.Sprintf("4096 %d %d", min(128<<10, most), most),
		"ipv4/tcp_wmem": fmt.Sprintf("4096 %d %d", min(64<<10, most), most),
	}
}

// configure sets up the calling thread's network namespace as that of any host.
func (l *Lab) configure() error {
	return errors.Join(setSysctls(hostSysctls), setSysctls(windowSysctls(l.spec.Window)))
}

// forwarding makes a host a router.
var forwarding = map[string]string{"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1"}

func setSysctls(values map[string]string) error {
	for key, value := range values {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", key), []byte(value), 0); err != nil {
			return fmt.Errorf("setting net.%s to %q: %w", key, value, err)
		}
	}
	return nil
}

// switchFrames lets the nodes of a LAN reach each other whatever the gateway's rules say: its
// bridge stands for a switch. A kernel with br_netfilter passes bridged frames to the rules for
// routed packets by default.
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
		if err := l.configure(); err != nil {
			return err
		}
		return setSysctls(forwarding)
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
		if p.cores > 0 {
			if h.quota, err = newQuota(p.name, p.cores); err != nil {
				return err
			}
		}
		if err := h.Do(l.configure); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// connectHosts makes the wires and gives hosts their addresses, routes and rules.
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
	if err := l.internet.Do(func() error { return l.configureInternet() }); err != nil {
		return err
	}
	return l.awaitLinks(ctx)
}

// awaitLinks waits until every interface is operational: the kernel drops packets sent before, and
// repeats a lost neighbour solicitation only a second later.
func (l *Lab) awaitLinks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, linkPatience)
	defer cancel()
	for _, h := range append(l.Hosts(), l.internet) {
		if err := h.Do(func() error { return awaitUp(ctx) }); err != nil {
			return fmt.Errorf("%s: %w", h.Name(), err)
		}
	}
	return nil
}

// linkPatience bounds the wait for interfaces. The kernel checks them within a second or so, on a
// busy machine later.
const linkPatience = time.Minute

// awaitUp waits until all interfaces of the calling thread's host are operational.
func awaitUp(ctx context.Context) error {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening netlink: %w", err)
	}
	defer nl.Close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		late, err := firstDown(nl)
		if err != nil || late == "" {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the interface %s to come up: %w", late, ctx.Err())
		}
	}
}

// firstDown returns the name of an interface that is not operational, or "".
func firstDown(nl *netlink.Handle) (string, error) {
	links, err := nl.LinkList()
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return "(changing)", nil // an interface that changed is checked again
	}
	if err != nil {
		return "", fmt.Errorf("listing interfaces: %w", err)
	}
	for _, l := range links {
		if l.Attrs().Flags&net.FlagLoopback == 0 && l.Attrs().OperState != netlink.OperUp {
			return l.Attrs().Name, nil
		}
	}
	return "", nil
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
		switch {
		case p.role == roleNode:
			gw := l.plan.hosts[p.on]
			err = wire(nl, l.hosts[p.name], nodeIface, l.hosts[gw.name], portName(ports[p.on]))
			ports[p.on]++
		case p.on >= 0:
			outer, port := l.plan.hosts[p.on], lanIface
			if outer.outer.shared {
				port = portName(ports[p.on])
				ports[p.on]++
			}
			err = wire(nl, l.hosts[p.name], wanIface, l.hosts[outer.name], port)
		default:
			err = wire(nl, l.hosts[p.name], wanIface, l.internet, p.uplink)
		}
		if err == nil && p.second != nil && p.role == roleGateway {
			err = wire(nl, l.hosts[p.name], secondIface, l.internet, p.second.uplink)
		}
		if err != nil {
			return fmt.Errorf("connecting %s: %w", p.name, err)
		}
	}
	return nil
}

// portName returns the name of the gateway's end of the wire to its i-th node.
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
		for _, a := range p.families() {
			c.address(nodeIface, netip.PrefixFrom(a.addr, a.bits))
			c.route(netip.Prefix{}, p.defaultRoute(a), nodeIface)
		}
		if p.second != nil { // the gateway decides by it where a packet leaves
			c.address(nodeIface, netip.PrefixFrom(p.second.addr, p.second.bits))
		}
	case roleGateway:
		c.gateway(p)
	case roleProvider:
		c.provider(p)
	case rolePublic, roleProxy:
		c.onInternet(p)
	}
	if p.rate > 0 && p.role != roleProvider { // the gateway has the limit there already
		c.limit(wanIface, netlink.HANDLE_ROOT, bucketOf(p.rate, p.burst))
		if p.role == roleGateway && p.second != nil {
			c.limit(secondIface, netlink.HANDLE_ROOT, bucketOf(p.rate, p.burst))
		}
	}
	return c.err
}

// configureInternet routes among the uplinks. As on the real internet, packets to unannounced
// networks are dropped.
func (l *Lab) configureInternet() error {
	c, err := newConfigurer()
	if err != nil {
		return err
	}
	defer c.nl.Close()
	c.up("lo")
	silent := false
	for _, n := range slices.Concat(four.unrouted, six.unrouted) {
		c.do(fmt.Sprintf("dropping packets to %v", n), func() error {
			return c.nl.RouteAdd(&netlink.Route{Dst: ipNet(n), Type: unix.RTN_BLACKHOLE})
		})
	}
	for _, p := range l.plan.hosts {
		if p.uplink == "" {
			continue
		}
		c.uplink(p)
		if p.outer.mtu > 0 {
			c.mtu(p.uplink, p.outer.mtu)
			silent = true
		}
		if p.rate > 0 {
			c.limit(p.uplink, netlink.HANDLE_ROOT, bucketOf(p.rate, p.burst))
		}
		c.secondUplink(p)
	}
	if silent {
		c.do("keeping ICMP errors back", func() error { return loadRules(internetSilence) })
	}
	return c.err
}

// internetSilence makes the internet suppress the error to the sender of a packet too large for a
// provider's small link. It exists only with such a provider, and then applies to all links: the
// error does not say which one was meant.
var internetSilence = "table inet silence {\n chain output { type filter hook output priority filter; policy accept\n" +
	strings.Join(silence, "\n") + "\n }\n}\n"

// uplink sets up the internet's end of a wire.
func (c *configurer) uplink(p hostPlan) {
	for _, a := range p.families() {
		if p.role == roleGateway {
			c.address(p.uplink, netip.PrefixFrom(a.router, a.bits))
		} else {
			c.address(p.uplink, whole(a.router))
			c.route(whole(a.wan), netip.Addr{}, p.uplink)
		}
		for _, n := range a.behind {
			c.route(n, a.wan, p.uplink)
		}
	}
}

// secondUplink sets up the internet's end of a gateway's second wire, if it has one.
func (c *configurer) secondUplink(p hostPlan) {
	s := p.second
	if s == nil {
		return
	}
	c.address(s.uplink, netip.PrefixFrom(s.router, s.bits))
	if p.rate > 0 {
		c.limit(s.uplink, netlink.HANDLE_ROOT, bucketOf(p.rate, p.burst))
	}
	if !s.back {
		for _, n := range s.behind {
			c.route(n, s.wan, s.uplink)
		}
		return
	}
	for _, n := range append([]netip.Prefix{whole(p.wan)}, p.behind...) {
		c.replaceRoute(n, s.wan, s.uplink)
	}
}

// onInternet sets up wan0 of a host whose other end is the internet's.
func (c *configurer) onInternet(p hostPlan) {
	for _, a := range p.families() {
		c.address(wanIface, whole(a.wan))
		c.route(whole(a.router), netip.Addr{}, wanIface)
		c.route(netip.Prefix{}, a.router, wanIface)
	}
}
