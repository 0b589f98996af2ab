package probe

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Grid is what a measurement needs from the control plane. A helper's session with its frontal
// provides it, and so does a frontal's with the broker.
type Grid interface {
	Reflectors(context.Context, *controlpb.ReflectorsRequest) (*controlpb.ReflectorsResponse, error)
	CallBack(context.Context, *controlpb.CallBackRequest) (*controlpb.CallBackResponse, error)
}

// Options of a measurement. Only Grid is required.
type Options struct {
	Grid      Grid
	Ports     overlay.Ports     // declared as let in by the admin, to be tried; zero: none
	HTTPProxy carrier.HTTPProxy // the site's, if there is one
	Session   bool              // this host has a session with a broker, through that proxy if there is one

	// TLS is for asking a reflector that does not answer plain questions. It accepts brokers
	// and proxies of the grid. Nil: no question is asked in TLS.
	TLS *tls.Config

	// Do runs the creation of each socket; nil runs it directly. Tests use it to create sockets in
	// other network namespaces.
	Do func(func() error) error

	// Rates are the datagram rates to try, in bits per second and rising; nil: the standard ones.
	Rates []uint64

	// Raw returns nil if this process may send and receive raw packets, or an error; a nil Raw
	// means that this is not tested. It is run by Do.
	Raw func() error

	// Port443 is the same for binding port 443.
	Port443 func() error
}

// The least bounds of a measurement, on a short path; see patience.
const (
	viewTime   = 2 * time.Second        // for a reflector to be reached and to answer over TCP
	stunTries  = 3                      // datagrams to a STUN server
	stunWait   = 400 * time.Millisecond // for the answer to each
	callTime   = 8 * time.Second        // for a call-back, including the path through broker and proxy, without its round trips
	callTrips  = 4                      // to the broker, from there to the reflector and to this host, and as many again
	arriveTime = 500 * time.Millisecond // how long after the call's end a nonce may arrive
)

// Measure makes the observations from which Infer determines the site's profile. It takes about
// eight seconds, with IPv6 twelve, on a path of 1.4 s and where much is filtered ninety at most, sends and receives about 220 kB in the last
// three of them, and is best run from one node of a site at a time. It fails only when the grid does not name its
// reflectors; any other failure is an observation.
func Measure(ctx context.Context, opts Options) (Observations, error) {
	b, err := opts.Grid.Reflectors(ctx, &controlpb.ReflectorsRequest{})
	if err != nil {
		return Observations{}, fmt.Errorf("asking for the reflectors: %w", err)
	}
	points, six := reflectors(b)
	if len(points)+len(six) == 0 {
		return Observations{}, fmt.Errorf("%w: the broker names no reflector", overlay.ErrNoPath)
	}
	m := &measurement{opts: opts.complete(), points: points, six: six, waits: newPatience(), o: Observations{Ports: opts.Ports, Session: opts.Session}}
	defer m.close()
	if len(points) > 0 {
		m.look(ctx)
		m.beCalled(ctx)
		m.cross(ctx)
	}
	m.lookIPv6(ctx)
	m.measureIPv6(ctx)
	m.lookAtPath(ctx)
	m.o.sort()
	return m.o, nil
}

// complete returns the options with defaults for Do and Rates.
func (o Options) complete() Options {
	if o.Do == nil {
		o.Do = func(f func() error) error { return f() }
	}
	if o.Rates == nil {
		o.Rates = rates
	}
	return o
}

// lookAtPath measures how much passes, after everything that lost datagrams would disturb.
func (m *measurement) lookAtPath(ctx context.Context) {
	m.o.Raw, m.o.Port443 = m.privilege(m.opts.Raw), m.privilege(m.opts.Port443)
	if got := answered(m.o.UDP); len(got) > 0 {
		m.lookSizes(ctx, got[0].To)
		m.lookRate(ctx, got[0].To)
	}
}

// privilege returns what a test says; nil without one.
func (m *measurement) privilege(test func() error) *Privilege {
	if test == nil {
		return nil
	}
	if err := m.opts.Do(test); err != nil {
		return &Privilege{err.Error()}
	}
	return &Privilege{}
}

// point is one reflector.
type point struct {
	tcp  netip.AddrPort
	stun netip.AddrPort // not valid without a STUN server
}

// reflectors returns the first reflector of each address, the broker first: those with an IPv4
// address, which a profile is about, and those with IPv6, which may be other addresses of the same
// hosts.
func reflectors(b *controlpb.ReflectorsResponse) (four, six []point) {
	for _, p := range allReflectors(b) {
		if p.tcp.Addr().Is4() {
			four = append(four, p)
		} else {
			six = append(six, p)
		}
	}
	return four, six
}

