package frontal

import (
	"fmt"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-grid/isthmus/frontal/gateway"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// rule returns the settings' rule for addresses that others name.
func (c Config) rule() netrule.Rule { return netrule.Rule{Deny: c.Deny, Private: c.Private} }

// networks returns those that this gateway is in, where no process of another site is looked for; none for a grid on
// one host, on whose networks all sites are.
func (c Config) networks() []netip.Prefix {
	if !c.hasOtherHosts() {
		return nil
	}
	return netrule.Networks(multihome.Prefixes())
}

// gateway returns the settings of the gateway.
func (c Config) gateway() gateway.Settings {
	return gateway.Settings{Rule: c.rule().With(c.networks()), Dial: c.Dial, OneHost: !c.hasOtherHosts()}
}

// ownAddress returns why the address at which a helper says it listens is not accepted as its own,
// or must not be dialled, since the gateway would dial it for others. from is the source address of
// the helper's session. An address of this host, for example, would lead others into it.
func (f *Frontal) ownAddress(id control.Identity, from netip.Addr, p overlay.AccessPoint) error {
	if !p.Local.IsValid() {
		return nil
	}
	ip, from := p.Local.Addr().Unmap().WithZone(""), from.Unmap().WithZone("")
	cfg := f.config()
	if ip != from {
		if kind := gateway.NeverDialled(ip); kind != "" {
			return f.forbidden("%v registers %v at %v, a %s address that is not its own", id, p.Process, p.Local, kind)
		}
		here := from.IsLoopback() && carrier.HasAddress(ip) // a helper on this host
		if !here && !slices.ContainsFunc(cfg.NodeNetworks, func(n netip.Prefix) bool { return n.Contains(ip) }) {
			return f.forbidden("%v registers %v at %v; its session comes from %v, and node_networks does not list another address of it", id, p.Process, p.Local, from)
		}
	}
	if err := cfg.rule().Denied(ip); err != nil {
		return fmt.Errorf("%s: %v at %v: %w", f.who, p.Process, id.Node(), err)
	}
	return nil
}

// declared is the site's profile as sent to the broker: with the gateway's own public address among
// its networks, and with the private networks in which the site looks for others. The broker is told of
// where nodes were seen, too (seenNodes).
func (f *Frontal) declared() overlay.SiteProfile {
	p := f.profile()
	p.Private = f.config().Private
	p.PrivateGiven = len(p.Private) <= overlay.MaxNetworks // more are not sent
	if ip := f.gateway.PublicAddr.Addr(); f.gateway.PublicAddr.IsValid() && !p.Declares(ip) {
		p.Networks = append(slices.Clip(p.Networks), netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()))
	}
	return p
}

// askerInside returns why a signalling request from a process of this site contradicts what the
// site itself knows: the target's helper would dial the address on the site's own network.
func (f *Frontal) askerInside(in *controlpb.Signal) error {
	if overlay.SiteID(in.AskerSite) != f.site || in.ConnectAddress == "" {
		return nil
	}
	name, err := control.ProcessFromPB(in.Asker)
	if err != nil {
		return fmt.Errorf("%s: %w: asker: %w", f.who, wire.ErrMalformed, err)
	}
	point, ok := f.registry.Point(name)
	if !ok || point.Local.String() != in.ConnectAddress {
		return f.forbidden("%v is to be dialled back at %s, where this site has no such process", name, in.ConnectAddress)
	}
	return nil
}

// insideOf removes the inside address from the broker's answer about a process, unless this site
// itself has the process there: no address on the own network is dialled because another site names
// it. The answer is shared, so a changed one is a copy.
func (f *Frontal) insideOf(m *controlpb.AccessPoint) *controlpb.AccessPoint {
	if m.GetLocal() == "" {
		return m
	}
	if overlay.SiteID(m.Site) == f.site {
		name, err := control.ProcessFromPB(m.Process)
		point, ok := f.registry.Point(name)
		if err == nil && ok && point.Local.String() == m.Local {
			return m
		}
	}
	stripped := proto.Clone(m).(*controlpb.AccessPoint)
	stripped.Local = ""
	return stripped
}
