package punch

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-grid/isthmus/overlay"
)

// permits returns why an address must not be a candidate, or nil.
func (c *Config) permits(a netip.Addr) error {
	why := ""
	switch {
	case a.IsUnspecified():
		why = "unspecified"
	case a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		why = "for many hosts"
	case a.IsLinkLocalUnicast():
		why = "link-local"
	case a.IsLoopback() && !c.AllowLoopback:
		why = "loopback"
	case slices.ContainsFunc(c.Forbidden, func(p netip.Prefix) bool { return p.Contains(a) }):
		why = "in a forbidden network"
	default:
		return nil
	}
	return fmt.Errorf("%v is %s: %w", a, why, overlay.ErrForbidden)
}

// permitsPeer is permits for the peer's candidates.
func (c *Config) permitsPeer(a netip.Addr) error {
	err := c.permits(a)
	if err == nil && c.Permit != nil {
		err = c.Permit(a)
	}
	return err
}

// chooseTargets returns those of the peer's candidates that this end sends to:
//   - not what permits rejects, and nothing of an IP version that own lacks;
//   - a host candidate only when it is also the peer's public address, or both ends have
//     the same public address. Otherwise it is a private address behind another NAT, and
//     may belong to another host here;
//   - each address once.
//
// The error names the reasons when none is left.
func chooseTargets(own, peer []Candidate, permits func(netip.Addr) error) ([]Candidate, error) {
	var targets []Candidate
	var first error
	refuse := func(c Candidate, err error) {
		if first == nil {
			first = fmt.Errorf("%v: %w", c, err)
		}
	}
	for _, c := range peer {
		switch a := c.Addr.Addr(); {
		case permits(a) != nil:
			refuse(c, permits(a))
		case !slices.ContainsFunc(own, func(o Candidate) bool { return o.Addr.Addr().Is4() == a.Is4() }):
			refuse(c, fmt.Errorf("this end has no address of its IP version: %w", overlay.ErrUnreachable))
		case c.Kind == Host && hidden(a, own, peer):
			refuse(c, fmt.Errorf("a private address behind another gateway: %w", overlay.ErrUnreachable))
		case !slices.ContainsFunc(targets, func(t Candidate) bool { return t.Addr == c.Addr }):
			targets = append(targets, c)
		}
	}
	switch {
	case len(targets) > 0:
		return targets, nil
	case first == nil:
		return nil, fmt.Errorf("the peer has no candidate: %w", overlay.ErrUnreachable)
	}
	return nil, fmt.Errorf("none of the peer's %d candidates can be used: %w", len(peer), first)
}

// hidden reports whether the peer's host address a is behind a NAT that this end does not share.
// The host address of a peer that asked no STUN server is not considered hidden.
func hidden(a netip.Addr, own, peer []Candidate) bool {
	knows := false
	for _, m := range peer {
		if m.Kind != Mapped || m.Addr.Addr().Is4() != a.Is4() {
			continue
		}
		knows = true
		if m.Addr.Addr() == a {
			return false
		}
		for _, o := range own {
			if o.Kind == Mapped && o.Addr.Addr() == m.Addr.Addr() {
				return false
			}
		}
	}
	return knows
}
