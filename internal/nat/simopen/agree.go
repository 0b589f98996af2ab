package simopen

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// An End is one side's report to the server, which makes the agreement.
type End struct {
	Profile overlay.SiteProfile
	Mapping Mapping  // of the port that will dial
	Clock   Estimate // against the server's clock
}

// An Agreement says when each end dials, and which address.
type Agreement struct {
	A, B Start
	// Tolerance is by how much the two instants may differ before the first attempt fails and Open
	// has to retry. Negative means no bound.
	Tolerance time.Duration
	// Risky says that the clock errors exceed the tolerance.
	Risky bool
}

// A Start is one end's part of an agreement.
type Start struct {
	At     time.Time      // by this end's own clock
	Remote netip.AddrPort // the peer; port 0: cannot be known, so only listen
	// AnyPort says that the peer accepts a SYN from any port, so that this end may dial although
	// its own port cannot be predicted.
	AnyPort bool
	// Patience is for Options: twice the round trip through the server, plus a tenth of a second
	// for busy hosts.
	Patience time.Duration
}

// lead is the time between both ends' receipt of the agreement and the first instant, for waking
// up.
const lead = 5 * time.Millisecond

// Agree decides when a and b dial each other, or returns why they need not try. now is by the
// server's clock.
//
// What matters is the difference d of the instants, B's minus A's, measured in one-way delays
// between the ends:
//
//   - A site that answers with a reset does so when the peer's SYN arrives before its own
//     has left; a stateless one always does. So no SYN may arrive before the other left:
//     if A answers, d > -1, if B does, d < 1.
//   - A stateless site never lets the peer's SYN in. Its own is the one that must arrive,
//     at a peer that has dialled already: if A is stateless d < 1, if B is, d > -1.
//     Otherwise a second attempt is needed.
//   - For silent stateful sites d does not matter: the earlier SYN is dropped, the later
//     one passes the opened hole.
//
// With both bounds the best d is 0. With one, the end that must not be early is put a whole one-way
// delay, half a round trip, later: then the clocks may be wrong by twice as much. The delay is not
// known but is at most that through the server; too long a wait costs only time.
func Agree(now time.Time, a, b End) (Agreement, error) {
	if err := check(a, b); err != nil {
		return Agreement{}, err
	}
	oneWay := (a.Clock.RTT + b.Clock.RTT) / 2
	notBefore := resets(a.Profile) || stateless(b.Profile) // d > -1
	notAfter := resets(b.Profile) || stateless(a.Profile)  // d < 1

	first := now.Add(max(a.Clock.RTT, b.Clock.RTT)/2 + a.Clock.Error + b.Clock.Error + lead)
	atA, atB := first, first
	ag := Agreement{Tolerance: -1}
	switch {
	case notBefore && notAfter:
		ag.Tolerance = oneWay
	case notBefore:
		atB, ag.Tolerance = first.Add(oneWay), 2*oneWay
	case notAfter:
		atA, ag.Tolerance = first.Add(oneWay), 2*oneWay
	}
	ag.Risky = ag.Tolerance >= 0 && a.Clock.Error+b.Clock.Error >= ag.Tolerance
	patience := 4*oneWay + 100*time.Millisecond
	ag.A = Start{At: a.Clock.Local(atA), Remote: aim(b), AnyPort: takesAnyPort(b.Profile), Patience: patience}
	ag.B = Start{At: b.Clock.Local(atB), Remote: aim(a), AnyPort: takesAnyPort(a.Profile), Patience: patience}
	return ag, nil
}

// Hurry decides when a and b dial each other when each knows the other's port beforehand: b dials
// as soon as a's message reaches it, and a so that it fits. A.At is for a sending its message now,
// B.At for b receiving it now. No clocks are compared.
//
// a's message takes about a one-way delay through the server. Where no SYN is answered with a reset
// a dials at once: its SYN is dropped at b's site, but opens a's own, and b's passes. Otherwise a
// waits that long, so that the SYNs cross (see Agree).
func Hurry(now time.Time, a, b End) (Agreement, error) {
	if err := check(a, b); err != nil {
		return Agreement{}, err
	}
	word := (a.Clock.RTT + b.Clock.RTT) / 2
	atA := now
	if resets(b.Profile) || stateless(a.Profile) {
		atA = now.Add(word)
	}
	patience := 2*word + 100*time.Millisecond
	return Agreement{
		A: Start{At: atA, Remote: aim(b), AnyPort: takesAnyPort(b.Profile), Patience: word + patience},
		B: Start{At: now, Remote: aim(a), AnyPort: takesAnyPort(a.Profile), Patience: patience},
	}, nil
}

// check returns why the ends need not try.
func check(a, b End) error {
	for _, e := range []struct{ self, peer End }{{a, b}, {b, a}} {
		self, peer := e.self.Profile, e.peer.Profile
		switch {
		case self.Egress == overlay.EgressNone || self.Egress.ThroughHTTPProxy():
			return fmt.Errorf("%s lets no SYN of its nodes out (egress is %v): %w", self.Site, self.Egress, overlay.ErrUnreachable)
		case self.Egress.OnlyTLS():
			return fmt.Errorf("%s lets only TLS out, and a link that two nodes open begins otherwise: %w", self.Site, overlay.ErrUnreachable)
		case self.Egress == overlay.Egress443 && e.peer.Mapping.Outside.Port() != 443:
			return fmt.Errorf("%s lets only SYNs to port 443 out, and %s dials from port %d: %w; let it prepare port 443",
				self.Site, peer.Site, e.peer.Mapping.Outside.Port(), overlay.ErrUnreachable)
		case stateless(self) && stateless(peer):
			return fmt.Errorf("%s and %s both refuse every bare SYN, whichever end sent one before: %w", self.Site, peer.Site, overlay.ErrRefused)
		case !e.self.Mapping.Independent && !takesAnyPort(peer):
			return fmt.Errorf("%s: %w: %s, and %s takes no SYN from a port that it did not dial",
				self.Site, ErrUnpredictable, e.self.Mapping.difference(), peer.Site)
		}
	}
	return nil
}

// aim returns where to dial e: port 0 when the port cannot be known.
func aim(e End) netip.AddrPort {
	if !e.Mapping.Independent {
		return netip.AddrPortFrom(e.Mapping.Outside.Addr(), 0)
	}
	return e.Mapping.Outside
}

// closed reports whether the site refuses SYNs to the ports that are dialled from, which need not
// be in a range it opens.
func closed(p overlay.SiteProfile) bool {
	return p.Filter != overlay.FilterNone && p.Inbound != overlay.InboundOpen
}

// resets reports whether the site answers a SYN that it refuses.
func resets(p overlay.SiteProfile) bool { return closed(p) && p.Refusal == overlay.RefuseReset }

// stateless reports whether the site refuses bare SYNs by their flags alone.
func stateless(p overlay.SiteProfile) bool { return closed(p) && p.Filter == overlay.FilterStateless }

// takesAnyPort reports whether a SYN from a port that was not dialled reaches a node that dialled
// another port.
func takesAnyPort(p overlay.SiteProfile) bool {
	return !closed(p) || p.NAT.Filtering == overlay.EndpointIndependent
}
