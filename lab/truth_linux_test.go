//go:build system

package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
)

// truth describes the effect of one preset's rules. out, to443 and udp are about a node that dials
// a public host's port 7000, 443 and UDP 7000; in and inRange about that host dialling the node's
// ports 7000 and 20500; ext, extRange and extClosed about it dialling the gateway's WAN address on
// 7000, 20500 and a port without a listener. Nodes answer "node", gateways "gw", public hosts
// "pub".
type truth struct {
	preset                   string
	out, to443, udp          string
	in, inRange              string
	ext, extRange, extClosed string
}

var truths = []truth{
	{"open", "pub", "pub", "echo", "node", "node", "gw", "gw", "reset"},
	{"port-range", "pub", "pub", "echo", "drop", "node", "drop", "gw", "drop"},
	{"syn-drop", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"syn-reset", "pub", "pub", "echo", "reset", "reset", "reset", "reset", "reset"},
	{"stateful", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"stateful-reject", "pub", "pub", "echo", "reset", "reset", "reset", "reset", "reset"},
	{"stateful-strict", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"stateful-strict-new", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"stateful-noloose", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"nat", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"nat-answers", "pub", "pub", "echo", "drop", "drop", "gw", "gw", "reset"},
	{"nat-random", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"nat-fullcone", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"nat-1to1", "pub", "pub", "echo", "drop", "drop", "node", "node", "reset"},
	{"nat-symmetric", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"no-udp", "pub", "pub", "drop", "drop", "drop", "drop", "drop", "drop"},
	{"egress-443", "drop", "pub", "drop", "drop", "drop", "drop", "drop", "drop"},
	{"http-proxy", "drop", "drop", "drop", "drop", "drop", "drop", "drop", "drop"},
	{"mtu-1400", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"nat-double", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"udp-slow", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"nat-ipv6", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"nat-symmetric-ipv6", "pub", "pub", "echo", "drop", "drop", "drop", "drop", "drop"},
	{"syn-drop-no-udp", "pub", "pub", "drop", "drop", "drop", "drop", "drop", "drop"},
}

// TestPresetTruth checks every rule of every preset with real packets: all presets are sites of one
// lab, and all probes run at once, over IPv4 and, where a site has it, over IPv6, for which the
// same truths hold.
func TestPresetTruth(t *testing.T) {
	spec := Spec{IPv6: true, Sites: []Site{{Name: "pub", Preset: Public, Nodes: []string{"x"}}}}
	for i, name := range Presets() {
		spec.Sites = append(spec.Sites, Site{Name: fmt.Sprintf("p%d", i), Preset: name, Nodes: Nodes(2)})
	}
	l := up(t, spec)
	pub := l.Host("pub/x")
	serveBanner(t, pub, 7000, "pub")
	serveBanner(t, pub, 443, "pub")
	serveEcho(t, pub, 7000)
	p := probes{t: t, l: l}
	defer p.Wait()
	for i, name := range Presets() {
		base, hidden := strings.CutPrefix(name, noRoute)
		at := slices.IndexFunc(truths, func(tr truth) bool { return tr.preset == base })
		if at < 0 {
			t.Errorf("%s: no truth to hold it to", name)
			continue
		}
		site := fmt.Sprintf("p%d", i)
		for _, port := range []int{7000, 20500} {
			serveBanner(t, l.Host(site+"/n1"), port, "node")
			serveBanner(t, l.Host(site+"/gw"), port, "gw")
		}
		for _, v := range []version{overIPv4, overIPv6} {
			if !v.addr(l.Host(site + "/n1")).IsValid() {
				continue
			}
			if hidden {
				p.hidden(site, v, truths[at])
			} else {
				p.plain(site, v, truths[at])
			}
			p.expect(name, l.Host(site+"/n2"), "tcp", v.addr(l.Host(site+"/n1")), 7000, "node")
		}
	}
}

// A version of IP, as the addresses that a host and a site's gateway have in it.
type version struct {
	addr    func(*Host) netip.Addr
	outside func(l *Lab, site string) netip.Addr // of the gateway, as seen by others
}

