package coordinate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate/coordinatepb"
	"github.com/isthmus-grid/isthmus/internal/nat/simopen"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// webPort is the port from which to dial a peer whose site lets only that port out.
const webPort = 443

// ready is a listening port whose public address is known.
type ready struct {
	port       *simopen.Port
	end        simopen.End
	server     netip.AddrPort // the server to whose clock end.Clock refers
	clock      string         // its name, or ""
	preparedAt time.Time
	release    func() // releases webPort for the next traversal; nil when it is another port
}

// close releases the port.
func (r *ready) close() {
	if r.port != nil {
		r.port.Close()
	}
	if r.release != nil {
		r.release()
	}
}

// prepare opens a port and asks the reflectors about it.
func (s *Side) prepare(ctx context.Context, ports overlay.Ports) (*ready, error) {
	b, err := s.Reflectors(ctx)
	if err != nil {
		return nil, err
	}
	if len(b.TCP) == 0 {
		return nil, fmt.Errorf("%w: the broker names no reflector", overlay.ErrUnreachable)
	}
	r := &ready{server: b.TCP[0], clock: b.Clock}
	if singlePort(ports) && ports.First == webPort && s.PortPool != nil {
		if r.release, err = s.PortPool.lockPorts(ctx); err != nil {
			return nil, err
		}
	}
	if r.port, err = simopen.Prepare(ctx, s.sourceAddress(b.TCP), ports); err != nil {
		r.close()
		return nil, err
	}
	m, sample, err := s.observe(ctx, r.port, b)
	if err != nil {
		r.close()
		return nil, err
	}
	r.preparedAt = time.Now()
	var clock simopen.Clock
	clock.Add(sample)
	r.end = simopen.End{Profile: s.Profile, Mapping: m}
	r.end.Clock, _ = clock.Estimate(time.Now())
	return r, nil
}

// maxAsked bounds the reflectors that are asked about one port.
const maxAsked = 8

// observe learns the port's public address, and compares clocks with the broker, over the other IP
// version if it must. Without IPv6 reflectors the mapping of an IPv6 port is the identity, because its
// addresses are not translated.
func (s *Side) observe(ctx context.Context, port *simopen.Port, b Reflectors) (m simopen.Mapping, clock simopen.Sample, err error) {
	local := port.Local()
	same := ofVersion(local.Addr(), b.TCP)
	same = same[:min(len(same), maxAsked)]
	switch {
	case len(same) > 0:
		m, err = port.Observe(ctx, same)
	case local.Addr().Is6():
		m = simopen.Mapping{Local: local, Outside: local, Independent: true}
	default:
		err = fmt.Errorf("%w: no reflector has an IPv4 address", overlay.ErrUnreachable)
	}
	if err != nil {
		return m, clock, err
	}
	if i := clockOf(b, same, m); i >= 0 {
		return m, m.Samples[i], nil
	}
	clock, err = askClock(ctx, b.Clocks)
	if err != nil { // no instant can be agreed without the broker's clock
		err = fmt.Errorf("%w: the broker's clock: %w", overlay.ErrUnreachable, errors.Join(m.Failed, err))
	}
	return m, clock, err
}

// clockOf returns which of the reflectors that a port has asked is the broker and has answered, or -1.
func clockOf(b Reflectors, asked []netip.AddrPort, m simopen.Mapping) int {
	for i, a := range asked {
		if slices.Contains(b.Clocks, a) && m.Seen[i].IsValid() {
			return i
		}
	}
	return -1
}

// A clockReading is a comparison of clocks on a connection that has no other use.
type clockReading struct {
	*net.TCPConn
	sample simopen.Sample
}

// askClock compares clocks with the broker at the first of its addresses that answers.
func askClock(ctx context.Context, broker []netip.AddrPort) (simopen.Sample, error) {
	c, err := carrier.FirstOf(ctx, broker, func(ctx context.Context, a netip.AddrPort) (r clockReading, err error) {
		if r.TCPConn, err = carrier.DialTCP(ctx, a.String(), carrier.HTTPProxy{}); err != nil {
			return r, err
		}
		if _, r.sample, err = simopen.Ask(ctx, r.TCPConn); err != nil {
			carrier.Reset(r.TCPConn)
		}
		return r, err
	})
	if err != nil {
		return simopen.Sample{}, err
	}
	carrier.Reset(c.TCPConn)
	return c.sample, nil
}

