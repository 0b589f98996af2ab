package control

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strconv"

	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// The functions below validate everything that a peer sends, once, so that the daemons hold only
// valid values.

// MaxNegotiation bounds the bytes that an end may send to the other through a signalling request:
// SignalRequest.offer and SignalEvent.answer. They are opaque to everything in between.
const MaxNegotiation = 8 << 10

// ProcessToPB and the other ...ToPB functions convert a value to its message.
func ProcessToPB(p overlay.ProcessName) *controlpb.Process {
	return &controlpb.Process{Job: string(p.Job), Rank: p.Rank}
}

// ProcessFromPB validates and converts a process name.
func ProcessFromPB(p *controlpb.Process) (overlay.ProcessName, error) {
	name := overlay.ProcessName{Job: overlay.JobID(p.GetJob()), Rank: p.GetRank()}
	return name, overlay.CheckJobID(name.Job)
}

// EncryptionToPB converts a site's preference.
func EncryptionToPB(e overlay.Encryption) *controlpb.Encryption {
	m := &controlpb.Encryption{OtherSites: e.OtherSites, SameSite: e.SameSite}
	for _, s := range e.PlainWith {
		m.PlainWith = append(m.PlainWith, string(s))
	}
	return m
}

// EncryptionFromPB converts a site's preference. Nil is the default.
func EncryptionFromPB(m *controlpb.Encryption) overlay.Encryption {
	if m == nil {
		return overlay.DefaultEncryption()
	}
	e := overlay.Encryption{OtherSites: m.OtherSites, SameSite: m.SameSite}
	for _, s := range m.PlainWith {
		e.PlainWith = append(e.PlainWith, overlay.SiteID(s))
	}
	return e
}

// PointToPB converts an access point, without its grant and proof.
func PointToPB(a overlay.AccessPoint) *controlpb.AccessPoint {
	m := &controlpb.AccessPoint{
		Process: ProcessToPB(a.Process), Generation: uint64(a.Generation),
		Site: string(a.Node.Site), Node: a.Node.Name,
	}
	m.Principal = PrincipalToPB(a.Principal)
	if a.Local.IsValid() {
		m.Local = a.Local.String()
	}
	if a.Public.IsValid() {
		m.Public = a.Public.String()
	}
	if a.Public6.IsValid() {
		m.Public6 = a.Public6.String()
	}
	return m
}

// RegistrationToPB is PointToPB with grant and proof, for the daemons between the process and the
// broker.
func RegistrationToPB(a overlay.AccessPoint) *controlpb.AccessPoint {
	m := PointToPB(a)
	m.Grant, m.Proof = []byte(a.Grant), []byte(a.Proof)
	return m
}

// PointFromPB validates and converts an access point.
func PointFromPB(m *controlpb.AccessPoint) (overlay.AccessPoint, error) {
	a := overlay.AccessPoint{
		Generation: overlay.Generation(m.GetGeneration()),
		Node:       overlay.NodeID{Site: overlay.SiteID(m.GetSite()), Name: m.GetNode()},
		Principal:  principalFromPB(m.GetPrincipal()),
		Grant:      string(m.GetGrant()),
		Proof:      string(m.GetProof()),
	}
	if n := len(a.Grant); n > wire.MaxGrant {
		return a, fmt.Errorf("a grant of %d bytes, at most %d are allowed", n, wire.MaxGrant)
	}
	if n := len(a.Proof); n > jobkey.ProofLen {
		return a, fmt.Errorf("a proof of %d bytes, want %d", n, jobkey.ProofLen)
	}
	var err error
	if a.Process, err = ProcessFromPB(m.GetProcess()); err != nil {
		return a, err
	}
	if m.GetLocal() != "" {
		if a.Local, err = netip.ParseAddrPort(m.GetLocal()); err != nil {
			return a, fmt.Errorf("local address of %v: %w", a.Process, err)
		}
	}
	if m.GetPublic() != "" {
		if a.Public, err = netip.ParseAddrPort(m.GetPublic()); err != nil {
			return a, fmt.Errorf("public address of %v: %w", a.Process, err)
		}
	}
	if m.GetPublic6() != "" {
		if a.Public6, err = netip.ParseAddrPort(m.GetPublic6()); err != nil {
			return a, fmt.Errorf("public IPv6 address of %v: %w", a.Process, err)
		}
		if !a.Public6.Addr().Is6() || a.Public6.Addr().Is4In6() {
			return a, fmt.Errorf("public IPv6 address of %v: %v is none", a.Process, a.Public6)
		}
	}
	return a, a.Check()
}

