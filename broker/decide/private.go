package decide

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-grid/isthmus/internal/policy/netrule"
	"github.com/isthmus-grid/isthmus/overlay"
)

// hiddenAddress returns why a technique cannot use the addresses of one of the sites, or "". A private address is
// another host's in each network, so that daemons contact none of another site where their settings do not list its
// network (package netrule). Relays meet at the proxy's address.
func (p pair) hiddenAddress(t overlay.Technique) string {
	switch kind := t.Kind(); {
	case p.sameSite(), kind == overlay.ByProxy:
		return ""
	case kind == overlay.AskerDials:
		return notSought(p.asker, p.target)
	case kind == overlay.TargetDials:
		return notSought(p.target, p.asker)
	}
	if why := notSought(p.asker, p.target); why != "" {
		return why
	}
	return notSought(p.target, p.asker)
}

// notSought returns why the daemons of one site contact none of another's addresses, or "" if they do, or if either is not
// known. An address in the other's networks may do where the one that was measured does not.
func notSought(by, at overlay.SiteProfile) string {
	if !by.PrivateGiven || !at.SeenAt.IsValid() {
		return ""
	}
	rule := netrule.Rule{Private: by.Private}
	sought := func(n netip.Prefix) bool { return n.Addr().Is4() && rule.Foreign(n.Addr()) == nil }
	if rule.Foreign(at.SeenAt) == nil || slices.ContainsFunc(at.Networks, sought) {
		return ""
	}
	return fmt.Sprintf("others see %s at %v, a private address, and %s looks for no site in that network (private, in the settings of its daemons, lists where it does)",
		at.Site, at.SeenAt, by.Site)
}
