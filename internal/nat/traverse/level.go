package traverse

import (
	"fmt"

	"github.com/isthmus-grid/isthmus/overlay"
)

// A Level is what the target's helper does in addition to injecting the SYN.
type Level uint8

// The levels.
const (
	// Trav only injects the SYN. The kernel's SYN/ACK must be let out although no SYN came in: by
	// no filter, or a stateless one.
	Trav Level = iota + 1

	// TravAck first sends a bare ACK outward. A tracker with loose pick-up (the usual kind) then
	// assumes an established connection.
	TravAck

	// TravEcho sends the kernel's SYN/ACK outward once more as a bare SYN, and turns the SYN/ACK by
	// which the client answers into the ACK that the kernel waits for; the asker sends its SYN
	// again. To both sites' trackers and NATs it is an ordinary simultaneous open.
	TravEcho
)

// Levels returns all levels, the simplest first.
func Levels() []Level { return []Level{Trav, TravAck, TravEcho} }

// String returns "trav", "trav+ack" or "trav+echo".
func (l Level) String() string {
	switch l {
	case Trav:
		return "trav"
	case TravAck:
		return "trav+ack"
	case TravEcho:
		return "trav+echo"
	}
	return fmt.Sprintf("level(%d)", uint8(l))
}

// Choose returns the level by which a client at the asker's site reaches a listener at the
// target's, and why; or false, and why none does.
func Choose(asker, target overlay.SiteProfile) (Level, string, bool) {
	for _, s := range []overlay.SiteProfile{asker, target} {
		switch {
		case !s.Privileged:
			return 0, fmt.Sprintf("the helpers of %s have no CAP_NET_RAW", s.Site), false
		case s.Egress != overlay.EgressAny:
			return 0, fmt.Sprintf("%s lets out only some ports (egress is %v)", s.Site, s.Egress), false
		}
	}
	switch {
	case !closed(target):
		return Trav, fmt.Sprintf("%s lets every segment in", target.Site), true
	case resets(target):
		return 0, fmt.Sprintf("%s answers the asker's SYN with a reset before the carried one arrives", target.Site), false
	case dependent(target):
		return 0, fmt.Sprintf("the NAT of %s takes another port for every destination, so the asker cannot dial the right one", target.Site), false
	case target.NAT.Filtering == overlay.EndpointIndependent:
		return Trav, fmt.Sprintf("the NAT of %s filters for no endpoint", target.Site), true
	case dependent(asker):
		return 0, fmt.Sprintf("the NAT of %s takes another port for every destination, which the carried SYN cannot name", asker.Site), false
	case target.Filter == overlay.FilterStateless:
		return Trav, fmt.Sprintf("%s refuses bare SYNs only", target.Site), true
	case target.Filter == overlay.FilterStateful && !target.NAT.Translates() && resets(asker) && !stateless(asker):
		// An echo that reaches an established client would trigger the asker's reset.
		return TravAck, fmt.Sprintf("the tracker of %s picks connections up from their middle", target.Site), true
	case stateless(asker) && resets(asker):
		return 0, fmt.Sprintf("%s answers with a reset the SYN by which %s would open its filter", asker.Site, target.Site), false
	}
	return TravEcho, fmt.Sprintf("the tracker of %s wants to see a SYN go out first", target.Site), true
}

func closed(p overlay.SiteProfile) bool {
	return p.Filter != overlay.FilterNone && p.Inbound != overlay.InboundOpen
}

func resets(p overlay.SiteProfile) bool    { return closed(p) && p.Refusal == overlay.RefuseReset }
func stateless(p overlay.SiteProfile) bool { return closed(p) && p.Filter == overlay.FilterStateless }

// dependent reports whether the NAT's mapping depends on the destination.
func dependent(p overlay.SiteProfile) bool {
	return p.NAT.Mapping == overlay.AddressDependent || p.NAT.Mapping == overlay.AddressAndPortDependent
}