// ports returns where this end must bind: to the port that the peer needs, or inside the site's
// range.
func (s *Side) ports(needed uint16) overlay.Ports {
	switch {
	case needed != 0:
		return overlay.Ports{First: needed, Last: needed}
	case s.Profile.Inbound == overlay.InboundPorts:
		return s.Profile.Ports
	}
	return overlay.Ports{}
}

// singlePort reports whether the range has only one port: none is then kept for a later traversal,
// which would block all others.
func singlePort(p overlay.Ports) bool { return p.First != 0 && p.First == p.Last }

// neededBy returns the port from which to dial a peer with that egress.
func neededBy(peer overlay.Egress) uint16 {
	if peer == overlay.Egress443 {
		return webPort
	}
	return 0
}

// agreements bounds how often the ends agree on an instant before they give up, and agreedTime how
// long they try after each.
const (
	agreements = 3
	agreedTime = 1500 * time.Millisecond
)

// askOpen uses the port that the peer reserved, if any; otherwise, or when that is gone, it
// agrees with the peer on an instant, and again after a failure.
func (s *Side) askOpen(ctx context.Context, peer string, port uint16, ex Exchange) (net.Conn, error) {
	var r *ready
	reserved, warm := s.recall(peer)
	if warm = warm && port == 0; warm {
		r = s.sparePort()
	}
	if r == nil {
		var err error
		if r, err = s.prepare(ctx, s.ports(port)); err != nil {
			return nil, err
		}
	}
	defer r.close()
	if warm {
		c, err := s.openReserved(ctx, r, reserved, ex)
		if err == nil || !errors.Is(err, overlay.ErrStale) {
			return c, err
		}
	}
	for try := 1; ; try++ {
		c, err := s.openAgreed(ctx, r, ex)
		if err == nil || try == agreements || !isRetryable(ctx, err) {
			return c, err
		}
		s.Log.Debug("agreeing on another instant", "peer", peer, "error", err)
	}
}

// isRetryable reports whether another instant may succeed.
func isRetryable(ctx context.Context, err error) bool {
	var missed *missedError
	return ctx.Err() == nil && errors.As(err, &missed)
}

// missedError means that the ends did not connect at the agreed instant.
type missedError struct{ error }

func (e *missedError) Unwrap() error { return e.error }

// openAgreed requests an instant from the target, and dials then.
func (s *Side) openAgreed(ctx context.Context, r *ready, ex Exchange) (net.Conn, error) {
	reply, err := ex(ctx, r.offer(nil))
	if err != nil {
		return nil, err
	}
	var a coordinatepb.OpenAnswer
	if err := unmarshal(reply, &a); err != nil {
		return nil, err
	}
	remote, err := parseAddr("the target's address", a.Remote)
	if err != nil {
		return nil, err
	}
	return s.open(ctx, r, simopen.Start{At: time.Unix(0, a.AtUnixNs), Remote: remote, AnyPort: a.AnyPort, Patience: min(max(time.Duration(a.PatienceNs), 0), maxAhead)})
}

// openReserved dials the reserved port while the offer that names it travels to the
// target. The error is overlay.ErrStale when the target no longer keeps the port.
func (s *Side) openReserved(ctx context.Context, r *ready, reserved peerPort, ex Exchange) (net.Conn, error) {
	agreed, err := simopen.Hurry(time.Now(), r.end, reserved.end)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	said := make(chan error, 1)
	go func() {
		_, err := ex(ctx, r.offer(reserved.id[:]))
		if err != nil {
			cancel() // the target will not dial
		}
		said <- err
	}()
	c, err := s.open(ctx, r, agreed.A)
	if err != nil {
		cancel()
	}
	if saidErr := <-said; saidErr != nil && !(err != nil && errors.Is(saidErr, context.Canceled)) {
		if c != nil {
			c.Close()
		}
		return nil, saidErr
	}
	return c, err
}

// offer returns the offer for the target; reserved names the port that it reserved, if any.
func (r *ready) offer(reserved []byte) []byte {
	m := &coordinatepb.OpenOffer{
		Local: r.end.Mapping.Local.String(), Outside: r.end.Mapping.Outside.String(), Independent: r.end.Mapping.Independent,
		Server: r.server.String(), ClockOffsetNs: int64(r.end.Clock.Offset), ClockErrorNs: int64(r.end.Clock.Error), RttNs: int64(r.end.Clock.RTT),
		ReservedPort: reserved, Clock: r.clock,
	}
	m.Profile = r.profile()
	return marshal(m)
}

func (r *ready) profile() []byte { return marshal(control.ProfileToPB(r.end.Profile)) }

