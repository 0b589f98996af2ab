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
// network (package netrule); and one NAT before both sites need not lead back inside (hairpinning). Relays meet at the
// proxy's address.
func (p pair) hiddenAddress(t overlay.Technique) string {
	hidden := notSought
	if p.behindOneNAT() {
		hidden = p.notInside(t.Kind())
	}
	switch kind := t.Kind(); {
	case p.sameSite(), kind == overlay.ByProxy:
		return ""
	case kind == overlay.AskerDials:
		return hidden(p.asker, p.target)
	case kind == overlay.TargetDials:
		return hidden(p.target, p.asker)
	}
	if why := hidden(p.asker, p.target); why != "" {
		return why
	}
	return hidden(p.target, p.asker)
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

// behindOneNAT reports whether others see both sites at the same address of a NAT.
func (p pair) behindOneNAT() bool {
	return p.asker.NAT.Translates() && p.target.NAT.Translates() && p.asker.SeenAt.IsValid() && p.asker.SeenAt == p.target.SeenAt
}

// oneNAT names the NAT before both sites.
func (p pair) oneNAT() string {
	return fmt.Sprintf("one NAT is before %s and %s, which others see at %v", p.asker.Site, p.target.Site, p.asker.SeenAt)
}

// notInside returns a function that returns why one of two sites behind one NAT does not meet the other there, or "". A
// dial goes to an address in the other's networks. Hole punching tries the NAT's address and the node's own, which the
// broker does not know: it is left out only where neither is contacted. The other techniques know the NAT's alone.
func (p pair) notInside(kind overlay.Kind) func(by, at overlay.SiteProfile) string {
	return func(by, at overlay.SiteProfile) string {
		rule := netrule.Rule{Private: by.Private}
		inside := func(n netip.Prefix) bool {
			return n.Addr().Is4() && !n.Contains(at.SeenAt) && rule.Foreign(n.Addr()) == nil
		}
		one := p.oneNAT() + ", and it is not known to let in what comes from behind it (hairpinning)"
		switch {
		case kind == overlay.BothSend && len(by.Private) == 0:
			return notSought(by, at)
		case kind == overlay.BothDial:
			return fmt.Sprintf("%s; this technique goes by no other address", one)
		case kind != overlay.BothSend && !slices.ContainsFunc(at.Networks, inside):
			return fmt.Sprintf("%s; of the networks that %s declares (profile.networks) there is none behind it where %s looks for sites (private, in the settings of its daemons)", one, at.Site, by.Site)
		}
		return ""
	}
}
