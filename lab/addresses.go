package lab

import "net/netip"

// A network is a part of the address plan. If at is not 0, that byte of an address holds a site's
// number; the last byte holds a host's.
type network struct {
	first netip.Addr
	at    int
}

func (n network) host(site, host byte) netip.Addr {
	b := n.first.AsSlice()
	if n.at > 0 {
		b[n.at] = site
	}
	b[len(b)-1] = host
	a, _ := netip.AddrFromSlice(b)
	return a
}

// A family is the address plan of one version of IP, as described in the package comment.
type family struct {
	sites     network // all LANs
	links     network // wires between a gateway and its provider or the internet
	providers network // providers' routers; the host number is the site's
	publics   network // hosts on the internet; 1 is the internet namespace itself
	bits      int     // of the prefix of one LAN or wire
	unrouted  []netip.Prefix
}

// RFC 1918, 6598 and 5737 for IPv4; RFC 3849 for IPv6.
var (
	four = family{
		sites:     network{netip.MustParseAddr("10.0.0.0"), 1},
		links:     network{netip.MustParseAddr("100.64.0.0"), 2},
		providers: network{netip.MustParseAddr("198.51.100.0"), 0},
		publics:   network{netip.MustParseAddr("203.0.113.0"), 0},
		bits:      24,
		unrouted:  []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10")},
	}
	six = family{
		sites:     network{netip.MustParseAddr("2001:db8::"), 5},
		links:     network{netip.MustParseAddr("2001:db8:ff00::"), 7},
		providers: network{netip.MustParseAddr("2001:db8:fffe::"), 0},
		publics:   network{netip.MustParseAddr("2001:db8:ffff::"), 0},
		bits:      64,
		unrouted:  []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")},
	}
)

// fourSecond is the address plan of sites' second uplinks.
var fourSecond = family{
	sites: network{netip.MustParseAddr("10.0.1.0"), 1},
	links: network{netip.MustParseAddr("100.65.0.0"), 2},
	bits:  24,
}

// addrs holds a host's addresses and routes in one version of IP.
type addrs struct {
	addr    netip.Addr // what other hosts of its site use; on lan0 of a gateway and provider
	wan     netip.Addr // on wan0; not valid for a node
	router  netip.Addr // the default route; not valid if there is none
	bits    int        // of the prefix of a LAN or wire
	behind  []netip.Prefix
	inside  []netip.Prefix // of a provider: the LAN, if its gateway does not hide it
	nextHop netip.Addr     // a provider's next hop to those: its gateway
}

// overlapping is the number of the LAN shared by all sites whose preset overlaps.
const overlapping = 250

// gateway returns the addresses of the gateway of a site and a LAN, which have the same number
// unless the site's preset overlaps. If known, others route to the LAN behind it.
func (f family) gateway(site, lan byte, known bool) addrs {
	a := addrs{addr: f.sites.host(lan, 1), wan: f.links.host(site, 2), router: f.links.host(site, 1), bits: f.bits}
	if known {
		a.behind = []netip.Prefix{netip.PrefixFrom(f.sites.host(lan, 0), f.bits)}
	}
	return a
}

// node returns the address of the i-th node, from 0, of a LAN.
func (f family) node(lan byte, i int) netip.Addr { return f.sites.host(lan, byte(11+i)) }

// nodeBehind returns the addresses of a node with address addr; a hidden one has no route out.
func (gw addrs) nodeBehind(addr netip.Addr, hidden bool) addrs {
	a := addrs{addr: addr, bits: gw.bits}
	if !hidden {
		a.router = gw.addr
	}
	return a
}

// provider returns the addresses of the router before a site's gateway. Unless it translates,
// others route to the networks behind it: the wire to the gateway and the LAN.
func (f family) provider(site byte, gw addrs, translates bool) addrs {
	a := addrs{
		addr: gw.router, wan: f.providers.host(0, site), router: f.publics.host(0, 1), bits: f.bits, inside: gw.behind, nextHop: gw.wan,
	}
	if !translates {
		a.behind = append([]netip.Prefix{netip.PrefixFrom(f.links.host(site, 0), f.bits)}, gw.behind...)
	}
	return a
}

// publicHost returns the addresses of the n-th host on the internet.
func (f family) publicHost(n byte) addrs {
	a := f.publics.host(0, n)
	return addrs{addr: a, wan: a, router: f.publics.host(0, 1), bits: f.bits}
}

// whole returns the prefix that contains only a.
func whole(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// linkLocal returns the link-local address (RFC 4291, section 2.5.6) that corresponds to an IPv6
// address.
func linkLocal(a netip.Addr) netip.Addr {
	b, of := [16]byte{0: 0xfe, 1: 0x80}, a.As16()
	copy(b[8:12], of[4:8])
	copy(b[12:], of[12:])
	return netip.AddrFrom16(b)
}