var (
	overIPv4 = version{(*Host).Addr, (*Lab).Outside}
	overIPv6 = version{(*Host).Addr6, func(l *Lab, site string) netip.Addr { return l.Host(site + "/gw").WANAddr6() }}
)

// probes are checks of a lab's rules, all made at the same time.
type probes struct {
	sync.WaitGroup
	t *testing.T
	l *Lab
}

func (p *probes) plain(site string, v version, tr truth) {
	l := p.l
	pub, node, gw, ext := l.Host("pub/x"), l.Host(site+"/n1"), l.Host(site+"/gw"), v.outside(l, site)
	p.out(tr.preset, node, v.addr(pub), tr)
	p.out(tr.preset, gw, v.addr(pub), tr)
	p.expect(tr.preset, pub, "tcp", v.addr(node), 7000, tr.in)
	p.expect(tr.preset, pub, "tcp", v.addr(node), 20500, tr.inRange)
	p.expect(tr.preset, pub, "tcp", ext, 7000, tr.ext)
	p.expect(tr.preset, pub, "tcp", ext, 20500, tr.extRange)
	p.expect(tr.preset, pub, "tcp", ext, 7001, tr.extClosed)
	if l.Proxy(site) != nil {
		p.expect(tr.preset, node, "tcp", v.addr(l.Host(site+"/proxy")), 3128, "HTTP/1.1")
		p.expect(tr.preset, node, "tcp", v.addr(l.Host(site+"/proxy")), 443, "drop")
	}
}

// hidden is plain for a site whose nodes have no route: they reach only their gateway, and the
// gateway has the access that the nodes would have.
func (p *probes) hidden(site string, v version, tr truth) {
	l := p.l
	pub, node, gw, ext := l.Host("pub/x"), l.Host(site+"/n1"), l.Host(site+"/gw"), v.outside(l, site)
	preset := noRoute + tr.preset
	none := truth{out: "unreach", to443: "unreach", udp: "unreach"}
	p.out(preset, node, v.addr(pub), none)
	p.out(preset, gw, v.addr(pub), tr)
	p.expect(preset, node, "tcp", v.addr(gw), 7000, "gw")
	p.expect(preset, gw, "tcp", v.addr(node), 7000, "node")
	p.expect(preset, pub, "tcp", v.addr(node), 7000, "drop")
	asGateway := strings.NewReplacer("node", "gw")
	if tr.preset == "nat-answers" { // a gateway in place of the nodes gets no more access than they
		asGateway = strings.NewReplacer("gw", "reset")
	}
	p.expect(preset, pub, "tcp", ext, 7000, asGateway.Replace(tr.ext))
	p.expect(preset, pub, "tcp", ext, 20500, asGateway.Replace(tr.extRange))
	p.expect(preset, pub, "tcp", ext, 7001, tr.extClosed)
	if l.Proxy(site) != nil {
		p.expect(preset, gw, "tcp", v.addr(l.Host(site+"/proxy")), 3128, "HTTP/1.1")
		p.expect(preset, node, "tcp", v.addr(l.Host(site+"/proxy")), 3128, "unreach")
	}
}

func (p *probes) out(preset string, from *Host, pub netip.Addr, tr truth) {
	p.expect(preset, from, "tcp", pub, 7000, tr.out)
	p.expect(preset, from, "tcp", pub, 443, tr.to443)
	p.expect(preset, from, "udp", pub, 7000, tr.udp)
}

func (p *probes) expect(preset string, from *Host, network string, to netip.Addr, port uint16, want string) {
	p.Go(func() {
		got := ""
		if want == "HTTP/1.1" { // a proxy sends only after a request
			got, _, _ = strings.Cut(askProxy(from, to, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), " ")
		} else {
			wait := busyPatience
			if want == "drop" {
				wait = patience
			}
			got, _, _ = strings.Cut(probeAll(from, network, netip.AddrPortFrom(to, port), wait), " ")
		}
		if got != want {
			p.t.Errorf("%s: %s from %s to %v:%d: %s, want %s", preset, network, from.Name(), to, port, got, want)
		}
	})
}
