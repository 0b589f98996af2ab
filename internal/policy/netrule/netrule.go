// Package netrule decides which addresses a host may contact at the request of others: by its
// admin's list of denied networks, and by the rules that a process of another site is not contacted
// on private networks, which are probably the local ones, nor on those that the host is in. It is pure: it resolves nothing and dials
// nothing.
package netrule

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-grid/isthmus/overlay"
)

// translated are the IPv6 networks that represent IPv4 addresses, behind which a private or denied
// one could hide: NAT64 (RFC 6052, and a network's own prefixes, RFC 8215), 6to4 (RFC 3056) and IPv4-compatible ones (RFC 4291, section
// 2.5.5.1).
var translated = []netip.Prefix{
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("::/96"),
}

// Rule is the rule of one host's settings. The zero Rule denies nothing, and knows no private
// network with other sites.
type Rule struct {
	Deny    []netip.Prefix // never contacted, at anyone's request
	Private []netip.Prefix // where processes of other sites may be, although private or the host's own
	Own     []netip.Prefix // those that the host and its site's gateway are in: behind the site's firewall, whose neighbours others must not have dialled
}

// Networks returns those of a host's addresses that have other hosts.
func Networks(addresses []netip.Prefix) (own []netip.Prefix) {
	for _, p := range addresses {
		if ip := p.Addr(); !p.IsSingleIP() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() {
			own = append(own, p.Masked())
		}
	}
	return own
}

// private are the networks whose addresses mean another host in each site: RFC 1918, RFC 6598
// (shared by a provider's customers), RFC 4193 and, before that, RFC 3513 (site-local).
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("fec0::/10"),
}

// IsPrivate reports whether an address means another host in each site.
func IsPrivate(ip netip.Addr) bool { return index(private, ip.Unmap().WithZone("")) >= 0 }

// With returns the rule with further networks of the site.
func (r Rule) With(own []netip.Prefix) Rule {
	r.Own = slices.Concat(r.Own, own)
	return r
}

// Denied fails with overlay.ErrForbidden for an address that the settings deny.
func (r Rule) Denied(ip netip.Addr) error {
	ip = ip.Unmap().WithZone("")
	if i := index(r.Deny, ip); i >= 0 {
		return fmt.Errorf("%w: %v lies in %v, which this host's settings deny (deny)", overlay.ErrForbidden, ip, r.Deny[i])
	}
	return nil
}

// Without returns the list, which it may modify, without the address:port texts that the settings
// deny.
func (r Rule) Without(list []string) []string {
	return slices.DeleteFunc(list, func(text string) bool {
		a, err := netip.ParseAddrPort(text)
		return err == nil && r.Denied(a.Addr()) != nil
	})
}

// Foreign is Denied for the address that a process of another site, or a daemon on its behalf,
// gives as its own. It also fails with overlay.ErrForbidden for one that represents an IPv4
// address, and for a private one or one of the host's own networks, unless the settings declare that other
// sites are there: of an own network by itself or a part of it, as a larger one may have been meant without it.
func (r Rule) Foreign(ip netip.Addr) error {
	if err := r.Denied(ip); err != nil {
		return err
	}
	ip = ip.Unmap().WithZone("")
	if StandsFor4(ip) {
		return fmt.Errorf("%w: %v stands for an IPv4 address, which is to be named itself", overlay.ErrForbidden, ip)
	}
	if i := index(private, ip); i >= 0 && index(r.Private, ip) < 0 {
		return fmt.Errorf("%w: %v lies in %v: processes of other sites are not looked for on private networks, but on those that the setting private lists",
			overlay.ErrForbidden, ip, private[i])
	}
	declared := func(own netip.Prefix) bool {
		return slices.ContainsFunc(r.Private, func(p netip.Prefix) bool { return p.Contains(ip) && p.Bits() >= own.Bits() })
	}
	if i := slices.IndexFunc(r.Own, func(own netip.Prefix) bool { return own.Contains(ip) && !declared(own) }); i >= 0 {
		return fmt.Errorf("%w: %v lies in %v, a network of this host or of its site's gateway: processes of other sites are not looked for there unless the setting private lists it, or a part of it",
			overlay.ErrForbidden, ip, r.Own[i])
	}
	return nil
}

// StandsFor4 reports whether an IPv6 address represents an IPv4 address, behind which a refused one
// could hide. ::1 is the loopback.
func StandsFor4(ip netip.Addr) bool { return index(translated, ip) >= 0 && !ip.IsLoopback() }

// Translated returns the networks of the addresses that represent IPv4 addresses.
func Translated() []netip.Prefix { return slices.Clone(translated) }

func index(in []netip.Prefix, ip netip.Addr) int {
	return slices.IndexFunc(in, func(p netip.Prefix) bool { return p.Contains(ip) })
}