func (s *Side) answerOpen(ctx context.Context, _ string, offer []byte, reply func([]byte) error) (net.Conn, error) {
	var m coordinatepb.OpenOffer
	if err := unmarshal(offer, &m); err != nil {
		return nil, err
	}
	asker, err := endOf(&m)
	if err != nil {
		return nil, err
	}
	if asker.Mapping.Local.Addr().Is6() {
		if s, err = s.OverIPv6(); err != nil {
			return nil, err
		}
	}
	if len(m.ReservedPort) > 0 {
		return s.answerReserved(ctx, m.ReservedPort, asker, reply)
	}
	r, err := s.prepare(ctx, s.ports(neededBy(asker.Profile.Egress)))
	if err != nil {
		return nil, err
	}
	defer r.close()
	if m.Server != r.server.String() && (m.Clock == "" || m.Clock != r.clock) {
		return nil, fmt.Errorf("%w: the asker took the time from %s, this end from %v", overlay.ErrRefused, m.Server, r.server)
	}
	agreed, err := simopen.Agree(r.end.Clock.Server(time.Now()), asker, r.end)
	if err != nil {
		return nil, err
	}
	answer := &coordinatepb.OpenAnswer{AtUnixNs: agreed.A.At.UnixNano(), Remote: agreed.A.Remote.String(), AnyPort: agreed.A.AnyPort, PatienceNs: int64(agreed.A.Patience)}
	if err := reply(marshal(answer)); err != nil {
		return nil, err
	}
	return s.open(ctx, r, agreed.B)
}

// answerReserved dials the asker at once, from the port that was reserved for it.
func (s *Side) answerReserved(ctx context.Context, id []byte, asker simopen.End, reply func([]byte) error) (net.Conn, error) {
	r, err := s.PortPool.claim(id)
	if err != nil {
		return nil, err
	}
	defer r.close()
	agreed, err := simopen.Hurry(time.Now(), asker, r.end)
	if err != nil {
		return nil, err
	}
	if err := reply(nil); err != nil {
		return nil, err
	}
	return s.open(ctx, r, agreed.B)
}

// endOf decodes the asker's end.
func endOf(m *coordinatepb.OpenOffer) (e simopen.End, err error) {
	if e.Profile, err = profileOf(m.Profile); err != nil {
		return e, err
	}
	if e.Mapping.Local, err = parseAddr("the asker's local address", m.Local); err != nil {
		return e, err
	}
	if e.Mapping.Outside, err = parseAddr("the asker's address", m.Outside); err != nil {
		return e, err
	}
	e.Mapping.Independent = m.Independent
	e.Clock = simopen.Estimate{Offset: time.Duration(m.ClockOffsetNs), Error: time.Duration(m.ClockErrorNs), RTT: time.Duration(m.RttNs)}
	if e.Clock.RTT < 0 || e.Clock.RTT > time.Minute || e.Clock.Error < 0 {
		return e, fmt.Errorf("%w: a round trip of %v, a clock right within %v", wire.ErrMalformed, e.Clock.RTT, e.Clock.Error)
	}
	return e, nil
}

// maxAhead bounds how far in the future an agreed instant may be: a peer must not make this end
// wait.
const maxAhead = 5 * time.Second

func (s *Side) open(ctx context.Context, r *ready, start simopen.Start) (net.Conn, error) {
	if err := s.checkTarget(start.Remote); err != nil {
		return nil, err
	}
	if ahead := time.Until(start.At); ahead > maxAhead {
		return nil, fmt.Errorf("%w: the agreed instant is %v ahead", overlay.ErrRefused, ahead)
	}
	c, err := r.port.Open(ctx, start.Remote, start.At, simopen.Options{AnyPort: start.AnyPort, Patience: start.Patience, Bound: agreedTime + 2*start.Patience})
	if err != nil {
		return nil, &missedError{cause(ctx, err)}
	}
	return scaled(c)
}

// scaled returns c unless its ends failed to agree on window scaling. When SYNs cross and the
// option is stripped, Linux continues to scale the windows it announces, and the peer does not:
// windows of 64 KiB are then read as 63 bytes, and so is the window of one end where SYN and
// SYN/ACK took different paths. Another socket at the same time would fare no better.
func scaled(c *net.TCPConn) (net.Conn, error) {
	if !carrier.Unscaled(c) {
		return c, nil
	}
	c.SetLinger(0) // notifies the peer even if it considers the connection usable
	c.Close()
	return nil, fmt.Errorf("%w: connected with %v, but a device on the path removes TCP's window scaling, so the link would be very slow; use hole punching or a relay",
		overlay.ErrUnreachable, c.RemoteAddr())
}
