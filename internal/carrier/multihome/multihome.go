// Package multihome finds the source addresses by which a host with several uplinks can reach a
// destination, in addition to the one that the kernel selects (RFC 6724). The kernel uses its
// routes, which stay as they are when the network behind an uplink fails; a dialler that has waited
// long enough tries the others.
//
// It dials nothing, knows nothing about the destination, and has no state.
package multihome

import (
	"net"
	"net/netip"
	"slices"
)

// A Source is an address of this host and its interface. A socket must be bound to both: one alone
// lets packets leave by another interface where the routes do not depend on source addresses.
type Source struct {
	Addr      netip.Addr
	Interface string
}

// An own is an address of this host with the prefix of its interface.
type own struct {
	Source
	prefix netip.Prefix
}

// Others returns the sources, other than the one that the kernel selects, from which this host has
// a route to a destination: none on most hosts, and none to destinations in its own networks.
func Others(to netip.Addr) []Source {
	to = to.Unmap()
	selected, err := Selected(to)
	if err != nil { // no route at all, but perhaps one from a certain source
		selected = netip.Addr{}
	}
	all, err := addresses()
	if err != nil {
		return nil
	}
	return choose(to, selected, all, func(s Source) bool { return routed(to, s) })
}

// choose returns the sources to try other than the selected one: of the destination's IP version,
// one per network, and none if the destination is on a network of this host.
func choose(to, selected netip.Addr, all []own, routed func(Source) bool) (sources []Source) {
	if to.IsLoopback() || to.IsLinkLocalUnicast() {
		return nil
	}
	var networks []netip.Prefix // already used for packets
	for _, o := range all {
		if o.Addr == selected {
			networks = append(networks, o.prefix.Masked())
		}
		if o.prefix.Contains(to) {
			return nil
		}
	}
	for _, o := range all {
		network := o.prefix.Masked()
		if o.Addr.Is4() != to.Is4() || !o.Addr.IsGlobalUnicast() || slices.Contains(networks, network) || !routed(o.Source) {
			continue
		}
		networks = append(networks, network)
		sources = append(sources, o.Source)
	}
	return sources
}

// Selected returns the source that the kernel selects for a destination, and an error without a
// route there.
func Selected(to netip.Addr) (netip.Addr, error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9))) // sends nothing
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// anywhere are addresses that only default routes, or their equivalent, lead to. Nothing is sent
// there.
var anywhere = map[bool]netip.Addr{false: netip.MustParseAddr("1.0.0.0"), true: netip.MustParseAddr("2000::1")}

// OtherVersion returns the source address of this host's packets to other sites over the IP version
// that is not ip's; not valid without one.
func OtherVersion(ip netip.Addr) netip.Addr {
	other, err := Selected(anywhere[ip.Unmap().Is4()])
	if err != nil || !other.IsGlobalUnicast() || other.Is6() && other.IsPrivate() {
		return netip.Addr{}
	}
	return other
}

// Beside returns the address of this host, for other sites, over the IP version that is not ip's, which
// is one of this host's, too; not valid without one. A private IPv4 address beside a public IPv6 one is
// none: a NAT probably translates it, and at other sites it is another host's.
func Beside(ip netip.Addr) netip.Addr { return beside(ip.Unmap(), OtherVersion(ip)) }

func beside(ip, other netip.Addr) netip.Addr {
	if other.IsPrivate() && !ip.IsPrivate() {
		return netip.Addr{}
	}
	return other
}

// Unreachable returns the kind of an address to which no other host can send, such as "loopback"; "" for
// other addresses.
func Unreachable(ip netip.Addr) string {
	switch {
	case ip.IsLoopback(), ip.Unmap().IsLoopback():
		return "loopback"
	case ip.IsLinkLocalUnicast():
		return "link-local"
	case ip.IsUnspecified():
		return "unspecified"
	case ip.IsMulticast():
		return "multicast"
	}
	return ""
}

// Outward returns ip, an address of this host; or in place of one to which no other host can send, as
// when the daemon above is on this host, too, the source address of this host's packets to other sites,
// or else any of its addresses, of ip's IP version if there is one. A host that has none is alone, and
// ip will do.
func Outward(ip netip.Addr) netip.Addr {
	if Unreachable(ip) == "" {
		return ip
	}
	var candidates []netip.Addr
	for _, six := range []bool{ip.Unmap().Is6(), ip.Unmap().Is4()} {
		if source, err := Selected(anywhere[six]); err == nil {
			candidates = append(candidates, source)
		}
	}
	if all, err := addresses(); err == nil {
		for _, o := range all {
			candidates = append(candidates, o.Addr)
		}
	}
	return outward(ip, candidates)
}

// outward chooses Outward's result from candidates, the preferred first.
func outward(ip netip.Addr, candidates []netip.Addr) netip.Addr {
	best := ip
	for _, c := range candidates {
		switch {
		case Unreachable(c) != "":
		case c.Is6() == ip.Unmap().Is6():
			return c
		case best == ip:
			best = c
		}
	}
	return best
}

// addresses returns the addresses of all interfaces that are up.
func addresses() (all []own, err error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // the interface is gone
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				all = append(all, own{Source{p.Addr(), i.Name}, p})
			}
		}
	}
	return all, nil
}

// Prefixes returns this host's addresses with their networks, as they are now.
func Prefixes() (all []netip.Prefix) {
	addresses, _ := net.InterfaceAddrs() // without them no network is taken for the host's own
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p)
		}
	}
	return all
}
