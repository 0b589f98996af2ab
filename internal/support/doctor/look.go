package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/multihome"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Subject is the daemon on whose behalf the doctor observes.
type Subject struct {
	Role    control.Role // RoleHelper, RoleFrontal, or RoleAdmin for the path to the broker alone
	Address string       // host:port of the frontal or the broker above it
	Others  []string     // of a frontal with several brokers: those besides Address, the first 7 of them

	HTTPProxy carrier.HTTPProxy // from its settings; the zero value is none

	Cert, Key, CA string // files

	Socket  string               // of the helper; empty for a frontal
	Door    string               // of its node service, which answers in HTTP/2; empty: it is not asked
	Profile *overlay.SiteProfile // from the frontal's settings; nil for a helper, which receives it

	Settings string   // file with the settings
	Denied   []string // what they deny by default, and the lines that permit it

	MeasuresMTU bool // they leave profile.mtu to a measurement

	Proxies []netip.AddrPort // further public addresses to try: proxies, or listeners of a peer
	Pair    *Pair            // the broker's plan for a pair, or nil

	// Progress, if not nil, is called with each step. Calls do not overlap.
	Progress func(what string)
}

// Bounds of a run. The whole fits in 10 s even when nothing answers; way.go extends them for long
// paths.
const (
	wholeBound    = 9 * time.Second
	nameBound     = 1500 * time.Millisecond
	connectBound  = 2500 * time.Millisecond // two retransmissions of a SYN
	shakeBound    = 2 * time.Second
	segmentBound  = 1200 * time.Millisecond
	callBound     = 2 * time.Second
	brokerBound   = 3 * time.Second // a gateway waits two seconds for its broker to reconnect
	hopBound      = 700 * time.Millisecond
	maxReflectors = 6
	maxOthers     = 7
)

// upper returns the role of the daemon above the subject.
func (s Subject) upper() control.Role {
	if s.Role == control.RoleHelper {
		return control.RoleFrontal
	}
	return control.RoleBroker
}

// proxyTo returns the HTTP proxy on the path to the daemon above: a helper reaches its frontal
// inside the site.
func (s Subject) proxyTo() carrier.HTTPProxy {
	if s.Role == control.RoleHelper {
		return carrier.HTTPProxy{}
	}
	return s.HTTPProxy
}

// Look makes all observations, in parallel where they are independent. It ends with ctx, within 10
// s and 16 round trips of the path to the broker in any case, and leaves nothing running.
func Look(ctx context.Context, s Subject) Observations {
	life := ctx
	ctx, cancel := context.WithTimeout(life, wholeBound)
	defer cancel()
	l := &looker{s: s, o: Observations{Start: time.Now(), Helper: s.Role == control.RoleHelper, MeasuresMTU: s.MeasuresMTU, Settings: s.Settings, Denied: s.Denied, Pair: s.Pair, Session: Session{Profile: s.Profile}}}
	l.files()
	var local sync.WaitGroup
	local.Go(l.socket)
	l.services(ctx)
	// One session provides all the information: the first that can be opened.
	up := slices.IndexFunc(l.o.Services, func(s Service) bool { return s.Hello.Got })
	if up >= 0 && s.Role != control.RoleAdmin {
		at := l.o.Services[up].Address
		l.progress("session with the %v at %s", s.upper(), at)
		far, end := l.longTimeout(life)
		defer end()
		l.session(life, far, at)
	}
	far, end := l.longTimeout(life)
	defer end()
	l.outside(far)
	local.Wait()
	l.o.Took = time.Since(l.o.Start)
	return l.o
}

// services observes every daemon above, concurrently.
func (l *looker) services(ctx context.Context) {
	above := append([]string{l.s.Address}, l.s.Others[:min(len(l.s.Others), maxOthers)]...)
	l.progress("%v at %s", l.s.upper(), strings.Join(above, ", "))
	l.o.Services = make([]Service, len(above))
	var all sync.WaitGroup
	for i, address := range above {
		all.Go(func() { l.o.Services[i] = l.service(ctx, l.s.upper().String(), address, l.s.proxyTo()) })
	}
	all.Wait()
}

// looker is one run.
type looker struct {
	s     Subject
	o     Observations
	pair  tls.Certificate // own; empty if it cannot be loaded
	data  *tls.Config     // for requests to reflectors inside TLS; nil before there is a session
	roots *x509.CertPool

	reflectors []netip.AddrPort // as listed by the broker
	six        []netip.AddrPort // the same hosts over IPv6
	stun       []netip.AddrPort
	stun6      []netip.AddrPort                                                       // over IPv6
	ask        func(context.Context, netip.AddrPort, netip.AddrPort) (Inbound, error) // requests a call-back, while the session lasts
	leave      func()
}

func (l *looker) progress(format string, args ...any) {
	if l.s.Progress != nil {
		l.s.Progress(fmt.Sprintf(format, args...))
	}
}

