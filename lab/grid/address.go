package grid

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-grid/isthmus/lab"
)

// This file says which of a host's addresses the daemons of a grid use.

// addr returns the address at which a host is reached from its site, or from everywhere for a
// public host.
func (g *Grid) addr(h *lab.Host) netip.Addr {
	if g.cfg.IPv6 {
		return h.Addr6()
	}
	return h.Addr()
}

// wan returns the address at which a gateway is reached from other sites.
func (g *Grid) wan(h *lab.Host) netip.Addr {
	if g.cfg.IPv6 {
		return h.WANAddr6()
	}
	return h.WANAddr()
}

// at returns addr with a port, in the form of settings.
func (g *Grid) at(h *lab.Host, port uint16) string {
	return netip.AddrPortFrom(g.addr(h), port).String()
}

// called returns how daemons name a port of a public host in their settings.
func (g *Grid) called(h *lab.Host, port uint16) string {
	if !g.cfg.Names {
		return g.at(h, port)
	}
	site, host, _ := cut(h.Name())
	return fmt.Sprintf("%s.%s:%d", host, site, port)
}

// dual reports whether public daemons have both versions of IP: a site has IPv6, and not all use it
// alone.
func (g *Grid) dual() bool {
	return !g.cfg.IPv6 && slices.ContainsFunc(g.Lab.Hosts(), func(h *lab.Host) bool { return h.Role() == "gateway" && h.Addr6().IsValid() })
}

// public returns the addresses of a public host's port, in each version of IP that is needed.
func (g *Grid) public(h *lab.Host, port uint16) []string {
	all := []string{g.at(h, port)}
	if g.dual() {
		all = append(all, netip.AddrPortFrom(h.Addr6(), port).String())
	}
	return all
}

// everywhere returns the address on which a public daemon listens.
func (g *Grid) everywhere(port uint16) string {
	if g.cfg.IPv6 || g.dual() {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), port).String()
	}
	return netip.AddrPortFrom(netip.IPv4Unspecified(), port).String()
}

// checkHosts checks that every host that is to run a daemon has the address it needs.
func (g *Grid) checkHosts() error {
	if !g.cfg.IPv6 {
		return nil
	}
	for _, h := range g.Lab.Hosts() {
		if h.Role() != "provider" && !h.Addr6().IsValid() {
			return fmt.Errorf("a grid on IPv6: %s has no IPv6 address; its preset is %s (with ipv6: true the lab gives one to sites without a NAT)", h.Name(), h.Preset())
		}
	}
	return nil
}