// PrincipalToPB converts a principal: to nil if it is unknown.
func PrincipalToPB(p overlay.Principal) *controlpb.Principal {
	if !p.IsSet() {
		return nil
	}
	return &controlpb.Principal{User: p.User, Project: p.Project}
}

// PrincipalFromPB validates and converts a principal.
func PrincipalFromPB(m *controlpb.Principal) (overlay.Principal, error) {
	p := principalFromPB(m)
	return p, p.Check()
}

func principalFromPB(m *controlpb.Principal) overlay.Principal {
	return overlay.Principal{User: m.GetUser(), Project: m.GetProject()}
}

// PublicationToPB converts a published name.
func PublicationToPB(p overlay.Publication) *controlpb.Publication {
	return &controlpb.Publication{Process: ProcessToPB(p.Process), Generation: uint64(p.Generation), Name: p.Name, Port: p.Port}
}

// PublicationFromPB validates and converts a published name. The port may be empty, as in
// Unpublish.
func PublicationFromPB(m *controlpb.Publication) (overlay.Publication, error) {
	p := overlay.Publication{Name: m.GetName(), Port: m.GetPort(), Generation: overlay.Generation(m.GetGeneration())}
	var err error
	if p.Process, err = ProcessFromPB(m.GetProcess()); err != nil {
		return p, err
	}
	if err := overlay.CheckServiceName(p.Name); err != nil || p.Port == "" {
		return p, err
	}
	return p, overlay.CheckPort(p.Port)
}

// Verdicts converts the outcome for each of several items.
func Verdicts(errs []error) []*controlpb.Fault {
	faults := make([]*controlpb.Fault, len(errs))
	for i, err := range errs {
		faults[i] = &controlpb.Fault{}
		if err != nil {
			faults[i] = Fault(err)
		}
	}
	return faults
}

// VerdictErrs is the inverse of Verdicts, for n items.
func VerdictErrs(faults []*controlpb.Fault, n int) ([]error, error) {
	if len(faults) != n {
		return nil, fmt.Errorf("%w: %d verdicts on %d items", wire.ErrMalformed, len(faults), n)
	}
	errs := make([]error, n)
	for i, f := range faults {
		if f.GetCode() != 0 {
			errs[i] = FaultErr(f)
		}
	}
	return errs, nil
}

// PlanToPB converts a plan, with its digest: equal plans have equal digests on every build, and no
// plan has digest 0.
func PlanToPB(p overlay.Plan) *controlpb.Plan {
	m := &controlpb.Plan{Asker: string(p.Asker), Target: string(p.Target)}
	h := fnv.New64a()
	add := func(number uint8, text string) {
		h.Write(binary.BigEndian.AppendUint32([]byte{number}, uint32(len(text))))
		h.Write([]byte(text))
	}
	add(0, m.Asker)
	add(0, m.Target)
	for _, s := range p.Steps {
		m.Steps = append(m.Steps, &controlpb.Step{Technique: uint32(s.Technique), Via: uint32(s.Via), Reason: s.Reason, Port: uint32(s.Port), Ipv6: s.IPv6})
		add(uint8(s.Technique), s.Reason)
		add(uint8(s.Technique), strconv.Itoa(int(s.Port)))
		add(uint8(s.Via), "")
	}
	for _, r := range p.Rejected {
		m.Rejected = append(m.Rejected, &controlpb.Rejection{Technique: uint32(r.Technique), Reason: r.Reason})
		add(0x80|uint8(r.Technique), r.Reason)
	}
	m.Digest = max(h.Sum64(), 1)
	return m
}

