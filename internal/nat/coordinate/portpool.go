package coordinate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/internal/nat/coordinate/coordinatepb"
	"github.com/isthmus-grid/isthmus/internal/nat/punch"
	"github.com/isthmus-grid/isthmus/internal/nat/simopen"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// A PortPool holds what makes the next traversal fast: ports of this host that are prepared and
// observed already, and those that peers reserved: a reserved port is one that a peer keeps ready
// for this host; a traversal with it needs one message only, because each end knows the other's
// address already.
//
// It also keeps the tunnels of hole punching: two hosts that have one open a stream in it.
//
// Nothing is prepared before the first traversal, and what is not used within reservedLife, or
// tunnelLife, is closed again. Its methods are safe for concurrent use; Serve must run, or nothing
// is prepared ahead and reservations do not expire.
type PortPool struct {
	wanted chan *Side    // buffered for one: a spare port is wanted
	sole   chan struct{} // holds a token while a traversal uses webPort

	mu        sync.Mutex
	closed    bool
	spare     *ready                       // for the next traversal that this host requests
	reserved  map[[idLen]byte]*reservation // by this host, each with its port
	peerPorts map[string]peerPort          // reserved by peers, under the callers' names for them

	tunnels map[[punch.TokenLen]byte]tunnel // left by hole punching, by their ids
	newest  map[string]*punch.Tunnel        // to each peer
}

const (
	idLen        = 16
	reservedLife = 25 * time.Second // shorter than reflectors hold the connections that keep a NAT's mapping
	aging        = 3 * time.Second  // of a peerPort, for the path to the peer
	maxReserved  = 16               // open reservations of this host
	maxPeerPorts = 1024
)

// reservation is a port that this host keeps for a peer.
type reservation struct {
	peer    string
	ready   *ready
	expires time.Time
}

// peerPort is a port that a peer keeps for this host.
type peerPort struct {
	id      [idLen]byte
	end     simopen.End
	expires time.Time
}

// NewPortPool returns an empty port pool. Run Serve.
func NewPortPool() *PortPool {
	return &PortPool{
		sole:   make(chan struct{}, 1),
		wanted: make(chan *Side, 1), reserved: map[[idLen]byte]*reservation{}, peerPorts: map[string]peerPort{},
		tunnels: map[[punch.TokenLen]byte]tunnel{}, newest: map[string]*punch.Tunnel{},
	}
}

// Serve prepares wanted ports and closes unused ones until ctx is done. Then it closes everything
// except tunnels with open streams, which end with these.
func (s *PortPool) Serve(ctx context.Context) {
	tick := time.NewTicker(aging)
	defer tick.Stop()
	defer s.close()
	for {
		select {
		case side := <-s.wanted:
			s.refill(ctx, side)
		case now := <-tick.C:
			s.expire(now)
		case <-ctx.Done():
			return
		}
	}
}

func (s *PortPool) close() {
	defer s.releaseTunnels()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.spare != nil {
		s.spare.close()
	}
	for _, p := range s.reserved {
		p.ready.close()
	}
	s.spare, s.reserved = nil, nil
}

func (s *PortPool) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spare != nil && now.Sub(s.spare.preparedAt) > reservedLife {
		s.spare.close()
		s.spare = nil
	}
	for id, p := range s.reserved {
		if now.After(p.expires) {
			p.ready.close()
			delete(s.reserved, id)
		}
	}
	s.buryTunnels()
	for peer, r := range s.peerPorts {
		if now.After(r.expires) {
			delete(s.peerPorts, peer)
		}
	}
}

// requestSpare requests a spare port, if there is none.
func (s *PortPool) requestSpare(side *Side) {
	if s == nil {
		return
	}
	select {
	case s.wanted <- side:
	default: // a request is pending already
	}
}

func (s *PortPool) refill(ctx context.Context, side *Side) {
	s.mu.Lock()
	have := s.spare != nil
	s.mu.Unlock()
	if have || singlePort(side.ports(0)) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTime)
	defer cancel()
	r, err := side.prepare(ctx, side.ports(0))
	if err != nil {
		side.Log.Debug("no port prepared ahead", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		r.close()
		return
	}
	s.spare = r
}