// files reads the certificate, its key and the CA's certificate.
func (l *looker) files() {
	l.roots = x509.NewCertPool()
	authority := File{Path: l.s.CA, Whose: "the grid's CA"}
	roots, err := control.ReadRoots(l.s.CA)
	if err != nil {
		authority.Err = err.Error()
	} else {
		for _, root := range roots {
			l.roots.AddCert(root)
		}
		authority.NotBefore, authority.NotAfter = roots[0].NotBefore, roots[0].NotAfter
	}
	own := File{Path: l.s.Cert, Whose: "this daemon"}
	pair, err := tls.LoadX509KeyPair(l.s.Cert, l.s.Key)
	if err != nil {
		own.Err = err.Error()
	} else {
		l.pair = pair
		own.NotBefore, own.NotAfter = pair.Leaf.NotBefore, pair.Leaf.NotAfter
		if id, err := control.IdentityOf(pair.Leaf); err != nil {
			own.Err = err.Error()
		} else {
			own.Whose, l.o.Self = id.String(), id.String()
			if id.Role != l.s.Role {
				own.Err = fmt.Sprintf("it is that of %v, and these are the settings of a %v", id, l.s.Role)
			}
		}
		var between []*x509.Certificate // a broker that enrols issues with an intermediate certificate
		for _, der := range pair.Certificate[1:] {
			if c, err := x509.ParseCertificate(der); err == nil {
				between = append(between, c)
			}
		}
		if own.Err == "" && authority.Err == "" && !l.ofGrid(pair.Leaf, between) {
			own.Err = fmt.Sprintf("it was not issued by the CA whose certificate is in %s", l.s.CA)
		}
	}
	l.o.Local.Files = []File{own, authority}
}

// ofGrid reports whether the grid's CA issued the certificate, regardless of dates: an expired
// certificate still belongs to the grid.
func (l *looker) ofGrid(leaf *x509.Certificate, rest []*x509.Certificate) bool {
	between := x509.NewCertPool()
	for _, c := range rest {
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: l.roots, Intermediates: between, CurrentTime: leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	invalid, dated := err.(x509.CertificateInvalidError)
	return err == nil || dated && invalid.Reason == x509.Expired // the CA's own validity is another period
}

// outside observes what is beyond the site: the public hosts that the broker or the caller named.
func (l *looker) outside(ctx context.Context) {
	if l.leave != nil {
		defer l.leave()
	}
	via := l.viaOutside()
	tcp := l.publicHosts(via.Addr != "")
	var all sync.WaitGroup
	seen := make([]Reflector, len(tcp))
	for i, to := range tcp {
		l.progress("%v over TCP", to)
		all.Go(func() { seen[i] = l.askReflector(ctx, to, via) })
	}
	six := make([]Reflector, len(l.overIPv6(via.Addr != "")))
	for i, to := range l.overIPv6(via.Addr != "") {
		all.Go(func() { six[i] = l.askReflector(ctx, to, via) })
	}
	if via.Addr != "" && len(tcp) > 0 {
		all.Go(func() { l.o.Straight = straight(ctx, tcp[0]) })
	}
	if len(l.stun) > 0 && !l.behindGateway() {
		l.progress("STUN servers")
		all.Go(func() { l.datagrams(ctx) })
	}
	if from := reachable(l.reflectors, l.six, multihome.Selected); l.ask != nil && len(from) > 1 && via.Addr == "" && !l.behindGateway() {
		l.progress("a call back from outside")
		all.Go(func() { l.o.Inbound = l.inbound(ctx, from) })
	}
	all.Wait()
	l.o.Reflectors, l.o.IPv6 = seen, six
}

// datagrams sends requests to the STUN servers, and then, with one that answered, tests which sizes
// and rates of datagrams pass.
func (l *looker) datagrams(ctx context.Context) {
	servers := reachable(l.stun, l.stun6, multihome.Selected)
	l.o.UDP = askSTUN(ctx, servers)
	for _, s := range servers {
		if _, ok := l.o.UDP.Seen[s]; ok {
			p := probe.MeasurePath(ctx, s)
			l.o.Path = &p
			return
		}
	}
}

// overIPv6 returns the public hosts to try over IPv6, none where data does not leave directly from
// here.
func (l *looker) overIPv6(proxied bool) []netip.AddrPort {
	if proxied || l.behindGateway() {
		return nil
	}
	return l.six[:min(len(l.six), 2)]
}

// publicHosts returns the hosts to connect to: through an HTTP proxy only those at the port that
// such proxies permit.
func (l *looker) publicHosts(proxied bool) []netip.AddrPort {
	all := distinct(slices.Concat(l.reflectors, l.s.Proxies))
	if !proxied && !l.behindGateway() {
		all = distinct(append(all, l.stun...)) // they also answer over TCP, at another port than 443
	}
	return all[:min(len(all), maxReflectors)]
}

// straight connects to a public host without the HTTP proxy.
func straight(ctx context.Context, to netip.AddrPort) *Connection {
	conn, c := connectIn(ctx, to, dialOptions{})
	if conn != nil {
		conn.Close()
	} else if c.Outcome == Silent {
		c.Hops = hops(ctx, to)
	}
	return &c
}

// behindGateway reports whether this is a node whose data its gateway carries.
func (l *looker) behindGateway() bool {
	p := l.profile()
	return l.s.Role == control.RoleHelper && p != nil && p.GatewayOnly
}

// viaOutside returns the HTTP proxy for data: the daemons use one only where the profile says that
// there is no other way out.
func (l *looker) viaOutside() carrier.HTTPProxy {
	p := l.profile()
	if p != nil && p.Egress.ThroughHTTPProxy() {
		return l.s.HTTPProxy
	}
	return carrier.HTTPProxy{}
}

// profile returns the site's profile, as far as known.
func (l *looker) profile() *overlay.SiteProfile {
	if l.o.Session.Profile != nil {
		return l.o.Session.Profile
	}
	return l.s.Profile
}

func distinct(all []netip.AddrPort) []netip.AddrPort {
	var out []netip.AddrPort
	for _, a := range all {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}