// PlanFromPB converts a plan. It omits techniques that this build does not know, from a newer
// broker.
func PlanFromPB(m *controlpb.Plan) (overlay.Plan, error) {
	p := overlay.Plan{Asker: overlay.SiteID(m.GetAsker()), Target: overlay.SiteID(m.GetTarget())}
	for _, site := range []overlay.SiteID{p.Asker, p.Target} {
		if err := overlay.CheckName("site", string(site)); err != nil {
			return p, fmt.Errorf("plan: %w", err)
		}
	}
	for _, s := range m.GetSteps() {
		if t, ok := techniqueFromPB(s.GetTechnique()); ok {
			p.Steps = append(p.Steps, overlay.Step{Technique: t, Via: overlay.Via(s.GetVia()), Reason: s.GetReason(), Port: uint16(min(s.GetPort(), 65535)), IPv6: s.GetIpv6()})
		}
	}
	for _, r := range m.GetRejected() {
		if t, ok := techniqueFromPB(r.GetTechnique()); ok {
			p.Rejected = append(p.Rejected, overlay.Rejection{Technique: t, Reason: r.GetReason()})
		}
	}
	return p, nil
}

func techniqueFromPB(v uint32) (overlay.Technique, bool) {
	t := overlay.Technique(min(v, 255))
	return t, t.Valid()
}

// TechniqueFromPB validates and converts a technique.
func TechniqueFromPB(v uint32) (overlay.Technique, error) {
	t, ok := techniqueFromPB(v)
	if !ok {
		return 0, fmt.Errorf("unknown technique %d", v)
	}
	return t, nil
}

// ProfileToPB converts a profile; the site is the session's.
func ProfileToPB(p overlay.SiteProfile) *controlpb.Profile {
	m := &controlpb.Profile{
		Inbound: uint32(p.Inbound), FirstPort: uint32(p.Ports.First), LastPort: uint32(p.Ports.Last),
		Filter: uint32(p.Filter), Refusal: uint32(p.Refusal),
		NatMapping: uint32(p.NAT.Mapping), NatFiltering: uint32(p.NAT.Filtering), NatKeepsPort: p.NAT.KeepsPort,
		NatUdpMapping: uint32(p.NATUDP.Mapping), NatUdpFiltering: uint32(p.NATUDP.Filtering), NatUdpKeepsPort: p.NATUDP.KeepsPort,
		Egress: uint32(p.Egress), Udp: p.UDP, GatewayOnly: p.GatewayOnly, Privileged: p.Privileged, HighPortsOnly: p.HighPortsOnly,
		UdpRate: p.UDPRate, Mtu: uint32(p.MTU), IdleTcp: p.IdleTCP, IdleUdp: p.IdleUDP, Ipv6: p.IPv6, Ipv6Only: p.IPv6Only,
		Sessions: p.Sessions, Private: NetworksToPB(p.Private), PrivateGiven: p.PrivateGiven,
	}
	if p.SeenAt.IsValid() {
		m.SeenAt = p.SeenAt.String()
	}
	if r := p.IPv6Rules; r.Measured {
		m.Ipv6Rules = &controlpb.Rules{Inbound: uint32(r.Inbound), Filter: uint32(r.Filter), Refusal: uint32(r.Refusal), Egress: uint32(r.Egress), Udp: r.UDP}
	}
	m.Networks = NetworksToPB(p.Networks)
	for _, t := range p.Forbidden {
		m.Forbidden = append(m.Forbidden, uint32(t))
	}
	return m
}

// NetworksToPB returns the first of some networks, as many as a peer takes.
func NetworksToPB(networks []netip.Prefix) (texts []string) {
	for _, n := range networks[:min(len(networks), overlay.MaxNetworks)] {
		texts = append(texts, n.String())
	}
	return texts
}

// NetworksFromPB validates and converts networks.
func NetworksFromPB(texts []string) (networks []netip.Prefix, err error) {
	if n := len(texts); n > overlay.MaxNetworks {
		return nil, fmt.Errorf("%d networks, at most %d are allowed", n, overlay.MaxNetworks)
	}
	for _, text := range texts {
		n, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		networks = append(networks, n)
	}
	return networks, nil
}