func allReflectors(b *controlpb.ReflectorsResponse) []point {
	var points []point
	find := func(a netip.Addr) *point {
		for i := range points {
			if points[i].tcp.Addr() == a {
				return &points[i]
			}
		}
		return nil
	}
	for _, text := range slices.Concat(b.GetTcp(), b.GetTcp6()) {
		if a, err := netip.ParseAddrPort(text); err == nil && find(a.Addr()) == nil {
			points = append(points, point{tcp: a})
		}
	}
	for _, text := range slices.Concat(b.GetStun(), b.GetStun6()) {
		a, err := netip.ParseAddrPort(text)
		if err != nil {
			continue
		}
		if v := find(a.Addr()); v != nil && !v.stun.IsValid() {
			v.stun = a
		}
	}
	return points
}

// measurement is one call of Measure.
type measurement struct {
	opts    Options
	points  []point
	six     []point  // with an IPv6 address
	closers []func() // of what stays open until the end; only look and beCalled add

	waits *patience

	ipv6 bool // points are of IPv6, and everything is about that

	tcp, udp []*port // the sockets that look used; the first asked points[0] only

	mu sync.Mutex // guards the field below
	o  Observations
}

func (m *measurement) close() {
	for _, c := range m.closers {
		c()
	}
}

func (m *measurement) add(change func(*Observations)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.o)
}

// sockets is how many sockets of each protocol are examined from outside: a NAT that assigns ports
// at random may preserve one by chance.
const sockets = 3

// look asks the reflectors for this host's address, over TCP and UDP, and through the HTTP
// proxy. The connections, and with them the NAT's mappings, stay open until the measurement ends.
func (m *measurement) look(ctx context.Context) {
	var wg sync.WaitGroup
	for socket := range sockets {
		points := m.points[:min(2, len(m.points))]
		if socket == 0 {
			points = m.points[:1] // beCalled needs one that has asked no other reflector
		}
		m.lookTCP(ctx, &wg, socket, points)
		m.lookUDP(ctx, &wg, socket, points)
	}
	if m.opts.HTTPProxy.Addr != "" {
		wg.Go(func() { m.lookProxy(ctx) })
	}
	wg.Wait()
}

func (m *measurement) lookTCP(ctx context.Context, wg *sync.WaitGroup, socket int, points []point) {
	p, err := m.open(false, 0)
	m.tcp = append(m.tcp, p)
	for _, point := range points {
		for _, to := range []netip.AddrPort{point.tcp, point.stun} {
			if !to.IsValid() || socket == 0 && to != point.tcp {
				continue // the first socket must not contact the STUN port
			}
			wg.Go(func() {
				v := View{Socket: socket, To: to}
				if err != nil {
					v.Err = err.Error()
				} else {
					p.askTCP(ctx, m.opts, to == point.tcp, &v)
				}
				m.add(func(o *Observations) { o.TCP = append(o.TCP, v) })
			})
		}
	}
}

func (m *measurement) lookUDP(ctx context.Context, wg *sync.WaitGroup, socket int, points []point) {
	p, err := m.open(true, 0)
	m.udp = append(m.udp, p)
	for _, point := range points {
		if !point.stun.IsValid() {
			continue
		}
		wg.Go(func() {
			v := View{Socket: socket, To: point.stun}
			if err != nil {
				v.Err = err.Error()
			} else {
				p.askUDP(ctx, m.opts.Do, &v)
			}
			m.add(func(o *Observations) { o.UDP = append(o.UDP, v) })
		})
	}
}

// lookProxy asks the first reflector through the HTTP proxy.
func (m *measurement) lookProxy(ctx context.Context) {
	v := View{To: m.points[0].tcp}
	open := func(ctx context.Context) (net.Conn, error) {
		var c *net.TCPConn
		err := m.opts.Do(func() (err error) {
			c, err = carrier.DialTCP(ctx, v.To.String(), m.opts.HTTPProxy)
			return err
		})
		if err != nil {
			return nil, err // not a nil *net.TCPConn in a net.Conn
		}
		return c, nil
	}
	c, err := v.ask(ctx, m.waits, open, m.opts.TLS)
	if c != nil {
		carrier.Reset(c)
	}
	if err != nil {
		v.Err = err.Error()
	}
	m.add(func(o *Observations) { o.Proxy = &v })
}

