package broker

import (
	"net/netip"
	"slices"

	"github.com/isthmus-grid/isthmus/broker/registry"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
)

// This file decides by which addresses a broker names itself and its proxies as reflectors. Who asks may
// have either version of IP or both, one of them may lead nowhere from there, and a NAT's mapping is
// seen over IPv4 alone: both versions are named wherever a host has them.

// maxReflectors bounds each list of an answer.
const maxReflectors = 16

// A reflectorAddress is where a reflector answers over one version of IP.
type reflectorAddress struct {
	tcp  netip.AddrPort
	stun netip.AddrPort // of its STUN server; not valid without one
}

// ofBothVersions returns an address of each version of IP, if there is one, that of own first: one of
// those that the admin set, or else own and other, which is not valid if the host has no other.
func ofBothVersions(set []netip.AddrPort, own, other netip.AddrPort) (all []netip.AddrPort) {
	first := own.Addr().Unmap().Is4()
	for _, usual := range []struct {
		addr netip.AddrPort
		is4  bool
	}{{own, first}, {other, !first}} {
		if i := ofVersion(set, usual.is4); i >= 0 {
			usual.addr = set[i]
		}
		if usual.addr.Addr().IsValid() {
			all = append(all, usual.addr)
		}
	}
	return all
}

// ofVersion returns the index of the first address of a version of IP, or -1.
func ofVersion(addrs []netip.AddrPort, is4 bool) int {
	return slices.IndexFunc(addrs, func(a netip.AddrPort) bool { return a.Addr().Unmap().Is4() == is4 })
}

// proxyAddresses returns a proxy's first address of each version of IP, IPv4 before IPv6. Its STUN
// server's port is that of all its addresses unless the admin binds it to one; then nothing listens at
// the other.
func proxyAddresses(p registry.Proxy) (all []reflectorAddress) {
	for _, is4 := range []bool{true, false} {
		i := ofVersion(p.Addresses, is4)
		if i < 0 {
			continue
		}
		a := reflectorAddress{tcp: p.Addresses[i]}
		switch {
		case !p.STUN.IsValid():
		case p.STUN.Addr().Unmap().Is4() == is4:
			a.stun = p.STUN
		default:
			a.stun = netip.AddrPortFrom(a.tcp.Addr(), p.STUN.Port())
		}
		all = append(all, a)
	}
	return all
}

// listReflectors names the broker, by its address for the peer that asks before the other one, and its
// proxies. An IPv6 address of a host that is named by IPv4 already goes to the lists for that.
func listReflectors(own []reflectorAddress, proxies []registry.Proxy) *controlpb.ReflectorsResponse {
	resp := new(controlpb.ReflectorsResponse)
	add := func(list *[]string, a netip.AddrPort) {
		if a.IsValid() && len(*list) < maxReflectors {
			*list = append(*list, a.String())
		}
	}
	name := func(host []reflectorAddress) {
		for i, a := range host {
			tcp, stun := &resp.Tcp, &resp.Stun
			if i > 0 && a.tcp.Addr().Is6() {
				tcp, stun = &resp.Tcp6, &resp.Stun6
			}
			add(tcp, a.tcp)
			add(stun, a.stun)
		}
	}
	name(own)
	for _, a := range own {
		add(&resp.Own, a.tcp)
	}
	for _, p := range proxies {
		name(proxyAddresses(p))
	}
	return resp
}
