package probe

import (
	"context"
	"net/netip"
	"slices"
)

// PathReport is how much passes between this host and one reflector.
type PathReport struct {
	To      netip.AddrPort // its STUN server
	Sizes   *PathSizes
	Rate    []RateStep
	RateErr string // why no rate was tried
}

// MeasurePath makes the part of Measure that determines how much passes, to a STUN server that has
// answered. It takes about three seconds, or seven where datagrams are rate-limited, and ends with
// ctx.
func MeasurePath(ctx context.Context, to netip.AddrPort) PathReport {
	m := &measurement{opts: Options{}.complete(), waits: newPatience()}
	m.lookSizes(ctx, to)
	m.lookRate(ctx, to)
	return PathReport{To: to, Sizes: m.o.Sizes, Rate: m.o.Rate, RateErr: m.o.RateErr}
}

// Largest returns the size of the largest IP packet that passed, in bytes, and whether a larger one
// was lost; 0 if none passed.
func (p PathReport) Largest() (size int, lost bool) {
	if p.Sizes == nil || len(p.Sizes.Passed) == 0 {
		return 0, false
	}
	size = p.Sizes.Passed[0]
	return size, slices.ContainsFunc(p.Sizes.Lost, func(s int) bool { return s > size })
}

// Findings returns the findings for MTU and UDPRate.
func (p PathReport) Findings() (mtu, rate Finding) {
	o := Observations{UDP: []View{{To: p.To, Seen: p.To}}, Sizes: p.Sizes, Rate: p.Rate, RateErr: p.RateErr} // an answer arrived, whatever it said
	return finding(MTU, o.mtu()), finding(UDPRate, o.rate())
}

func finding(field string, t inferred[bound]) Finding {
	f := Finding{Field: field, How: t.how}
	if t.ok {
		f.Value = t.value.String()
	}
	return f
}
