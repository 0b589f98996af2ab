//go:build system

package lab

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// quiet is how long to wait for packets that must not arrive.
const quiet = 200 * time.Millisecond

// A behaviour is what a prober measures at its place, in the terms of RFC 4787.
type behaviour struct {
	udp       bool                 // datagrams go out and their answers return
	leaks     bool                 // datagrams go out, but answers do not return
	mapping   overlay.NATBehaviour // section 4.1; none where others see the inside's own address
	keepsPort bool                 // section 4.2.1
	filtering overlay.NATBehaviour // section 5; none where nothing filters, or nothing passes
	mtuOut    int                  // the largest of 1400, 1401 and 1500 bytes that passes unfragmented without MTU discovery
	mtuIn     int
	refusal   string // result of an unsolicited connection: drop or reset; "" where it is let in
	ipv6      bool   // connections go out, and unsolicited ones do not come in
}

// wanted returns the behaviour that a profile describes.
func wanted(p overlay.SiteProfile) behaviour {
	b := behaviour{udp: p.UDP, mapping: p.NAT.Mapping, keepsPort: p.NAT.KeepsPort, refusal: "drop", ipv6: p.IPv6}
	if p.Inbound == overlay.InboundOpen {
		b.refusal = ""
	} else if p.Refusal == overlay.RefuseReset {
		b.refusal = "reset"
	}
	if !p.UDP {
		return b
	}
	b.mtuOut, b.mtuIn = 1500, 1500
	if p.MTU > 0 {
		b.mtuOut, b.mtuIn = int(p.MTU), int(p.MTU)
	}
	switch {
	case p.NAT.Translates():
		b.filtering = p.NAT.Filtering
	case p.Inbound == overlay.InboundOpen, p.Filter == overlay.FilterStateless: // concerns TCP
		b.filtering = overlay.EndpointIndependent
	default:
		b.filtering = overlay.AddressAndPortDependent
	}
	if !p.NAT.Translates() {
		b.keepsPort = true // nothing could change it
	}
	return b
}

// TestBehaviour compares every preset with its profile, from a node or, where nodes have no route,
// from the gateway. All are sites of one lab and probed at once.
func TestBehaviour(t *testing.T) {
	spec := Spec{Sites: []Site{{Name: "pub", Preset: Public, Nodes: []string{"a", "b", "outsider"}}}}
	for i, name := range Presets() {
		spec.Sites = append(spec.Sites, Site{Name: fmt.Sprintf("p%d", i), Preset: name, Nodes: Nodes(1)})
	}
	l := up(t, spec)
	serveEcho(t, l.Host("pub/a"), 7000)
	serveEcho(t, l.Host("pub/a"), 7001)
	serveEcho(t, l.Host("pub/b"), 7000)
	serveBanner(t, l.Host("pub/a"), 7000, "pub")
	var all sync.WaitGroup
	defer all.Wait()
	for i, name := range Presets() {
		all.Go(func() {
			profile, err := Profile(name)
			if err != nil {
				t.Error(err)
				return
			}
			pr := prober{t: t, l: l, preset: name, site: fmt.Sprintf("p%d", i), profile: profile}
			if got, want := pr.probe(), wanted(profile); got != want {
				t.Errorf("%s: %+v\nits profile promises %+v", name, got, want)
			}
		})
	}
}

// A prober measures one site of a lab with the public hosts a, b and outsider.
type prober struct {
	t       *testing.T
	l       *Lab
	preset  string
	site    string
	profile overlay.SiteProfile
}

// inside returns the host that the profile describes.
func (p prober) inside() *Host {
	if p.profile.GatewayOnly {
		return p.l.Host(p.site + "/gw")
	}
	return p.l.Host(p.site + "/n1")
}

// ownPort is the port of a UDP socket on the inside host, outside any open range.
const ownPort = 30100

