package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-grid/isthmus/internal/nat/probe"
)

// amounts judges how much passes: which sizes of packets, and which rate of datagrams.
func amounts(o Observations) []Finding {
	if o.Helper && o.profile().GatewayOnly {
		return nil
	}
	all := packets(o)
	if o.Path != nil {
		all = append(all, rateLimitFinding(o, *o.Path))
	}
	return all
}

// packets judges which sizes pass, from full-size TCP segments and datagrams of all sizes.
func packets(o Observations) []Finding {
	var lost, passed []Reflector
	for _, v := range slices.Concat(o.Reflectors, o.IPv6) {
		switch {
		case v.Bulk.Passed:
			passed = append(passed, v)
		case v.Bulk.Tried && v.Bulk.Smaller > 0:
			lost = append(lost, v)
		}
	}
	if len(lost) > 0 {
		return []Finding{lostSegments(o, lost, passed)}
	}
	if o.Path == nil {
		return nil
	}
	mtu, _ := o.Path.Findings()
	size, larger := o.Path.Largest()
	f := Finding{Layer: "MTU", Target: o.Path.To.String(), Status: Passed, Class: OK, Evidence: mtu.How, Meaning: "full-size packets pass"}
	switch {
	case size == 0:
		f.Status, f.Evidence, f.Meaning = NotChecked, "", "not checked with datagrams: "+mtu.How
	case larger && o.Path.Sizes.Reported >= size:
		f.Meaning = "packets are smaller on the way than on this host's interface, and routers report it (RFC 1191): this works"
	case larger:
		f.Status, f.Class = Warning, MTU
		f.Meaning, f.Device, f.Fix = blackHole(size)
		if len(passed) > 0 {
			f.Evidence += "; full-size segments of TCP arrive"
			f.Meaning = "large datagrams vanish, and TCP is spared: a device on the way makes its segments smaller (an MSS clamp), or treats datagrams differently"
			f.Device = "a router or tunnel on the way"
		}
	}
	return []Finding{f}
}

// lostSegments judges connections on which full-size segments were dropped and smaller ones
// arrived. Daemons that know of this limit their segments to what passes.
func lostSegments(o Observations, lost, passed []Reflector) Finding {
	var to []string
	smaller := lost[0].Bulk.Smaller
	for _, v := range lost {
		to = append(to, v.At.String())
		smaller = min(smaller, v.Bulk.Smaller)
	}
	f := Finding{Layer: "MTU", Target: strings.Join(to, ", "), Status: Failed, Class: MTU}
	f.Evidence = fmt.Sprintf("of 4000 bytes in full-size segments not all were acknowledged within %s (path MTU as this host knows it: %d); in segments of %d bytes they were", ms(segmentBound), lost[0].Bulk.PathMTU, smaller)
	for _, v := range passed {
		f.Evidence += fmt.Sprintf("; to %s full-size ones arrive", v.At)
	}
	size, known := smaller+headers(lost[0].At.Addr()), false
	if o.Path != nil {
		mtu, _ := o.Path.Findings()
		f.Evidence += "; datagrams: " + mtu.How
		if largest, larger := o.Path.Largest(); larger {
			size, known = max(size, largest), true
		}
	}
	f.Meaning, f.Device, f.Fix = blackHole(size)
	switch declared := int(o.profile().MTU); {
	case declared > 0 && declared <= size:
		f.Status = Warning
		f.Meaning += fmt.Sprintf(". The site's profile knows it (mtu %d), and the daemons keep to that; other programs on this host do not", declared)
		f.Fix = "nothing for the grid. For other programs: " + f.Fix
	case o.MeasuresMTU && known:
		f.Status = Warning
		f.Meaning += ". The daemons measure it like this (profile.mtu: auto), and keep to what passes; other programs on this host do not"
		f.Fix = "nothing for the grid. For other programs: " + f.Fix
	default:
		f.Meaning += fmt.Sprintf(". The site's profile says otherwise (mtu %s): links stall on full-size packets", orNone(declared))
		f.Fix = fmt.Sprintf("set profile.mtu: %d at the frontal, or leave it to be measured (auto); or %s", size, f.Fix)
	}
	return f
}

func orNone(n int) string {
	if n == 0 {
		return "none"
	}
	return strconv.Itoa(n)
}

// rateLimitFinding judges at which rate datagrams pass.
func rateLimitFinding(o Observations, p probe.PathReport) Finding {
	_, rate := p.Findings()
	f := Finding{Layer: "UDP", Target: p.To.String() + ", many datagrams", Status: Passed, Class: OK, Evidence: rate.How, Meaning: "datagrams are not held to a low rate"}
	switch v, err := strconv.ParseUint(rate.Value, 10, 64); {
	case !rate.HasValue():
		f.Status, f.Evidence, f.Meaning = NotChecked, "", "not told: "+rate.How
	case err == nil && v > 0:
		f.Status, f.Class = Warning, UDPSlow
		f.Evidence = fmt.Sprintf("datagrams get through at about %.2g Mb/s: %s", float64(v)/1e6, rate.How)
		f.Meaning = "something on the way limits datagrams, or the whole line is that narrow or busy: TCP's rate was not measured, and these look the same"
		f.Device = "unknown: neither a limiter nor a narrow line says where it is"
		f.Fix = "nothing, if this is meant: links take TCP or a relay, since hole punching would be slow. Else ask for UDP without a rate limit"
		if said := o.profile().UDPRate; said == 0 && !o.Helper {
			f.Fix += "; profile.udp_rate: auto lets the daemons measure it"
		}
	}
	return f
}
