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
// observed already, and the peers' promises. A promise is one port that a peer keeps ready for this
// host; a traversal with it needs one message only, because each end knows the other's address
// already.
//
// It also keeps the tunnels of hole punching: two hosts that have one open a stream in it.
//
// Nothing is prepared before the first traversal, and what is not used within promiseLife, or
// tunnelLife, is closed again. Its methods are safe for concurrent use; Serve must run, or nothing
// is prepared ahead and promises do not expire.
type PortPool struct {
	wanted chan *Side    // buffered for one: a spare port is wanted
	sole   chan struct{} // holds a token while a traversal uses webPort

	mu       sync.Mutex
	closed   bool
	spare    *ready                   // for the next traversal that this host requests
	given    map[[idLen]byte]*promise // by this host, each with its port
	received map[string]received      // by peers, under the callers' names for them

	tunnels map[[punch.TokenLen]byte]tunnel // left by hole punching, by their ids
	newest  map[string]*punch.Tunnel        // to each peer
}

const (
	idLen       = 16
	promiseLife = 25 * time.Second // shorter than reflectors hold the connections that keep a NAT's mapping
	aging       = 3 * time.Second  // of a promise, for the path to the peer
	maxGiven    = 16               // open promises of this host
	maxReceived = 1024
)

// promise is a port that this host keeps for a peer.
type promise struct {
	peer    string
	ready   *ready
	expires time.Time
}

// received is a peer's promise.
type received struct {
	id      [idLen]byte
	end     simopen.End
	expires time.Time
}

// NewPortPool returns an empty port pool. Run Serve.
func NewPortPool() *PortPool {
	return &PortPool{
		sole:   make(chan struct{}, 1),
		wanted: make(chan *Side, 1), given: map[[idLen]byte]*promise{}, received: map[string]received{},
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
	for _, p := range s.given {
		p.ready.close()
	}
	s.spare, s.given = nil, nil
}

func (s *PortPool) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spare != nil && now.Sub(s.spare.made) > promiseLife {
		s.spare.close()
		s.spare = nil
	}
	for id, p := range s.given {
		if now.After(p.expires) {
			p.ready.close()
			delete(s.given, id)
		}
	}
	s.buryTunnels()
	for peer, r := range s.received {
		if now.After(r.expires) {
			delete(s.received, peer)
		}
	}
}

// want requests a spare port, if there is none.
func (s *PortPool) want(side *Side) {
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

// prepareTime bounds a preparation for the next traversal.
const prepareTime = 3 * time.Second

// take returns the spare port if it is on addr, or nil.
func (s *PortPool) take(addr netip.Addr) *ready {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.spare
	if r == nil || r.port.Local().Addr() != addr.Unmap() {
		return nil
	}
	s.spare = nil
	if time.Since(r.made) > promiseLife {
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
	ctx, cancel := context.WithTimeout(ctx, turnTime)
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

// turnTime bounds the wait for webPort. Where both ends need it, two crossing traversals each hold
// it at one end and wait for it at the other; the bound is shorter than a traversal may take, so
// that they end with the reason.
const turnTime = 2 * time.Second

// reserveFor keeps r for a peer, and returns the promise to send. It returns nil when no more
// promises can be given; r then remains the caller's.
func (s *PortPool) reserveFor(peer string, r *ready) *coordinatepb.Promise {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.given) >= maxGiven {
		return nil
	}
	p := &promise{peer: peer, ready: r, expires: time.Now().Add(promiseLife)}
	var id [idLen]byte
	rand.Read(id[:]) // never fails (crypto/rand)
	s.given[id] = p
	m := r.end.Mapping
	return &coordinatepb.Promise{
		Id: id[:], Local: m.Local.String(), Outside: m.Outside.String(), Independent: m.Independent,
		Profile: r.profile(), RttNs: int64(r.end.Clock.RTT), LifeNs: int64(promiseLife),
	}
}

// owes reports whether the peer has an open promise, or no promise can be given.
func (s *PortPool) owes(peer string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.given {
		if p.peer == peer {
			return true
		}
	}
	return len(s.given) >= maxGiven || s.closed
}

// redeem returns the port of a promise, whose id only the peer knows. The caller then owns the
// port.
func (s *PortPool) redeem(id []byte) (*ready, error) {
	if len(id) != idLen {
		return nil, fmt.Errorf("%w: a promise with an id of %d bytes", wire.ErrMalformed, len(id))
	}
	if s == nil {
		return nil, errNotKept
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.given[[idLen]byte(id)]
	if p == nil {
		return nil, errNotKept
	}
	delete(s.given, [idLen]byte(id))
	return p.ready, nil
}

// keep records a peer's promise.
func (s *PortPool) keep(peer string, m *coordinatepb.Promise) error {
	r, err := readPromise(m)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.received) < maxReceived {
		s.received[peer] = r
	}
	return nil
}

// recall returns and removes a peer's promise of a port that is reachable over ip's IP version.
func (s *PortPool) recall(peer string, ip netip.Addr) (received, bool) {
	if s == nil {
		return received{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.received[peer]
	if !ok || r.end.Mapping.Outside.Addr().Unmap().Is4() != ip.Unmap().Is4() {
		return received{}, false
	}
	delete(s.received, peer)
	return r, time.Now().Before(r.expires)
}

// recall returns the peer's promise, if this side can use it.
func (s *Side) recall(peer string) (received, bool) {
	return s.PortPool.recall(peer, s.preferredAddress())
}

var errNotKept = fmt.Errorf("%w: the promised port is not kept any more", overlay.ErrStale)

func readPromise(m *coordinatepb.Promise) (r received, err error) {
	if len(m.GetId()) != idLen {
		return r, fmt.Errorf("%w: a promise with an id of %d bytes", wire.ErrMalformed, len(m.GetId()))
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
	r.expires = time.Now().Add(min(time.Duration(m.LifeNs), promiseLife) - aging)
	return r, nil
}

// Promise prepares a port for the peer's next traversal by t and returns the message for the peer,
// or nil when there is none: the peer has a promise already, or could not use a port that can be
// prepared. offer is the peer's offer this time. It takes a few round trips.
func (s *Side) Promise(ctx context.Context, t overlay.Technique, peer string, offer []byte) []byte {
	if s.PortPool == nil || t.Kind() != overlay.BothDial || s.PortPool.owes(peer) || singlePort(s.ports(0)) {
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
	p, err := s.reservePort(ctx, peer)
	if err != nil {
		s.Log.Debug("nothing prepared for the next time", "peer", peer, "error", err)
		return nil
	}
	return marshal(p)
}

// reservePort prepares a port and promises it to the peer.
func (s *Side) reservePort(ctx context.Context, peer string) (*coordinatepb.Promise, error) {
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
		return nil, fmt.Errorf("%w: %d ports are kept for others", overlay.ErrOverloaded, maxGiven)
	}
	return p, nil
}

// Keep records what the peer has prepared for the next time (Promise).
func (s *Side) Keep(peer string, promise []byte) {
	if s.PortPool == nil || len(promise) == 0 {
		return
	}
	var m coordinatepb.Promise
	err := unmarshal(promise, &m)
	if err == nil {
		err = s.PortPool.keep(peer, &m)
	}
	if err != nil {
		s.Log.Debug("a peer's promise cannot be read", "peer", peer, "error", err)
		return
	}
	s.PortPool.want(s)
}