func (p prober) probe() behaviour {
	a := p.l.Host("pub/a")
	b := behaviour{refusal: p.refusal(overIPv4)}
	if v6 := overIPv6.addr(p.inside()); v6.IsValid() {
		out := probeAll(p.inside(), "tcp", netip.AddrPortFrom(a.Addr6(), 7000), busyPatience)
		b.ipv6 = strings.HasPrefix(out, "pub ") && p.refusal(overIPv6) == "drop" && p.filteringSix() == overlay.AddressAndPortDependent
	}
	first, seen := p.ask(ownPort, "pub/a", 7000)
	if !seen.IsValid() {
		b.leaks = p.leaks(first)
		return b
	}
	b.udp = true
	b.filtering = p.filtering(first, seen, a.Addr())
	b.mtuOut, b.mtuIn = p.largest(first, true), p.largest(first, false)
	b.mapping, b.keepsPort = p.mapping()
	return b
}

// refusal connects from outside to a port of the inside host without a listener.
func (p prober) refusal(v version) string {
	to := v.addr(p.inside())
	if p.profile.NAT.Translates() && v.addr(p.inside()).Is4() || p.profile.GatewayOnly {
		to = v.outside(p.l, p.site)
	}
	wait := busyPatience
	if wanted(p.profile).refusal == "drop" {
		wait = patience
	}
	got := probeAll(p.l.Host("pub/outsider"), "tcp", netip.AddrPortFrom(to, 7009), wait)
	if p.profile.Inbound == overlay.InboundOpen && got == "reset" { // from the host, which it reached
		return ""
	}
	return got
}

// ask sends a datagram from a port of the inside host and returns its socket and the address that
// the receiver saw; not valid if no answer arrives.
func (p prober) ask(port uint16, host string, toPort uint16) (pc net.PacketConn, seen netip.AddrPort) {
	pc, err := p.inside().ListenPacket("udp", fmt.Sprintf(":%d", port))
	if err != nil {
		p.t.Errorf("%s: %v", p.preset, err)
		return nil, seen
	}
	p.t.Cleanup(func() { pc.Close() })
	return pc, p.askFrom(pc, netip.AddrPortFrom(p.l.Host(host).Addr(), toPort))
}

func (p prober) askFrom(pc net.PacketConn, to netip.AddrPort) (seen netip.AddrPort) {
	if _, err := pc.WriteTo([]byte("hello"), net.UDPAddrFromAddrPort(to)); err != nil {
		return seen // the host's own output chain may refuse
	}
	wait := busyPatience
	if !p.profile.UDP {
		wait = patience
	}
	pc.SetReadDeadline(time.Now().Add(wait))
	buf := make([]byte, 100)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return seen
		}
		if from.String() == to.String() {
			seen, _ = netip.ParseAddrPort(strings.TrimPrefix(string(buf[:n]), "echo "))
			return seen
		}
	}
}

