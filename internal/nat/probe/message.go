package probe

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Measured is a result with its origin, as it is sent and shown.
type Measured struct {
	Time     time.Time     `json:"time"`
	Node     string        `json:"node"` // the node that measured
	Ports    overlay.Ports `json:"ports,omitzero"`
	Findings []Finding     `json:"findings"`
}

// MeasuredBy returns the result with the node and time of the measurement.
func (r Result) MeasuredBy(node string, at time.Time) Measured {
	return Measured{Time: at, Node: node, Ports: r.Profile.Ports, Findings: r.Findings}
}

// ToPB converts a measurement to its message form.
func (m Measured) ToPB() *controlpb.Measurement {
	pb := &controlpb.Measurement{Time: m.Time.UnixNano(), Node: m.Node, FirstPort: uint32(m.Ports.First), LastPort: uint32(m.Ports.Last)}
	for _, f := range m.Findings {
		pb.Findings = append(pb.Findings, &controlpb.Finding{Field: f.Field, Value: f.Value, How: f.How})
	}
	return pb
}

// Bounds of a message.
const (
	maxFindings = 64
	maxText     = 1 << 10 // of each text of a finding, in bytes
)

// FromPB checks and converts a measurement. Fields that this build does not know, from a newer one,
// are kept for humans to read.
func FromPB(pb *controlpb.Measurement) (Measured, error) {
	m := Measured{Time: time.Unix(0, pb.GetTime()), Node: pb.GetNode()}
	if n := len(pb.GetFindings()); n > maxFindings {
		return m, fmt.Errorf("%w: a measurement of %d findings, at most %d are taken", wire.ErrMalformed, n, maxFindings)
	}
	if pb.GetFirstPort() > 65535 || pb.GetLastPort() > 65535 {
		return m, fmt.Errorf("%w: a measurement of ports %d-%d", wire.ErrMalformed, pb.GetFirstPort(), pb.GetLastPort())
	}
	m.Ports = overlay.Ports{First: uint16(pb.GetFirstPort()), Last: uint16(pb.GetLastPort())}
	if len(m.Node) > 255 {
		return m, fmt.Errorf("%w: a measurement by a node whose name has %d bytes", wire.ErrMalformed, len(m.Node))
	}
	for _, f := range pb.GetFindings() {
		if max(len(f.GetField()), len(f.GetValue()), len(f.GetHow())) > maxText {
			return m, fmt.Errorf("%w: a finding of more than %d bytes", wire.ErrMalformed, maxText)
		}
		m.Findings = append(m.Findings, Finding{f.GetField(), f.GetValue(), f.GetHow()})
	}
	return m, nil
}

// Difference is a field in which a declared profile differs from the measurement.
type Difference struct {
	Field    string `json:"field"`
	Declared string `json:"declared"`
	Measured string `json:"measured"`
	How      string `json:"how"`
}

// Differences compares a declared profile with the measurement. Unknown findings never differ, and
// a strict filter counts as a stateful one, since a measurement cannot distinguish them. For
// amounts and times, IPv6 and privileges, a site may declare less than it has.
func (m Measured) Differences(p overlay.SiteProfile) []Difference {
	var all []Difference
	for _, f := range m.Findings {
		declared := Value(p, f.Field)
		switch f.Field {
		case UDPRate, MTU, IdleTCP, IdleUDP:
			if b, ok := parseBound(f.Value); ok && exceeds(f.Field, p, b) {
				all = append(all, Difference{f.Field, declared, f.Value, f.How})
			}
			continue
		case IPv6, Privileged, IPv6UDP:
			if declared == "false" {
				continue
			}
		case HighPortsOnly:
			if declared == "true" {
				continue
			}
		}
		strict := f.Field == Filter && declared == overlay.FilterStrict.String() && f.Value == overlay.FilterStateful.String()
		if f.HasValue() && declared != "" && declared != f.Value && !strict {
			all = append(all, Difference{f.Field, declared, f.Value, f.How})
		}
	}
	return all
}

// Value returns a field of a profile in the form of findings and settings; empty for a field that
// is not measured.
func Value(p overlay.SiteProfile, field string) string {
	switch field {
	case Inbound:
		return p.Inbound.String()
	case Filter:
		return p.Filter.String()
	case Refusal:
		return p.Refusal.String()
	case NATMapping:
		return p.NAT.Mapping.String()
	case NATFiltering:
		return p.NAT.Filtering.String()
	case NATKeepsPort:
		return strconv.FormatBool(p.NAT.KeepsPort)
	case NATUDPMapping:
		return p.DatagramNAT().Mapping.String()
	case NATUDPFiltering:
		return p.DatagramNAT().Filtering.String()
	case NATUDPKeepsPort:
		return strconv.FormatBool(p.DatagramNAT().KeepsPort)
	case Egress:
		return p.Egress.String()
	case UDP:
		return strconv.FormatBool(p.UDP)
	case UDPRate:
		return boundText(p.UDPRate, none)
	case MTU:
		return boundText(p.MTU, none)
	case IdleTCP:
		return boundText(p.IdleTCP, "")
	case IdleUDP:
		return boundText(p.IdleUDP, "")
	case IPv6:
		return strconv.FormatBool(p.IPv6)
	case IPv6Only:
		return strconv.FormatBool(p.IPv6Only)
	case IPv6Inbound, IPv6Filter, IPv6Refusal, IPv6Egress, IPv6UDP:
		return ipv6Value(p, field)
	case Privileged:
		return strconv.FormatBool(p.Privileged)
	case HighPortsOnly:
		return strconv.FormatBool(p.HighPortsOnly)
	case SeenAt:
		if p.SeenAt.IsValid() {
			return p.SeenAt.String()
		}
		return none
	}
	return ""
}

