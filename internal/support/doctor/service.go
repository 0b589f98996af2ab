package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/wire"
)

// service observes the layers to a daemon until one fails, by the address of its name that leads there.
func (l *looker) service(ctx context.Context, what, address string, via carrier.HTTPProxy) Service {
	s := Service{What: what, Address: address, Via: via.Addr}
	first := address
	if via.Addr != "" {
		first = via.Addr
	}
	addrs, port := s.resolve(ctx, first)
	if len(addrs) == 0 {
		return s
	}
	return bestOf(ctx, s, addrs[:min(len(addrs), maxAddresses)], func(ctx context.Context, s *Service, a netip.Addr) {
		l.serviceAt(ctx, s, netip.AddrPortFrom(a, port), via)
	})
}

// maxAddresses bounds the addresses of one name that are looked at.
const maxAddresses = 8

// bestOf looks at all addresses of a name concurrently, as daemons try one after another: what one of
// them does matters only if no other leads to the daemon. It returns the first that does, or else the
// one that got farthest.
func bestOf(ctx context.Context, s Service, addrs []netip.Addr, look func(context.Context, *Service, netip.Addr)) Service {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := make([]Service, len(addrs))
	done := make(chan int, len(addrs))
	for i, a := range addrs {
		seen[i] = s
		go func() { // ends with ctx
			look(ctx, &seen[i], a)
			done <- i
		}()
	}
	best := -1
	for range addrs {
		i := <-done
		if best >= 0 && seen[best].Hello.Got {
			continue // it was ended
		}
		if best < 0 || seen[i].progress() > seen[best].progress() || seen[i].progress() == seen[best].progress() && i < best {
			best = i
		}
		if seen[i].Hello.Got {
			cancel()
		}
	}
	return seen[best]
}

// progress returns how many layers were passed.
func (s *Service) progress() (n int) {
	connected := s.Connect.Outcome == Connected
	for _, passed := range []bool{connected, connected && (!s.Tunnel.Asked || s.Tunnel.Open), len(s.TLS.Chain) > 0, s.TLS.Done, s.Hello.Got} {
		if passed {
			n++
		}
	}
	return n
}

// serviceAt observes the layers to a daemon at one of its addresses, or of the HTTP proxy's, until one
// fails.
func (l *looker) serviceAt(ctx context.Context, s *Service, first netip.AddrPort, via carrier.HTTPProxy) {
	var o dialOptions
	if l.smallControl() {
		o.segment = carrier.MinMTU - headers(first.Addr())
	}
	conn, c := connectIn(ctx, first, o)
	if s.Connect = c; conn == nil {
		if c.Outcome == Silent {
			s.Connect.Hops = hops(ctx, c.To)
		}
		return
	}
	ctx = farther(ctx, c.Took)
	if via.Addr != "" {
		start := time.Now()
		if s.Tunnel = tunnel(ctx, conn, via, s.Address); !s.Tunnel.Open {
			conn.Close()
			return
		}
		ctx = farther(ctx, time.Since(start))
	}
	s.Segment.PathMTU, s.Segment.Most = pathMTU(conn), o.segment
	l.checkGreeting(ctx, s, conn, via)
}

// smallControl reports whether the daemon limits its control connection to small packets, as a
// gateway does, which knows nothing of the path yet.
func (l *looker) smallControl() bool { return limitsSegments && l.s.Role != control.RoleHelper }

// headers returns the bytes of an IP and a TCP header without options.
func headers(a netip.Addr) int {
	if a.Is6() {
		return 60
	}
	return 40
}

// resolve resolves the host to addresses.
func (s *Service) resolve(ctx context.Context, address string) ([]netip.Addr, uint16) {
	host, port, err := splitPort(address)
	if err != nil {
		s.Resolve.Name, s.Resolve.Err = address, err.Error()
		return nil, 0
	}
	if a, err := netip.ParseAddr(host); err == nil {
		s.Resolve.Addrs = []netip.Addr{a.Unmap()}
		return s.Resolve.Addrs, port
	}
	ctx, cancel := bounded(ctx, nameBound)
	defer cancel()
	start := time.Now()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	s.Resolve = Resolution{Name: host, Took: time.Since(start)}
	if err != nil {
		var dns *net.DNSError
		s.Resolve.Err, s.Resolve.NotFound = err.Error(), errors.As(err, &dns) && dns.IsNotFound
		return nil, 0
	}
	for _, a := range addrs {
		s.Resolve.Addrs = append(s.Resolve.Addrs, a.Unmap())
	}
	return s.Resolve.Addrs, port
}

