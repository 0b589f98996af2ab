package coordinate

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"time"

	"github.com/isthmus-grid/isthmus/internal/nat/coordinate/coordinatepb"
	"github.com/isthmus-grid/isthmus/internal/nat/punch"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Bounds of tunnels that hole punching leaves.
const (
	tunnelLife = 60 * time.Second // life of a tunnel without streams
	maxTunnels = 256              // beyond that a tunnel ends with its first stream

	// streamPatience, or the time until a retransmission is answered if that is longer, bounds two waits, each of which begins
	// when the other end has done its part: the target's for the stream, which left the asker before the offer did, and the
	// asker's for the welcome, which left the target before the reply. Both take a shorter path than the
	// message that precedes the wait, so the time is for a retransmission.
	streamPatience = 500 * time.Millisecond
)

// tunnel is a tunnel that the PortPool keeps.
type tunnel struct {
	*punch.Tunnel
	peer string
}

// keepTunnel keeps a tunnel for the next time, and reports whether it does. The tunnel replaces an
// existing one as the newest.
func (s *PortPool) keepTunnel(peer string, t *punch.Tunnel) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.tunnels) >= maxTunnels {
		return false
	}
	t.Keep(tunnelLife)
	s.tunnels[t.ID()] = tunnel{t, peer}
	s.newest[peer] = t
	return true
}

// tunnelTo returns the newest tunnel to the peer, or nil.
func (s *PortPool) tunnelTo(peer string) *punch.Tunnel {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.newest[peer]
	if t == nil || ended(t) {
		return nil
	}
	return t
}

// tunnelFrom returns the tunnel that the peer names, if it leads to that peer.
func (s *PortPool) tunnelFrom(peer string, id []byte) (*punch.Tunnel, error) {
	if len(id) != punch.TokenLen {
		return nil, fmt.Errorf("%w: a tunnel with a name of %d bytes", wire.ErrMalformed, len(id))
	}
	if s == nil {
		return nil, errNoTunnel
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tunnels[[punch.TokenLen]byte(id)]
	if t.Tunnel == nil || t.peer != peer || ended(t.Tunnel) {
		return nil, errNoTunnel
	}
	return t.Tunnel, nil
}

// dropTunnel makes a tunnel end with its streams.
func (s *PortPool) dropTunnel(t *punch.Tunnel) {
	s.mu.Lock()
	s.removeTunnel(t.ID())
	s.mu.Unlock()
	t.Keep(0)
}

// removeTunnel removes a tunnel. mu is held.
func (s *PortPool) removeTunnel(id [punch.TokenLen]byte) {
	t := s.tunnels[id]
	delete(s.tunnels, id)
	if s.newest[t.peer] == t.Tunnel {
		delete(s.newest, t.peer)
	}
}

// buryTunnels removes tunnels that have ended. mu is held.
func (s *PortPool) buryTunnels() {
	for id, t := range s.tunnels {
		if ended(t.Tunnel) {
			s.removeTunnel(id)
		}
	}
}

// releaseTunnels makes all tunnels end with their streams.
func (s *PortPool) releaseTunnels() {
	s.mu.Lock()
	tunnels := s.tunnels
	s.tunnels, s.newest = nil, nil
	s.mu.Unlock()
	for _, t := range tunnels { // without mu: ending a tunnel takes a moment
		t.Keep(0)
	}
}

func ended(t *punch.Tunnel) bool {
	select {
	case <-t.Done():
		return true
	default:
		return false
	}
}

var errNoTunnel = fmt.Errorf("%w: the tunnel is not there any more", overlay.ErrStale)

// openStream opens a stream in t while its token travels to the target. The error is
// overlay.ErrStale when the tunnel is unusable, to the target or to this end.
func (s *Side) openStream(ctx context.Context, t *punch.Tunnel, ex Exchange) (net.Conn, error) {
	var token punch.Token
	rand.Read(token[:]) // never fails (crypto/rand)
	o, err := t.Open(token)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", overlay.ErrStale, err)
	}
	id := t.ID()
	if _, err := ex(ctx, marshal(&coordinatepb.PunchOffer{Tunnel: id[:], Token: token[:]})); err != nil {
		o.Abort()
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, max(streamPatience, t.RTT().RTO(1)))
	defer cancel()
	c, err := o.Await(waiting)
	if err != nil {
		return nil, fmt.Errorf("%w: the target took a stream that does not reach this end: %w", overlay.ErrStale, err)
	}
	return c, nil
}

// takeStream accepts the stream that the offer names.
func (s *Side) takeStream(ctx context.Context, peer string, m *coordinatepb.PunchOffer, reply func([]byte) error) (net.Conn, error) {
	if len(m.Token) != punch.TokenLen {
		return nil, fmt.Errorf("%w: a token of %d bytes", wire.ErrMalformed, len(m.Token))
	}
	t, err := s.PortPool.tunnelFrom(peer, m.Tunnel)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, max(streamPatience, t.RTT().RTO(1)))
	defer cancel()
	c, err := t.Accept(waiting, punch.Token(m.Token))
	if err != nil {
		if ctx.Err() != nil {
			return nil, cause(ctx, err)
		}
		return nil, fmt.Errorf("%w: %w", overlay.ErrStale, err)
	}
	if err := reply(nil); err != nil {
		c.Abort()
		return nil, err
	}
	return c, nil
}