// prepareTime bounds a preparation for the next traversal, for which reflectors are asked.
const prepareTime = 10 * time.Second

// take returns the spare port if it is on addr, or nil.
func (s *PortPool) take(addr netip.Addr) *ready {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.spare
	if r == nil || r.port.Local().Addr() != addr.Unmap() {
		return nil
	}
	s.spare = nil
	if time.Since(r.preparedAt) > reservedLife {
		r.close()
		return nil
	}
	return r
}

// sparePort returns a port that is prepared already, or nil.
func (s *Side) sparePort() *ready {
	if s.PortPool == nil {
		return nil
	}
	return s.PortPool.take(s.preferredAddress())
}

// lockPorts waits for webPort, on which only one traversal can listen at a time. When it does not
// get the port in time the error is overlay.ErrOverloaded, and not ErrTimeout as well: it says
// nothing about the path.
func (s *PortPool) lockPorts(ctx context.Context) (release func(), err error) {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, webPortTimeout)
	defer cancel()
	select {
	case s.sole <- struct{}{}:
		return sync.OnceFunc(func() { <-s.sole }), nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: waited %v for port %d, from which other links are being made; the peer's site lets no other port out",
			overlay.ErrOverloaded, time.Since(begin).Round(time.Millisecond), webPort)
	}
}

// webPortTimeout bounds the wait for webPort. Where both ends need it, two crossing traversals each hold
// it at one end and wait for it at the other; the bound is shorter than a traversal may take, so
// that they end with the reason.
const webPortTimeout = 2 * time.Second

// reserveFor reserves r for a peer, and returns the message to send. It returns nil when no more
// ports can be reserved; r then remains the caller's.
func (s *PortPool) reserveFor(peer string, r *ready) *coordinatepb.ReservedPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.reserved) >= maxReserved {
		return nil
	}
	p := &reservation{peer: peer, ready: r, expires: time.Now().Add(reservedLife)}
	var id [idLen]byte
	rand.Read(id[:]) // never fails (crypto/rand)
	s.reserved[id] = p
	m := r.end.Mapping
	return &coordinatepb.ReservedPort{
		Id: id[:], Local: m.Local.String(), Outside: m.Outside.String(), Independent: m.Independent,
		Profile: r.profile(), RttNs: int64(r.end.Clock.RTT), LifeNs: int64(reservedLife),
	}
}

// hasReservation reports whether a port is reserved for the peer, or no more can be.
func (s *PortPool) hasReservation(peer string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.reserved {
		if p.peer == peer {
			return true
		}
	}
	return len(s.reserved) >= maxReserved || s.closed
}

// claim returns a reserved port, whose id only the peer knows. The caller then owns the
// port.
func (s *PortPool) claim(id []byte) (*ready, error) {
	if len(id) != idLen {
		return nil, fmt.Errorf("%w: a reserved port with an id of %d bytes", wire.ErrMalformed, len(id))
	}
	if s == nil {
		return nil, errNotReserved
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.reserved[[idLen]byte(id)]
	if p == nil {
		return nil, errNotReserved
	}
	delete(s.reserved, [idLen]byte(id))
	return p.ready, nil
}

// keep records a port that a peer reserved.
func (s *PortPool) keep(peer string, m *coordinatepb.ReservedPort) error {
	r, err := readReservedPort(m)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.peerPorts) < maxPeerPorts {
		s.peerPorts[peer] = r
	}
	return nil
}