func splitPort(address string) (string, uint16, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := net.LookupPort("tcp", port)
	return host, uint16(n), err
}

// connectAny dials addresses concurrently and returns the first connection; without any, the result of
// the first address.
func connectAny(ctx context.Context, addrs []netip.Addr, port uint16, o dialOptions) (*net.TCPConn, Connection) {
	addrs = addrs[:min(len(addrs), maxAddresses)]
	conns := make([]*net.TCPConn, len(addrs))
	seen := make([]Connection, len(addrs))
	var all sync.WaitGroup
	for i, a := range addrs {
		all.Go(func() { conns[i], seen[i] = connectIn(ctx, netip.AddrPortFrom(a, port), o) })
	}
	all.Wait()
	best := 0
	for i := range conns {
		if conns[best] == nil && conns[i] != nil {
			best = i
		}
	}
	for i, c := range conns {
		if i != best && c != nil {
			c.Close()
		}
	}
	return conns[best], seen[best]
}

func connectIn(ctx context.Context, to netip.AddrPort, o dialOptions) (*net.TCPConn, Connection) {
	ctx, cancel := bounded(ctx, connectBound)
	defer cancel()
	return connect(ctx, to, o)
}

// hops sends SYNs with TTL one, two, and so on, to where one was dropped: the routers that report
// an expired TTL are before the device that drops.
func hops(ctx context.Context, to netip.AddrPort) []Hop {
	const most = 8
	ctx, cancel := bounded(ctx, hopBound)
	defer cancel()
	found := make([]Hop, most)
	var all sync.WaitGroup
	for i := range found {
		all.Go(func() {
			conn, c := connect(ctx, to, dialOptions{ttl: i + 1})
			if conn != nil {
				conn.Close()
			}
			if c.Replier.IsValid() && (strings.HasPrefix(c.Reply, "time to live") || strings.HasPrefix(c.Reply, "hop limit")) {
				found[i] = Hop{TTL: i + 1, Addr: c.Replier}
			}
		})
	}
	all.Wait()
	var out []Hop
	for _, h := range found {
		if h.TTL > 0 {
			out = append(out, h)
		}
	}
	return out
}

// tunnel asks an HTTP proxy for a tunnel to address.
func tunnel(ctx context.Context, conn *net.TCPConn, via carrier.HTTPProxy, address string) Tunnel {
	ctx, cancel := bounded(ctx, callBound)
	defer cancel()
	t := Tunnel{Asked: true, User: via.User}
	if err := via.Tunnel(ctx, conn, address); err != nil {
		t.Err = err.Error()
		return t
	}
	t.Open = true
	return t
}

// checkGreeting makes the TLS handshake and reads the first frame.
func (l *looker) checkGreeting(ctx context.Context, s *Service, conn net.Conn, via carrier.HTTPProxy) {
	host, _, _ := net.SplitHostPort(s.Address)
	start := time.Now()
	g, err := greetIn(ctx, conn, l.pair, host, false, shakeBound)
	s.TLS = Handshake{Tried: true, Done: g.Shook, Took: time.Since(start)}
	l.note(&s.TLS, g)
	switch {
	case g.Shook:
		s.Hello.fill(g, err)
		return
	case timedOut(err):
		s.TLS.Silent, s.TLS.Err = true, err.Error()
		s.Segment = l.segments(ctx, s, host, via)
		return
	}
	s.TLS.Err = err.Error()
	if len(s.TLS.Chain) > 0 {
		return
	}
	// A server that does not follow the daemons' protocol may show its certificate to a less strict
	// client.
	if conn := redial(ctx, s, via, 0); conn != nil {
		g, _ := greetIn(ctx, conn, l.pair, host, true, segmentBound)
		l.note(&s.TLS, g)
	}
}