// ipv6Value is Value for the rules for IPv6; empty where they are not known.
func ipv6Value(p overlay.SiteProfile, field string) string {
	r := p.IPv6Rules
	switch {
	case !r.Measured:
		return ""
	case field == IPv6Inbound:
		return r.Inbound.String()
	case field == IPv6Filter:
		return r.Filter.String()
	case field == IPv6Refusal:
		return r.Refusal.String()
	case field == IPv6Egress:
		return r.Egress.String()
	}
	return strconv.FormatBool(r.UDP)
}

// Fill returns p with the fields named in unset taken from the measurement, where they are known.
// If the result contradicts itself, because only a part of it was measured, the more closed reading
// wins; it always passes SiteProfile.Check if p does.
func (m Measured) Fill(p overlay.SiteProfile, unset []string) overlay.SiteProfile {
	q := p
	for _, f := range m.Findings {
		if !f.HasValue() || !slices.Contains(unset, f.Field) {
			continue
		}
		setValue(&q, f, m.Ports)
	}
	q.NAT, q.NATUDP = consistent(q.NAT), consistent(q.NATUDP)
	if !q.NAT.Translates() || q.NATUDP == q.NAT {
		q.NATUDP = overlay.NAT{}
	}
	if q.Inbound != overlay.InboundPorts {
		q.Ports = overlay.Ports{}
	}
	if !q.IPv6 || q.IPv6Only {
		q.IPv6Rules = overlay.IPv6Rules{}
	}
	if q.Check() != nil {
		return p
	}
	return q
}

// consistent returns a NAT of which either everything or nothing is known.
func consistent(n overlay.NAT) overlay.NAT {
	switch {
	case !n.Translates():
		return overlay.NAT{}
	case n.Filtering == overlay.NATNone:
		n.Filtering = overlay.AddressAndPortDependent
	}
	return n
}

// setValue sets one field. A value that this build does not know changes nothing.
func setValue(p *overlay.SiteProfile, f Finding, ports overlay.Ports) {
	text := []byte(f.Value)
	switch f.Field {
	case Inbound:
		if set(&p.Inbound, text); p.Inbound == overlay.InboundPorts {
			p.Ports = ports
		}
	case Filter:
		set(&p.Filter, text)
	case Refusal:
		set(&p.Refusal, text)
	case NATMapping:
		set(&p.NAT.Mapping, text)
	case NATFiltering:
		set(&p.NAT.Filtering, text)
	case NATKeepsPort:
		p.NAT.KeepsPort = f.Value == "true"
	case NATUDPMapping:
		set(&p.NATUDP.Mapping, text)
	case NATUDPFiltering:
		set(&p.NATUDP.Filtering, text)
	case NATUDPKeepsPort:
		p.NATUDP.KeepsPort = f.Value == "true"
	case Egress:
		set(&p.Egress, text)
	case UDP:
		p.UDP = f.Value == "true"
	case UDPRate:
		setBound(&p.UDPRate, f.Value)
	case MTU:
		setBound(&p.MTU, f.Value)
	case IdleTCP:
		setBound(&p.IdleTCP, f.Value)
	case IdleUDP:
		setBound(&p.IdleUDP, f.Value)
	case IPv6:
		p.IPv6 = f.Value == "true"
	case IPv6Only:
		p.IPv6Only = f.Value == "true"
	case IPv6Inbound, IPv6Filter, IPv6Refusal, IPv6Egress, IPv6UDP:
		setIPv6Value(p, f)
	case Privileged:
		p.Privileged = f.Value == "true"
	case HighPortsOnly:
		p.HighPortsOnly = f.Value == "true"
	case SeenAt:
		p.SeenAt, _ = netip.ParseAddr(f.Value) // none: not valid
	}
}

// setIPv6Value sets one of the rules for IPv6, and what is assumed of the others if it is the first.
func setIPv6Value(p *overlay.SiteProfile, f Finding) {
	if !p.IPv6Rules.Measured {
		p.IPv6Rules = defaultIPv6Rules(*p)
	}
	r, text := &p.IPv6Rules, []byte(f.Value)
	switch f.Field {
	case IPv6Inbound:
		set(&r.Inbound, text)
	case IPv6Filter:
		set(&r.Filter, text)
	case IPv6Refusal:
		set(&r.Refusal, text)
	case IPv6Egress:
		set(&r.Egress, text)
	case IPv6UDP:
		r.UDP = f.Value == "true"
	}
}

// set is UnmarshalText that keeps the old value when the text is unknown.
func set[T any, P interface {
	*T
	UnmarshalText([]byte) error
}](to P, text []byte) {
	var v T
	if P(&v).UnmarshalText(text) == nil {
		*to = v
	}
}
