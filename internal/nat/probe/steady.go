package probe

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/isthmus-grid/isthmus/overlay"
)

// rateSlack is the factor by which two measurements of one rate may differ.
const rateSlack = 1.5

// Working is what has connected nodes of the site with other sites lately. It proves more than what a probe did not
// reach: that one may have been lost, or have met a NAT without a free port.
type Working struct {
	Connections bool // that began at a node of the site
	Datagrams   bool // both ways
}

// refutes reports whether what works shows that a finding is wrong.
func (w Working) refutes(f Finding) bool {
	return w.Connections && f.Field == Egress && f.Value == overlay.EgressNone.String() || w.Datagrams && f.Field == UDP && f.Value == "false"
}

// openness lists the values of the fields that take techniques away from a site, from the one that permits most.
var openness = map[string][]string{
	Inbound:         {overlay.InboundOpen.String(), overlay.InboundPorts.String(), overlay.InboundNone.String()},
	Egress:          egressOpenness,
	UDP:             {"true", "false"},
	NATMapping:      natOpenness,
	NATFiltering:    natOpenness,
	NATKeepsPort:    {"true", "false"},
	NATUDPMapping:   natOpenness,
	NATUDPFiltering: natOpenness,
	NATUDPKeepsPort: {"true", "false"},
	IPv6:            {"true", "false"},
	IPv6Inbound:     {overlay.InboundOpen.String(), overlay.InboundNone.String()},
	IPv6Egress:      egressOpenness,
	IPv6UDP:         {"true", "false"},
}

var (
	egressOpenness = texts(overlay.EgressAny, overlay.Egress443, overlay.EgressTLS443, overlay.EgressHTTPProxy, overlay.EgressHTTPProxyTLS, overlay.EgressNone)
	natOpenness    = texts(overlay.NATNone, overlay.EndpointIndependent, overlay.AddressDependent, overlay.AddressAndPortDependent)
)

func texts[T fmt.Stringer](values ...T) (all []string) {
	for _, v := range values {
		all = append(all, v.String())
	}
	return all
}

// isWorse reports whether a value permits less than another. The only value that permits less than an unknown one is
// an egress of none, since without a measurement connections are taken to leave the site.
func isWorse(field, value, than string) bool {
	if than == "" {
		return field == Egress && value == overlay.EgressNone.String()
	}
	if field == MTU || field == UDPRate {
		old, okOld := parseBound(than)
		now, okNow := parseBound(value)
		return okOld && okNow && now.value > 0 && (old.value == 0 || now.value < old.value)
	}
	order := openness[field]
	old := slices.Index(order, than)
	return old >= 0 && slices.Index(order, value) > old
}

// Steady returns what to adopt of a measurement, since one may fail where links work: before is what was adopted
// until now, and last the latest measurement as it was made; each is zero without one. What is unknown now keeps its
// value, and so does what works. Another field gets worse only if the last measurement agrees; doubtful reports
// whether one is waiting for that, so that the next measurement should come soon. A rate also keeps its value if
// the new one differs no more than measurements do: a changed profile costs the site what it has learned about others.
func (m Measured) Steady(before, last Measured, works Working) (steady Measured, doubtful bool) {
	steady = m
	keep := func(was, now Finding, how string, args ...any) {
		now.Value, now.How = was.Value, fmt.Sprintf(how, args...)
		if steady = steady.With([]Finding{now}); now.Field == Inbound {
			steady.Ports = before.Ports
		}
	}
	for _, now := range m.Findings {
		was, latest := before.finding(now.Field), last.finding(now.Field)
		switch {
		case now.Field == IdleTCP, now.Field == IdleUDP, now.Field == Stripped: // which are not in a profile, or measured by themselves
		case !now.HasValue():
			if was.HasValue() {
				keep(was, now, "as measured before; now: %s", now.How)
			}
		case works.refutes(now):
			keep(was, now, "it worked minutes ago, which outweighs this: %s", now.How)
		case now.Field == UDPRate && isSameRate(was.Value, now.Value), now.Field == SeenAt && areNeighbours(was.Value, now.Value):
			keep(was, now, "%s", now.How)
		case isWorse(now.Field, now.Value, was.Value) && !isWorse(now.Field, latest.Value, was.Value):
			doubtful = true
			keep(was, now, "not taken to be %s before a second measurement agrees: %s", now.Value, now.How)
		}
	}
	return steady, doubtful
}

// areNeighbours reports whether two addresses are of one subnet, as those of the nodes that measure in turn.
func areNeighbours(a, b string) bool {
	was, errA := netip.ParseAddr(a)
	now, errB := netip.ParseAddr(b)
	return errA == nil && errB == nil && was.Is4() && netip.PrefixFrom(was, 24).Masked().Contains(now)
}

// isSameRate reports whether two measured rates differ no more than measurements do.
func isSameRate(a, b string) bool {
	was, okA := parseBound(a)
	now, okB := parseBound(b)
	if !okA || !okB || was.value == 0 || now.value == 0 {
		return false
	}
	ratio := float64(was.value) / float64(now.value)
	return 1/rateSlack <= ratio && ratio <= rateSlack
}
