package frontal

import (
	"encoding"
	"fmt"
	"strconv"

	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Setting is a field of the profile that the admin declared, or "auto": left to the measurement.
type Setting[T any] struct {
	Value T
	Given bool
}

// Given is a setting that the admin declared.
func Given[T any](v T) Setting[T] { return Setting[T]{v, true} }

// The keywords for the absence of a value.
const (
	auto = "auto"
	none = "none" // for a number: there is no such bound
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Setting[T]) UnmarshalText(text []byte) error {
	*s = Setting[T]{}
	if string(text) == auto {
		return nil
	}
	s.Given = true
	switch v := any(&s.Value).(type) {
	case encoding.TextUnmarshaler:
		if err := v.UnmarshalText(text); err != nil {
			return fmt.Errorf("%w, or %q to have it measured", err, auto)
		}
	case *bool:
		*v = string(text) == "true"
		if !*v && string(text) != "false" {
			return fmt.Errorf("want true, false or %q, to have it measured", auto)
		}
	case *uint16:
		return number(v, text)
	case *uint32:
		return number(v, text)
	case *uint64:
		return number(v, text)
	default:
		panic(fmt.Sprintf("frontal: a setting of type %T", s.Value))
	}
	return nil
}

// number reads a number, or "none", which is 0.
func number[T uint16 | uint32 | uint64](to *T, text []byte) error {
	if string(text) == none {
		*to = 0
		return nil
	}
	v, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil || v > uint64(^T(0)) {
		return fmt.Errorf("want a whole number up to %d, %q, or %q to have it measured", ^T(0), none, auto)
	}
	*to = T(v)
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (s Setting[T]) MarshalText() ([]byte, error) {
	if !s.Given {
		return []byte(auto), nil
	}
	return fmt.Append(nil, s.Value), nil
}

// or returns the given value, or v if there is none.
func (s Setting[T]) or(v T) T {
	if s.Given {
		return s.Value
	}
	return v
}

// SiteProfile returns the profile as sent to the broker, as far as it is known without a
// measurement: fields set to auto have the values of a closed site.
func (c Config) SiteProfile() overlay.SiteProfile {
	p := c.Profile
	q := overlay.SiteProfile{
		Site: overlay.SiteID(c.Site), Inbound: p.Inbound.or(overlay.InboundNone),
		Filter: p.Filter.or(overlay.FilterStateful), Refusal: p.Refusal.or(overlay.RefuseDrop),
		NAT: p.NAT.value(), NATUDP: p.NATUDP.value(),
		Egress: p.Egress.or(overlay.EgressAny), UDP: p.UDP.or(false),
		UDPRate: p.UDPRate.or(0), MTU: p.MTU.or(0), IdleTCP: p.IdleTCP.or(0), IdleUDP: p.IdleUDP.or(0), IPv6: p.IPv6.or(false), IPv6Only: p.IPv6Only.or(false),
		GatewayOnly: p.GatewayOnly, Privileged: p.Privileged.or(false), HighPortsOnly: p.HighPortsOnly.or(false), Networks: p.Networks, Forbidden: p.Forbidden,
	}
	if p.IPv6Rules.given() {
		q.IPv6Rules = p.IPv6Rules.value(q.Egress)
	}
	if p.Inbound.Given {
		q.Ports = c.ports() // otherwise they are the ports to test
	}
	return q
}

// value returns the declared values, and for other fields the most restrictive ones.
func (n NAT) value() overlay.NAT {
	v := overlay.NAT{Mapping: n.Mapping.or(overlay.NATNone), Filtering: n.Filtering.or(overlay.NATNone), KeepsPort: n.KeepsPort.or(false)}
	if v.Translates() && !n.Filtering.Given {
		v.Filtering = overlay.AddressAndPortDependent
	}
	if v.Filtering != overlay.NATNone && !n.Mapping.Given {
		v.Mapping = overlay.AddressAndPortDependent
	}
	return v
}

// given reports whether the admin declares any of the rules.
func (r IPv6Rules) given() bool {
	return r.Inbound.Given || r.Filter.Given || r.Refusal.Given || r.Egress.Given || r.UDP.Given
}

// value returns the declared rules, and for the others those of a closed site.
func (r IPv6Rules) value(egress overlay.Egress) overlay.IPv6Rules {
	return overlay.IPv6Rules{
		Measured: true, Inbound: r.Inbound.or(overlay.InboundNone), Filter: r.Filter.or(overlay.FilterStateful),
		Refusal: r.Refusal.or(overlay.RefuseDrop), Egress: r.Egress.or(egress), UDP: r.UDP.or(false),
	}
}

// given reports whether the admin declares anything about the NAT.
func (n NAT) given() bool { return n.Mapping.Given || n.Filtering.Given || n.KeepsPort.Given }

func (c Config) ports() overlay.Ports {
	return overlay.Ports{First: c.Profile.Ports.First, Last: c.Profile.Ports.Last}
}

// unset returns the fields of the profile that are left to the measurement.
func (c Config) unset() []string {
	p := c.Profile
	udp := p.NAT.given() || p.NATUDP.given() // nat applies to both unless nat_udp is declared
	var fields []string
	for _, f := range []struct {
		name  string
		given bool
	}{
		{probe.Inbound, p.Inbound.Given}, {probe.Filter, p.Filter.Given}, {probe.Refusal, p.Refusal.Given},
		{probe.NATMapping, p.NAT.Mapping.Given}, {probe.NATFiltering, p.NAT.Filtering.Given},
		{probe.NATKeepsPort, p.NAT.KeepsPort.Given},
		{probe.NATUDPMapping, udp}, {probe.NATUDPFiltering, udp}, {probe.NATUDPKeepsPort, udp}, {probe.Egress, p.Egress.Given}, {probe.UDP, p.UDP.Given},
		{probe.UDPRate, p.UDPRate.Given}, {probe.MTU, p.MTU.Given},
		{probe.IdleTCP, p.IdleTCP.Given}, {probe.IdleUDP, p.IdleUDP.Given},
		{probe.IPv6, p.IPv6.Given}, {probe.IPv6Only, p.IPv6Only.Given},
		{probe.IPv6Inbound, p.IPv6Rules.Inbound.Given}, {probe.IPv6Filter, p.IPv6Rules.Filter.Given}, {probe.IPv6Refusal, p.IPv6Rules.Refusal.Given},
		{probe.IPv6Egress, p.IPv6Rules.Egress.Given}, {probe.IPv6UDP, p.IPv6Rules.UDP.Given}, {probe.Privileged, p.Privileged.Given}, {probe.HighPortsOnly, p.HighPortsOnly.Given}, {probe.SeenAt, false},
	} {
		if !f.given {
			fields = append(fields, f.name)
		}
	}
	return fields
}