// leaks reports whether a datagram from pc reaches the outside.
func (p prober) leaks(pc net.PacketConn) bool {
	sink, err := p.l.Host("pub/b").ListenPacket("udp", ":0")
	if err != nil {
		p.t.Errorf("%s: %v", p.preset, err)
		return false
	}
	defer sink.Close()
	to := netip.AddrPortFrom(p.l.Host("pub/b").Addr(), sink.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	pc.WriteTo([]byte("hello"), net.UDPAddrFromAddrPort(to)) // an error comes from the host's own output chain
	sink.SetReadDeadline(time.Now().Add(quiet))
	_, _, err = sink.ReadFrom(make([]byte, 100))
	return err == nil
}

// mapping asks two ports of one host and one of another from each of several ports: random ports
// may agree once, not always.
func (p prober) mapping() (mapping overlay.NATBehaviour, kept bool) {
	const tries = 4
	a, b := p.l.Host("pub/a").Addr(), p.l.Host("pub/b").Addr()
	anyAddress, anyPort, own := true, true, true
	kept = true
	for port := uint16(ownPort + 1); port <= ownPort+tries; port++ {
		pc, one := p.ask(port, "pub/a", 7000)
		otherPort := p.askFrom(pc, netip.AddrPortFrom(a, 7001))
		otherAddr := p.askFrom(pc, netip.AddrPortFrom(b, 7000))
		if again := p.askFrom(pc, netip.AddrPortFrom(a, 7000)); again != one {
			p.t.Errorf("%s: one destination sees first %v, then %v", p.preset, one, again)
		}
		anyPort = anyPort && otherPort == one
		anyAddress = anyAddress && otherAddr == one
		kept = kept && one.Port() == port
		own = own && (one.Addr() == p.inside().Addr() || one.Addr() == p.inside().WANAddr())
	}
	switch {
	case own && anyPort && anyAddress && !p.profile.NAT.Translates():
		return overlay.NATNone, kept
	case anyPort && anyAddress:
		return overlay.EndpointIndependent, kept
	case anyPort:
		return overlay.AddressDependent, kept
	default:
		return overlay.AddressAndPortDependent, kept
	}
}

// filtering makes two strangers send to where pc is seen from outside: another port of the host
// that it talked to, at address, and another host.
func (p prober) filtering(pc net.PacketConn, seen netip.AddrPort, address netip.Addr) overlay.NATBehaviour {
	for _, stranger := range []string{"pub/a", "pub/outsider"} {
		from, err := p.l.Host(stranger).ListenPacket("udp"+versionOf(seen.Addr()), ":0")
		if err != nil {
			p.t.Errorf("%s: %v", p.preset, err)
			return overlay.NATNone
		}
		defer from.Close()
		if _, err := from.WriteTo([]byte("stranger"), net.UDPAddrFromAddrPort(seen)); err != nil {
			p.t.Errorf("%s: %v", p.preset, err)
		}
	}
	var otherPort, otherAddr bool
	pc.SetReadDeadline(time.Now().Add(busyPatience))
	if wanted(p.profile).filtering == overlay.AddressAndPortDependent {
		pc.SetReadDeadline(time.Now().Add(quiet))
	}
	for !otherPort || !otherAddr {
		_, from, err := pc.ReadFrom(make([]byte, 100))
		if err != nil {
			break
		}
		if from.(*net.UDPAddr).AddrPort().Addr().Unmap() == address {
			otherPort = true
		} else {
			otherAddr = true
		}
	}
	switch {
	case otherPort && otherAddr:
		return overlay.EndpointIndependent
	case otherPort:
		return overlay.AddressDependent
	default:
		return overlay.AddressAndPortDependent
	}
}

func versionOf(a netip.Addr) string {
	if a.Is6() {
		return "6"
	}
	return "4"
}

// filteringSix is filtering over IPv6.
func (p prober) filteringSix() overlay.NATBehaviour {
	pc, err := p.inside().ListenPacket("udp6", fmt.Sprintf(":%d", ownPort))
	if err != nil {
		p.t.Errorf("%s: %v", p.preset, err)
		return overlay.NATNone
	}
	defer pc.Close()
	a := p.l.Host("pub/a").Addr6()
	seen := p.askFrom(pc, netip.AddrPortFrom(a, 7000))
	if !seen.IsValid() {
		return overlay.NATNone
	}
	return p.filtering(pc, seen, a)
}

// largest returns the largest of three IPv4 packets that passes whole between pc and its first
// partner, outward or back. A larger one must be dropped without an ICMP error, which would show as
// an error of the next write.
func (p prober) largest(pc net.PacketConn, outward bool) int {
	dontFragment(p.t, pc)
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(p.l.Host("pub/a").Addr(), 7000))
	largest := 0
	for _, size := range []int{1400, 1401, 1401, 1500, 1500} {
		out := make([]byte, size-udpOverhead)
		answer := "echo "
		if !outward {
			out, answer = []byte(fmt.Sprintf("size %d ", size)), ""
		}
		if _, err := pc.WriteTo(out, to); err != nil {
			p.t.Errorf("%s: sending %d bytes again: %v", p.preset, size, err)
			return largest
		}
		wait := busyPatience
		if p.profile.MTU > 0 && size > int(p.profile.MTU) {
			wait = quiet
		}
		pc.SetReadDeadline(time.Now().Add(wait))
		buf := make([]byte, 1500)
		n, _, err := pc.ReadFrom(buf)
		if err == nil && strings.HasPrefix(string(buf[:n]), answer) && (outward || n == size-udpOverhead) {
			largest = size
		}
	}
	return largest
}