// recall returns and removes the port that a peer reserved, if it is reachable over ip's IP
// version.
func (s *PortPool) recall(peer string, ip netip.Addr) (peerPort, bool) {
	if s == nil {
		return peerPort{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.peerPorts[peer]
	if !ok || r.end.Mapping.Outside.Addr().Unmap().Is4() != ip.Unmap().Is4() {
		return peerPort{}, false
	}
	delete(s.peerPorts, peer)
	return r, time.Now().Before(r.expires)
}

// recall returns the port that the peer reserved, if this side can use it.
func (s *Side) recall(peer string) (peerPort, bool) {
	return s.PortPool.recall(peer, s.preferredAddress())
}

var errNotReserved = fmt.Errorf("%w: the reserved port is not kept any more", overlay.ErrStale)

func readReservedPort(m *coordinatepb.ReservedPort) (r peerPort, err error) {
	if len(m.GetId()) != idLen {
		return r, fmt.Errorf("%w: a reserved port with an id of %d bytes", wire.ErrMalformed, len(m.GetId()))
	}
	r.id = [idLen]byte(m.Id)
	if r.end.Profile, err = profileOf(m.Profile); err != nil {
		return r, err
	}
	var local, outside netip.AddrPort
	if local, err = parseAddr("the target's local address", m.Local); err != nil {
		return r, err
	}
	if outside, err = parseAddr("the target's address", m.Outside); err != nil {
		return r, err
	}
	r.end.Mapping = simopen.Mapping{Local: local, Outside: outside, Independent: m.Independent}
	r.end.Clock.RTT = time.Duration(m.RttNs)
	if r.end.Clock.RTT < 0 || r.end.Clock.RTT > time.Minute {
		return r, fmt.Errorf("%w: a round trip of %v", wire.ErrMalformed, r.end.Clock.RTT)
	}
	r.expires = time.Now().Add(min(time.Duration(m.LifeNs), reservedLife) - aging)
	return r, nil
}

// ReservePort prepares a port for the peer's next traversal by t and returns the message for the
// peer, or nil when there is none: one is reserved for the peer already, or it could not use a port
// that can be prepared. offer is the peer's offer this time. It takes a few round trips.
func (s *Side) ReservePort(ctx context.Context, t overlay.Technique, peer string, offer []byte) []byte {
	if s.PortPool == nil || t.Kind() != overlay.BothDial || s.PortPool.hasReservation(peer) || singlePort(s.ports(0)) {
		return nil
	}
	six := false
	if t == overlay.SimultaneousOpen {
		var m coordinatepb.OpenOffer
		if unmarshal(offer, &m) != nil {
			return nil
		}
		asker, err := endOf(&m)
		if err != nil || neededBy(asker.Profile.Egress) != 0 {
			return nil
		}
		six = asker.Mapping.Local.Addr().Is6()
	} else {
		var m coordinatepb.TraverseOffer
		if unmarshal(offer, &m) != nil {
			return nil
		}
		six = m.Ipv6
	}
	if six {
		var err error
		if s, err = s.OverIPv6(); err != nil {
			return nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTime)
	defer cancel()
	p, err := s.reserveNext(ctx, peer)
	if err != nil {
		s.Log.Debug("nothing prepared for the next time", "peer", peer, "error", err)
		return nil
	}
	return marshal(p)
}

// reserveNext prepares a port and reserves it for the peer.
func (s *Side) reserveNext(ctx context.Context, peer string) (*coordinatepb.ReservedPort, error) {
	r := s.sparePort()
	if r == nil {
		var err error
		if r, err = s.prepare(ctx, s.ports(0)); err != nil {
			return nil, err
		}
	}
	p := s.PortPool.reserveFor(peer, r)
	if p == nil {
		r.close()
		return nil, fmt.Errorf("%w: %d ports are kept for others", overlay.ErrOverloaded, maxReserved)
	}
	return p, nil
}

// Keep records what the peer has prepared for the next time (ReservePort).
func (s *Side) Keep(peer string, port []byte) {
	if s.PortPool == nil || len(port) == 0 {
		return
	}
	var m coordinatepb.ReservedPort
	err := unmarshal(port, &m)
	if err == nil {
		err = s.PortPool.keep(peer, &m)
	}
	if err != nil {
		s.Log.Debug("a peer's reserved port cannot be read", "peer", peer, "error", err)
		return
	}
	s.PortPool.requestSpare(s)
}
