package frontal

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/isthmus-grid/isthmus/frontal/gateway"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/overlay"
)

// seenNodes are the addresses outside profile.networks at which nodes of this site are reached from others, as after a
// move: each is the one from which the frontal itself sees its node's session, so that no node names another host's. The
// zero value is ready.
type seenNodes struct {
	mu sync.Mutex
	at map[seenNode]netip.Addr
}

// seenNode is a node over one version of IP.
type seenNode struct {
	name string
	six  bool
}

// note records that a node is to be reached at public and has a session from an address. It reports whether other sites
// may reach that node there, and whether the broker does not know of the address yet. It only counts beside networks of
// its kind that the settings declare: without one the admin has no node dialled. connected returns the nodes that have a
// session; the others are forgotten where there is no room.
func (n *seenNodes) note(declared overlay.SiteProfile, node string, public, from netip.Addr, connected func() []string) (may, isNew bool) {
	ip := public.Unmap().WithZone("")
	kind := func(p netip.Prefix) bool {
		return p.Addr().Is4() == ip.Is4() && netrule.IsPrivate(p.Addr()) == netrule.IsPrivate(ip)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	key := seenNode{node, ip.Is6()}
	if ip != from.Unmap().WithZone("") || gateway.NeverDialled(ip) != "" || declared.GatewayOnly || declared.Declares(ip) || !slices.ContainsFunc(declared.Networks, kind) {
		delete(n.at, key)
		return false, false
	}
	old, known := n.at[key]
	if old == ip {
		return true, false
	}
	full := func() bool { return !known && len(n.at) >= overlay.MaxNetworks-len(declared.Networks) }
	if full() {
		names := connected()
		maps.DeleteFunc(n.at, func(other seenNode, _ netip.Addr) bool { return !slices.Contains(names, other.name) })
	}
	if full() {
		return false, false
	}
	if n.at == nil {
		n.at = map[seenNode]netip.Addr{}
	}
	n.at[key] = ip
	return true, true
}

// with returns a profile that also has the addresses among its networks, as many as a broker takes.
func (n *seenNodes) with(p overlay.SiteProfile) overlay.SiteProfile {
	n.mu.Lock()
	defer n.mu.Unlock()
	p.Networks = slices.Clip(p.Networks)
	for _, ip := range slices.SortedFunc(maps.Values(n.at), func(a, b netip.Addr) int { return cmp.Compare(a.String(), b.String()) }) {
		if len(p.Networks) < overlay.MaxNetworks && !p.Declares(ip) {
			p.Networks = append(p.Networks, netip.PrefixFrom(ip, ip.BitLen()))
		}
	}
	return p
}

// isReachedAt reports whether other sites may dial a node of the frontal's site at an address: one that the settings
// declare, or that from which its session comes.
func isReachedAt(f *Frontal, id control.Identity, public, from netip.Addr) bool {
	declared := f.declared()
	may, isNew := f.nodesSeen.note(declared, id.Name, public, from, func() (names []string) {
		for _, s := range f.registry.Sessions() {
			names = append(names, s.Peer().Name)
		}
		return names
	})
	if isNew {
		f.log.Warn("a node is reached at an address in none of profile.networks, from which its session comes; correct profile.networks, for nodes whose session comes from elsewhere",
			"node", id.Node().String(), "address", public.String())
		f.joinAgain()
	}
	return may || declared.Declares(public)
}
