package doctor

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// session asks the daemon above at address for the site's profile and for reflectors, over a visiting
// session. It sets l.leave and l.ask.
func (l *looker) session(life, ctx context.Context, address string) {
	o := &l.o.Session
	o.Tried, o.At = true, address
	creds, err := control.LoadCredentials(l.s.Cert, l.s.Key, l.s.CA)
	if err != nil {
		o.Err = err.Error()
		return
	}
	l.data = creds.DataClient(control.RoleBroker, control.RoleProxy)
	e := control.NewEndpoint(creds, slog.New(slog.DiscardHandler), nil)
	// The session ends with life, not with ctx: how long the path is beyond a gateway is known only once it has been used.
	life, cancel := context.WithCancel(life)
	patience := boundFor(ctx, connectBound)
	late := time.AfterFunc(patience, cancel)
	s, err := e.Dial(life, control.DialConfig{
		Addr: address, Role: l.s.upper(), Visit: true, HTTPProxy: l.s.proxyTo(), Small: l.smallControl(),
	})
	if !late.Stop() && err == nil {
		s.Close()
		err = fmt.Errorf("the session took longer than %v", patience)
	}
	if err != nil {
		cancel()
		e.Close()
		o.Err = err.Error()
		return
	}
	l.leave = func() { s.Close(); e.Close(); cancel() }
	l.enter(ctx, s)
	l.askHolders(ctx, s)
	l.listReflectors(ctx, s)
	l.ask = func(ctx context.Context, to, from netip.AddrPort) (Inbound, error) { return callBack(ctx, s, to, from) }
}

// enter gets the site's profile from a frontal.
func (l *looker) enter(ctx context.Context, s *control.Session) {
	if s.Peer().Role != control.RoleFrontal {
		return
	}
	ctx, cancel := bounded(ctx, callBound)
	defer cancel()
	r, err := controlpb.NewNodesClient(s.Conn()).Enter(ctx, &controlpb.EnterRequest{Software: control.Software + " doctor"})
	if err != nil {
		l.o.Session.Err = control.FromStatus(err).Error()
		return
	}
	if p, err := control.ProfileFromPB(overlay.SiteID(r.Site), r.Profile); err == nil {
		l.o.Session.Profile = &p
	}
}

// askHolders asks whether another host presents the subject's certificate, too. Older daemons do not know
// the question.
func (l *looker) askHolders(ctx context.Context, s *control.Session) {
	ctx, cancel := bounded(ctx, callBound)
	defer cancel()
	r, err := controlpb.NewTrustClient(s.Conn()).Holders(ctx, &controlpb.HoldersMessage{})
	if err != nil || r.GetKeeps() == "" {
		return
	}
	keeps, err := netip.ParseAddrPort(r.GetKeeps())
	other, otherErr := netip.ParseAddrPort(r.GetOther())
	if err == nil && otherErr == nil {
		l.o.Session.Keeps, l.o.Session.Refused = keeps, other
	}
}

// listReflectors gets the broker's clock and the grid's public addresses.
func (l *looker) listReflectors(ctx context.Context, s *control.Session) {
	ctx, cancel := bounded(ctx, brokerBound)
	defer cancel()
	o := &l.o.Session
	o.Sent = time.Now()
	r, err := controlpb.NewDirectoryClient(s.Conn()).Reflectors(ctx, &controlpb.ReflectorsRequest{})
	o.Got = time.Now()
	if err != nil {
		err = control.FromStatus(err)
		o.ListErr = err.Error()
		o.Unknown = errors.Is(err, wire.ErrVersion)
		// The gateway has answered Enter, so the failure is behind it.
		away := errors.Is(err, overlay.ErrUnreachable) || errors.Is(err, overlay.ErrTimeout)
		o.Gone = away && o.Err == "" && s.Peer().Role == control.RoleFrontal
		return
	}
	o.Listed, o.BrokerTime = true, time.Unix(0, r.Time)
	o.NoDual = hasNoDual(r)
	l.reflectors, l.six = byVersion(addresses(slices.Concat(r.Tcp, r.Tcp6)))
	l.stun, l.stun6 = byVersion(addresses(slices.Concat(r.Stun, r.Stun6)))
}

// hasNoDual reports whether no proxy of a list has addresses of both versions of IP. Hosts that have are in both
// lists for TCP; an older broker does not say which addresses are its own.
func hasNoDual(r *controlpb.ReflectorsResponse) bool {
	isProxys := func(a string) bool { return !slices.Contains(r.GetOwn(), a) }
	return len(r.GetOwn()) > 0 && !slices.ContainsFunc(r.GetTcp6(), isProxys)
}