// ProfileFromPB validates and converts the profile of a site.
func ProfileFromPB(site overlay.SiteID, m *controlpb.Profile) (overlay.SiteProfile, error) {
	p := overlay.SiteProfile{
		Site: site, UDP: m.GetUdp(), GatewayOnly: m.GetGatewayOnly(), Privileged: m.GetPrivileged(), HighPortsOnly: m.GetHighPortsOnly(),
		UDPRate: m.GetUdpRate(), IdleTCP: m.GetIdleTcp(), IdleUDP: m.GetIdleUdp(), IPv6: m.GetIpv6(), IPv6Only: m.GetIpv6Only(), Sessions: m.GetSessions(),
		PrivateGiven: m.GetPrivateGiven(),
	}
	if m.GetMtu() > 65535 {
		return p, fmt.Errorf("profile of %s: an MTU of %d bytes", site, m.GetMtu())
	}
	p.MTU = uint16(m.GetMtu())
	p.NAT.KeepsPort, p.NATUDP.KeepsPort = m.GetNatKeepsPort(), m.GetNatUdpKeepsPort()
	var bad error
	enum := func(what string, v uint32, last uint8) uint8 {
		if v > uint32(last) && bad == nil {
			bad = fmt.Errorf("profile of %s: unknown %s %d", site, what, v)
		}
		return uint8(v)
	}
	p.Inbound = overlay.Inbound(enum("inbound rule", m.GetInbound(), uint8(overlay.InboundOpen)))
	p.Filter = overlay.Filter(enum("filter", m.GetFilter(), uint8(overlay.FilterStrict)))
	p.Refusal = overlay.Refusal(enum("refusal", m.GetRefusal(), uint8(overlay.RefuseReset)))
	p.NAT.Mapping = overlay.NATBehaviour(enum("NAT mapping", m.GetNatMapping(), uint8(overlay.AddressAndPortDependent)))
	p.NAT.Filtering = overlay.NATBehaviour(enum("NAT filtering", m.GetNatFiltering(), uint8(overlay.AddressAndPortDependent)))
	p.NATUDP.Mapping = overlay.NATBehaviour(enum("NAT mapping", m.GetNatUdpMapping(), uint8(overlay.AddressAndPortDependent)))
	p.NATUDP.Filtering = overlay.NATBehaviour(enum("NAT filtering", m.GetNatUdpFiltering(), uint8(overlay.AddressAndPortDependent)))
	p.Egress = overlay.Egress(enum("egress rule", m.GetEgress(), uint8(overlay.EgressHTTPProxyTLS)))
	if r := m.GetIpv6Rules(); r != nil {
		p.IPv6Rules = overlay.IPv6Rules{
			Measured: true, UDP: r.GetUdp(),
			Inbound: overlay.Inbound(enum("inbound rule of IPv6", r.GetInbound(), uint8(overlay.InboundOpen))),
			Filter:  overlay.Filter(enum("filter of IPv6", r.GetFilter(), uint8(overlay.FilterStrict))),
			Refusal: overlay.Refusal(enum("refusal of IPv6", r.GetRefusal(), uint8(overlay.RefuseReset))),
			Egress:  overlay.Egress(enum("egress rule of IPv6", r.GetEgress(), uint8(overlay.EgressHTTPProxyTLS))),
		}
	}
	if m.GetFirstPort() > 65535 || m.GetLastPort() > 65535 {
		return p, fmt.Errorf("profile of %s: ports %d-%d", site, m.GetFirstPort(), m.GetLastPort())
	}
	p.Ports = overlay.Ports{First: uint16(m.GetFirstPort()), Last: uint16(m.GetLastPort())}
	var err error
	if p.Networks, err = NetworksFromPB(m.GetNetworks()); err != nil {
		return p, fmt.Errorf("profile of %s: %w", site, err)
	}
	if p.Private, err = NetworksFromPB(m.GetPrivate()); err != nil {
		return p, fmt.Errorf("profile of %s: private: %w", site, err)
	}
	if m.GetSeenAt() != "" {
		if p.SeenAt, err = netip.ParseAddr(m.GetSeenAt()); err != nil {
			return p, fmt.Errorf("profile of %s: %w", site, err)
		}
	}
	for _, v := range m.GetForbidden() {
		if t, ok := techniqueFromPB(v); ok {
			p.Forbidden = append(p.Forbidden, t)
		}
	}
	if bad != nil {
		return p, bad
	}
	return p, p.Check()
}
