package decide

import (
	"github.com/isthmus-grid/isthmus/internal/nat/traverse"
	"github.com/isthmus-grid/isthmus/overlay"
)

// This file judges the techniques that need both ends to act, by what firewalls and NATs let
// through.

// needsBoth rejects techniques that need both ends to act where one end alone can connect.
func (p pair) needsBoth() verdict {
	if p.reached {
		return reject("%s and %s need no more than one of them to dial", p.asker.Site, p.target.Site)
	}
	return verdict{take: true}
}

// symmetric reports whether a NAT gives a node a different outside port for each destination, so
// that the port cannot be known in advance.
func symmetric(n overlay.NAT) bool {
	return n.Mapping == overlay.AddressDependent || n.Mapping == overlay.AddressAndPortDependent
}

// takesAnyone reports whether a packet from a port not known in advance reaches a node of the site:
// the site is open, or its NAT for the packet's protocol filters endpoint-independently.
func takesAnyone(s overlay.SiteProfile, n overlay.NAT) bool {
	return s.Inbound == overlay.InboundOpen || n.Filtering == overlay.EndpointIndependent
}

// sides calls judge with each site as self and the other as peer, and returns the first verdict
// against the technique, or else works.
func (p pair) sides(works verdict, judge func(self, peer overlay.SiteProfile) *verdict) verdict {
	if v := judge(p.asker, p.target); v != nil {
		return *v
	}
	if v := judge(p.target, p.asker); v != nil {
		return *v
	}
	return works
}

func rejectPointer(format string, args ...any) *verdict {
	v := reject(format, args...)
	return &v
}

// simultaneousOpen needs both SYNs to leave and at least one to arrive, or both to meet a
// connection tracker that saw the other's.
func (p pair) simultaneousOpen() verdict {
	works := take("%s and %s each let their own SYN out, and it opens the way for the other's", p.asker.Site, p.target.Site)
	return p.sides(works, func(self, peer overlay.SiteProfile) *verdict {
		switch {
		case self.Egress == overlay.EgressNone || self.Egress.ThroughHTTPProxy():
			return rejectPointer("%s, which carries no SYN of its own", egressLimit(self))
		case self.Egress.OnlyTLS():
			return rejectPointer("%s, and a link that two nodes open begins otherwise", egressLimit(self))
		case stateless(self) && stateless(peer):
			return rejectPointer("%s and %s both refuse every SYN, whichever end sends first", self.Site, peer.Site)
		case symmetric(self.NAT) && !takesAnyone(peer, peer.NAT):
			return rejectPointer("%s's NAT takes another port for every destination, so %s cannot aim at it", self.Site, peer.Site)
		case peer.Egress == overlay.Egress443 && self.HighPortsOnly:
			return rejectPointer("%s, and the %s of %s may not bind that port (it has no CAP_NET_BIND_SERVICE)", egressLimit(peer), listener(self), self.Site)
		case self.Egress == overlay.Egress443 && peer.NAT.Translates() && !peer.NAT.KeepsPort:
			return rejectPointer("%s, and %s's NAT takes another", egressLimit(self), peer.Site)
		}
		return nil
	})
}

// stateless reports whether the site refuses bare SYNs by their flags alone. A range that it opens does not
// help: the port from which a node dials may lie outside, and the two ends take the site for closed, too (package simopen).
func stateless(s overlay.SiteProfile) bool {
	return s.Filter == overlay.FilterStateless && s.Inbound != overlay.InboundOpen
}

// traversing needs raw sockets at both ends, a SYN that leaves the asker's site and no reset that
// answers it before the target's helper can.
func (p pair) traversing() verdict {
	level, why, ok := traverse.Choose(p.asker, p.target)
	if !ok {
		return reject("%s", why)
	}
	return take("%s, so that a carried SYN gets through (%v)", why, level)
}

// minPunchedMTU is the smallest MTU with which QUIC works: its datagrams have 1200 bytes at least (RFC 9000, section 14),
// behind the headers of IPv4 and UDP.
const minPunchedMTU = 1200 + 20 + 8

// minUDPRate is the lowest UDP rate, in bit/s, at which hole punching is eligible: below it a relay
// is faster.
const minUDPRate = 20_000_000

// holePunching needs datagrams in both directions and a mapping that the peer can send to.
// Stateless filters refuse only TCP.
func (p pair) holePunching() verdict {
	works := take("datagrams leave %s and %s, and open the way for the other's", p.asker.Site, p.target.Site)
	if p.behindOneNAT() {
		works = take("%s: datagrams pass only if it leads back inside (hairpinning), which is not measured, or if each site looks for the other's network behind it (private, in the settings of its daemons)", p.oneNAT())
	}
	return p.sides(works, func(self, peer overlay.SiteProfile) *verdict {
		takesAll := takesAnyone(peer, peer.DatagramNAT()) || !peer.DatagramNAT().Translates() && peer.Filter <= overlay.FilterStateless
		switch {
		case !self.UDP:
			return rejectPointer("%s lets no UDP through", self.Site)
		case self.UDPRate > 0 && self.UDPRate < minUDPRate:
			return rejectPointer("%s lets datagrams through at %.3g Mb/s only, and a relay is faster", self.Site, float64(self.UDPRate)/1e6)
		case self.MTU > 0 && self.MTU < minPunchedMTU:
			return rejectPointer("packets of %d bytes are the largest that pass at %s, and QUIC needs %d", self.MTU, self.Site, minPunchedMTU)
		case symmetric(self.DatagramNAT()) && !takesAll:
			return rejectPointer("%s's NAT takes another UDP port for every destination, and %s takes no datagram from a port it did not write to", self.Site, peer.Site)
		}
		return nil
	})
}