// beCalled makes the reflectors call back, all at once. It needs an address that the first one,
// the broker, has seen over TCP.
func (m *measurement) beCalled(ctx context.Context) {
	outside := m.o.outside(m.points[0])
	if !outside.IsValid() {
		return
	}
	first, stranger := m.points[0], m.points[len(m.points)-1] // some socket has not contacted stranger, if there are two
	if len(m.points) > 1 {
		stranger = m.points[1]
	}
	var wg sync.WaitGroup
	call := func(p *port, to netip.AddrPort, c Call) {
		wg.Go(func() {
			m.callBack(ctx, p, to, &c)
			m.add(func(o *Observations) { o.Calls = append(o.Calls, c) })
		})
	}
	for _, udp := range []bool{false, true} {
		p, err := m.openOutside(udp)
		if err != nil {
			m.o.Calls = append(m.o.Calls, Call{Target: Fresh, UDP: udp, Err: err.Error()})
			continue
		}
		call(p, netip.AddrPortFrom(outside, p.number), Call{Target: Fresh, UDP: udp, From: stranger.tcp})
	}
	for _, number := range sample(m.opts.Ports) {
		p, err := m.open(false, number)
		if err != nil {
			continue // another program has the port; others are tried
		}
		call(p, netip.AddrPortFrom(outside, number), Call{Target: InRange, From: stranger.tcp})
	}
	m.callMapped(call, first, stranger)
	wg.Wait()
}

// outside returns this host's address as a reflector has seen it over TCP.
func (o Observations) outside(first point) (a netip.Addr) {
	for _, v := range o.TCP {
		if v.Seen.IsValid() && v.To == first.tcp {
			a = v.Seen.Addr()
		}
	}
	return a
}

// callMapped has call-backs made to the mappings of the first sockets, which asked only the first
// reflector: from another port of that one, and from a host that they never contacted.
func (m *measurement) callMapped(call func(*port, netip.AddrPort, Call), first, stranger point) {
	m.mu.Lock()
	views := [][]View{m.o.TCP, m.o.UDP}
	m.mu.Unlock()
	for i, udp := range []bool{false, true} {
		for _, v := range views[i] {
			if v.Socket != 0 || !v.Seen.IsValid() || v.Seen == v.Local {
				continue
			}
			p := m.tcp[0]
			if udp {
				p = m.udp[0]
			}
			call(p, v.Seen, Call{Target: Answered, UDP: udp, From: first.tcp, First: true})
			if stranger != first {
				call(p, v.Seen, Call{Target: Answered, UDP: udp, From: stranger.tcp})
			}
		}
	}
}

// callBack makes c.From call to, which may or may not lead to p.
func (m *measurement) callBack(ctx context.Context, p *port, to netip.AddrPort, c *Call) {
	ctx, cancel := context.WithTimeout(ctx, m.waits.call())
	defer cancel()
	c.Port = p.number
	nonce, arrived := p.expect()
	resp, err := m.opts.Grid.CallBack(ctx, &controlpb.CallBackRequest{To: to.String(), Udp: c.UDP, Nonce: nonce, From: c.From.String()})
	if err != nil {
		c.Err = control.FromStatus(err).Error()
		return
	}
	switch resp.Outcome {
	case controlpb.CallBackResponse_CONNECTED:
		c.Outcome = Connected
	case controlpb.CallBackResponse_RESET:
		c.Outcome = Reset
	case controlpb.CallBackResponse_UNREACHABLE:
		c.Outcome = Unreachable
	case controlpb.CallBackResponse_SILENT:
		c.Outcome = Silent
	default:
		c.Err = resp.Text
		return
	}
	late := time.NewTimer(max(arriveTime, m.waits.estimate().RTO(1)))
	defer late.Stop()
	select {
	case <-arrived:
		c.Arrived = true
	case <-late.C:
	}
}

// openOutside opens a port outside the range that may be open.
func (m *measurement) openOutside(udp bool) (*port, error) {
	var p *port
	var err error
	for range 20 { // the range would have to be nearly all ports
		if p, err = m.open(udp, 0); err != nil || !m.opts.Ports.Contains(p.number) {
			break
		}
	}
	return p, err
}

// sample returns the ends and the middle of a range.
func sample(r overlay.Ports) []uint16 {
	if r == (overlay.Ports{}) {
		return nil
	}
	all := []uint16{r.First, r.First + (r.Last-r.First)/2, r.Last}
	return slices.Compact(all)
}