// version returns the suffix of a network of an address's version of IP.
func version(a netip.AddrPort) string {
	if a.Addr().Is4() {
		return "4"
	}
	return "6"
}

// byVersion returns the IPv4 addresses of a list, which the site's profile is about, and the IPv6
// addresses of the same hosts. A grid without IPv4 has the latter alone.
func byVersion(all []netip.AddrPort) (usual, six []netip.AddrPort) {
	for _, a := range distinct(all) {
		if a.Addr().Is4() {
			usual = append(usual, a)
		} else {
			six = append(six, a)
		}
	}
	if len(usual) == 0 {
		return six, nil
	}
	return usual, six
}

// reachable returns usual, or six from a host that has a route to those alone.
func reachable(usual, six []netip.AddrPort, route func(netip.Addr) (netip.Addr, error)) []netip.AddrPort {
	if len(usual) == 0 || len(six) == 0 {
		return usual
	}
	if _, err := route(usual[0].Addr()); err == nil {
		return usual
	}
	if _, err := route(six[0].Addr()); err != nil {
		return usual
	}
	return six
}

// addresses parses a peer's list; it omits invalid addresses, and those that no grid should name.
func addresses(texts []string) []netip.AddrPort {
	var all []netip.AddrPort
	for _, t := range texts {
		a, err := netip.ParseAddrPort(t)
		if err != nil || a.Port() == 0 || a.Addr().IsUnspecified() || a.Addr().IsMulticast() {
			continue
		}
		all = append(all, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
	}
	return all
}

// askReflector asks a public host of the grid for the address it sees.
func (l *looker) askReflector(ctx context.Context, to netip.AddrPort, via carrier.HTTPProxy) Reflector {
	v := Reflector{At: to, Via: via.Addr}
	addrs, port := []netip.Addr{to.Addr()}, to.Port()
	if via.Addr != "" {
		var s Service
		if addrs, port = s.resolve(ctx, via.Addr); len(addrs) == 0 {
			v.Err = s.Resolve.Err
			return v
		}
	}
	conn, c := connectAny(ctx, addrs, port, dialOptions{})
	first := c.To
	v.Connect = c
	if conn == nil {
		if c.Outcome == Silent {
			v.Connect.Hops = hops(ctx, first)
		}
		return v
	}
	defer conn.Close()
	if via.Addr != "" {
		if v.Tunnel = tunnel(ctx, conn, via, to.String()); !v.Tunnel.Open {
			return v
		}
	}
	var err error
	if v.Seen, err = observe(ctx, conn); err != nil {
		v.Err = err.Error()
		if v.Seen, err = l.observeTLS(ctx, func() *net.TCPConn {
			again, _ := connectIn(ctx, first, dialOptions{})
			if again != nil && via.Addr != "" && !tunnel(ctx, again, via, to.String()).Open {
				again.Close()
				return nil
			}
			return again
		}); err == nil {
			v.TLS = true
		}
	} else if via.Addr == "" { // an HTTP proxy's acknowledgements say nothing of the path behind it
		v.Options = probe.OptionsOf(conn)
		v.Bulk = l.bulk(ctx, conn, to)
	}
	return v
}

// smallSegment passes wherever anything does (RFC 791 requires support for datagrams of 576 bytes).
const smallSegment = 536

// bulk sends more than full-size segments over conn, on which a reflector has answered, and if
// they are lost the same in smaller segments on other connections: such as fit the profile's MTU,
// and such as pass anywhere.
func (l *looker) bulk(ctx context.Context, conn *net.TCPConn, to netip.AddrPort) Bulk {
	b := Bulk{PathMTU: pathMTU(conn)}
	b.Tried, b.Passed = arrives(ctx, conn)
	if !b.Tried || b.Passed {
		return b
	}
	segments := []int{smallSegment}
	if p := l.profile(); p != nil && p.MTU > 0 {
		segments = append(segments, max(int(p.MTU), carrier.MinMTU)-headers(to.Addr()))
	}
	passed := make([]bool, len(segments))
	var all sync.WaitGroup
	for i, size := range segments {
		all.Go(func() { passed[i] = bulkIn(ctx, to, size) })
	}
	all.Wait()
	for i, size := range segments {
		if passed[i] {
			b.Smaller = max(b.Smaller, size)
		}
	}
	return b
}

// bulkIn reports whether padding in segments of size bytes arrives.
func bulkIn(ctx context.Context, to netip.AddrPort, size int) bool {
	conn, _ := connectIn(ctx, to, dialOptions{segment: size})
	if conn == nil {
		return false
	}
	defer conn.Close()
	if _, err := observe(ctx, conn); err != nil {
		return false
	}
	_, passed := arrives(ctx, conn)
	return passed
}

// padding returns a frame that every receiver skips, larger than two full segments.
func padding() []byte {
	const size = 4000
	b := make([]byte, wire.HeaderLen+size)
	copy(b, []byte{'I', 'S', wire.Version, byte(wire.OptionalBit | 0x7f), size >> 8, size & 0xff})
	return b
}

// observe asks over conn for its source address as seen by the peer.
func observe(ctx context.Context, conn net.Conn) (netip.AddrPort, error) {
	ctx, cancel := bounded(ctx, callBound)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(wire.Append(nil, &wire.Observe{})); err != nil {
		return netip.AddrPort{}, err
	}
	f, err := wire.Read(conn)
	if err != nil {
		return netip.AddrPort{}, err
	}
	switch f := f.(type) {
	case *wire.Observed:
		return f.From, nil
	case *wire.Refuse:
		return netip.AddrPort{}, fmt.Errorf("%s refused: %s", f.By, f.Text)
	}
	return netip.AddrPort{}, fmt.Errorf("a %v in place of an answer", f.Type())
}

// observeTLS is observe inside TLS, on a new connection. It needs a session, which provides the
// trusted certificates.
func (l *looker) observeTLS(ctx context.Context, connect func() *net.TCPConn) (netip.AddrPort, error) {
	if l.data == nil {
		return netip.AddrPort{}, overlay.ErrNoSession
	}
	conn := connect()
	if conn == nil {
		return netip.AddrPort{}, overlay.ErrUnreachable
	}
	defer conn.Close()
	shake, cancel := bounded(ctx, shakeBound)
	defer cancel()
	t := tls.Client(conn, l.data)
	if err := t.HandshakeContext(shake); err != nil {
		return netip.AddrPort{}, err
	}
	return observe(ctx, t)
}

// inbound listens on a port, learns its address and port as the first reflector sees them, makes
// the second one connect there, and then learns how that one sees the port.
func (l *looker) inbound(ctx context.Context, from []netip.AddrPort) (in Inbound) {
	ln, err := listen(ctx, "tcp"+version(from[0]), l.profile())
	if err != nil {
		in.Err = err.Error()
		return in
	}
	defer ln.Close()
	conn, c := connectIn(ctx, from[0], dialOptions{port: addrPort(ln.Addr()).Port()})
	if conn == nil {
		in.Err = fmt.Sprintf("the reflector %v cannot be asked: %s", from[0], c.Err)
		return in
	}
	defer conn.Close() // stays open meanwhile, and with it a NAT's mapping
	seen, err := observe(ctx, conn)
	if err != nil {
		in.Err = fmt.Sprintf("the reflector %v did not say what it sees: %v", from[0], err)
		return in
	}
	mapped := []Mapping{{from[0], seen}}
	defer func() { in.Mapped = mapped }()
	arrived := make(chan bool, 1)
	go func() { // ends with ln
		peer, err := ln.Accept()
		if err == nil {
			peer.Close()
		}
		arrived <- err == nil
	}()
	got, err := l.ask(ctx, seen, from[1])
	// Not before: a filter may let in a host to which this one has sent.
	if second, _ := connectIn(ctx, from[1], dialOptions{port: addrPort(ln.Addr()).Port()}); second != nil {
		if seen, err := observe(ctx, second); err == nil {
			mapped = append(mapped, Mapping{from[1], seen})
		}
		second.Close()
	}
	ln.Close()
	got.Arrived = <-arrived
	if err != nil {
		got.Err = err.Error()
		return got
	}
	got.Tried, got.To, got.From = true, seen, from[1].String()
	return got
}

// callBack makes a reflector connect to an address of this host.
func callBack(ctx context.Context, s *control.Session, to, from netip.AddrPort) (Inbound, error) {
	ctx, cancel := bounded(ctx, callBound+connectBound)
	defer cancel()
	nonce := make([]byte, 16)
	rand.Read(nonce)
	r, err := controlpb.NewDirectoryClient(s.Conn()).CallBack(ctx, &controlpb.CallBackRequest{To: to.String(), From: from.String(), Nonce: nonce})
	if err != nil {
		return Inbound{}, control.FromStatus(err)
	}
	in := Inbound{Text: strings.ToValidUTF8(r.Text, "?")}
	switch r.Outcome {
	case controlpb.CallBackResponse_CONNECTED:
		in.Outcome = Connected
	case controlpb.CallBackResponse_RESET:
		in.Outcome = Reset
	case controlpb.CallBackResponse_UNREACHABLE:
		in.Outcome = ICMPError
	case controlpb.CallBackResponse_SILENT:
		in.Outcome = Silent
	default:
		return in, fmt.Errorf("an outcome that this version does not know: %v", r.Outcome)
	}
	return in, nil
}