func greetIn(ctx context.Context, conn net.Conn, own tls.Certificate, host string, lenient bool, bound time.Duration) (control.Greeting, error) {
	ctx, cancel := bounded(ctx, bound)
	defer cancel()
	return control.Greet(ctx, conn, own, host, lenient)
}

// redial makes a second connection to the destination of the first.
func redial(ctx context.Context, s *Service, via carrier.HTTPProxy, segment int) *net.TCPConn {
	ctx, cancel := bounded(ctx, segmentBound)
	defer cancel()
	conn, _ := connect(ctx, s.Connect.To, dialOptions{segment: segment})
	if conn == nil || via.Addr == "" {
		return conn
	}
	if !tunnel(ctx, conn, via, s.Address).Open {
		conn.Close()
		return nil
	}
	return conn
}

// segments repeats a handshake that stalled with smaller segments, all concurrently.
func (l *looker) segments(ctx context.Context, s *Service, host string, via carrier.HTTPProxy) Segments {
	sizes := []int{0, 1360, 1220, 1000, 536}
	passed := make([]bool, len(sizes))
	var all sync.WaitGroup
	for i, size := range sizes {
		all.Go(func() {
			conn := redial(ctx, s, via, size)
			if conn == nil {
				return
			}
			g, _ := greetIn(ctx, conn, l.pair, host, false, segmentBound)
			passed[i] = g.Shook || len(g.Chain) > 0
		})
	}
	all.Wait()
	seg := Segments{Tried: true, PathMTU: s.Segment.PathMTU}
	for i, size := range sizes {
		if passed[i] {
			seg.Passed = append(seg.Passed, size)
		} else {
			seg.Stalled = append(seg.Stalled, size)
		}
	}
	return seg
}

// note records the TLS part of a greeting.
func (l *looker) note(h *Handshake, g control.Greeting) {
	if g.TLS.Version != 0 {
		h.Version = tls.VersionName(g.TLS.Version)
	}
	if len(g.Chain) == 0 {
		return
	}
	h.Chain = nil
	for i, c := range g.Chain {
		cert := Cert{Subject: c.Subject.String(), Issuer: c.Issuer.String(), NotBefore: c.NotBefore, NotAfter: c.NotAfter}
		if id, err := control.IdentityOf(c); err == nil {
			cert.Identity = id.String()
		}
		if i == 0 {
			cert.OfGrid = l.ofGrid(c, g.Chain[1:])
		}
		h.Chain = append(h.Chain, cert)
	}
}

// fill records the first frame.
func (h *Hello) fill(g control.Greeting, err error) {
	h.OwnOldest, h.OwnNewest = control.OldestVersion, control.NewestVersion
	switch f := g.First.(type) {
	case *wire.ControlHello:
		h.Got, h.Oldest, h.Newest, h.Software = true, f.Oldest, f.Newest, f.Software
	case *wire.Refuse:
		h.Refusal, h.RefusedBy = f.Text, f.By
	case nil:
		h.Err = err.Error()
	default:
		h.Err = fmt.Sprintf("a %v in place of a control hello", f.Type())
	}
}

func timedOut(err error) bool {
	var ne net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}

// socket observes the helper's socket as a process of this user would.
func (l *looker) socket() {
	path := l.s.Socket
	if path == "" {
		return
	}
	o := &l.o.Local
	o.Socket = path
	if info, err := os.Stat(path); err == nil {
		o.SocketMode = info.Mode().String()
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		o.SocketErr = err.Error()
		o.SocketAbsent, o.SocketDenied = errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission)
		return
	}
	conn.Close()
	if err := answers(l.s.Door); err != nil {
		o.SocketErr, o.SocketSilent = err.Error(), true
	}
}

// answerTime is how long the helper on this node may take to answer.
const answerTime = 2 * time.Second

// answers returns an error if a process accepts connections at a socket of HTTP/2, and does not answer:
// the kernel accepts them for a process that is stopped, too.
func answers(socket string) error {
	if socket == "" {
		return nil
	}
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return nil // an older helper has none
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(answerTime))
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // and empty SETTINGS (RFC 9113, section 3.4)
	if _, err := conn.Write([]byte(preface)); err == nil {
		_, err = conn.Read(make([]byte, 1))
		if timedOut(err) {
			return fmt.Errorf("%s: no answer within %v", socket, answerTime)
		}
	}
	return nil
}
