package coordinate

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate/coordinatepb"
	"github.com/isthmus-grid/isthmus/internal/nat/punch"
	"github.com/isthmus-grid/isthmus/overlay"
)

func (s *Side) attempt(ctx context.Context, controlling, lowTTL bool) (*punch.Attempt, error) {
	b, err := s.Reflectors(ctx)
	if err != nil {
		return nil, err
	}
	local, stun, err := s.punchFrom(b)
	if err != nil {
		return nil, err
	}
	return punch.New(punch.Config{
		Local: netip.AddrPortFrom(local, 0), STUN: stun, LowTTL: lowTTL, Controlling: controlling,
		Forbidden: s.Forbidden, Permit: s.Permit, Log: s.Log, SmallPackets: carrier.SmallPackets(ctx),
	})
}

// lowTTL makes the first datagrams expire beyond the own gateway. Only gateways that answer by
// themselves need it, but an end does not know the other's gateway, and it costs no more than
// punch.DefaultHoldOff.
const lowTTL = true

// askPunch opens a stream in the tunnel to the peer if there is a usable one, and otherwise makes a
// tunnel. For small packets it always makes one: a tunnel does not notice that large ones begin to
// vanish.
func (s *Side) askPunch(ctx context.Context, peer string, _ uint16, ex Exchange) (net.Conn, error) {
	if t := s.PortPool.tunnelTo(peer); t != nil && !carrier.SmallPackets(ctx) {
		c, err := s.openStream(ctx, t, ex)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil || !errors.Is(err, overlay.ErrStale) {
			return nil, cause(ctx, err)
		}
		s.Log.Debug("the tunnel is of no use any more, making another", "peer", peer, "error", err)
		s.PortPool.dropTunnel(t)
	}
	a, err := s.attempt(ctx, true, lowTTL)
	if err != nil {
		return nil, err
	}
	defer a.Close() // has no effect on a connection
	description, err := a.Describe(ctx)
	if err != nil {
		return nil, err
	}
	reply, err := ex(ctx, marshal(&coordinatepb.PunchOffer{Description: description, LowTtl: lowTTL}))
	if err != nil {
		return nil, err
	}
	var m coordinatepb.PunchAnswer
	if err := unmarshal(reply, &m); err != nil {
		return nil, err
	}
	return s.punch(ctx, a, peer, m.Description)
}

// answerPunch makes a tunnel with the peer, or accepts a stream of the existing one.
func (s *Side) answerPunch(ctx context.Context, peer string, offer []byte, reply func([]byte) error) (net.Conn, error) {
	var m coordinatepb.PunchOffer
	if err := unmarshal(offer, &m); err != nil {
		return nil, err
	}
	if len(m.Tunnel) > 0 {
		return s.takeStream(ctx, peer, &m, reply)
	}
	a, err := s.attempt(ctx, false, m.LowTtl)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	description, err := a.Describe(ctx)
	if err != nil {
		return nil, err
	}
	if err := reply(marshal(&coordinatepb.PunchAnswer{Description: description})); err != nil {
		return nil, err
	}
	return s.punch(ctx, a, peer, m.Description)
}

// punch is the common part of the two ends after they have each other's descriptions.
func (s *Side) punch(ctx context.Context, a *punch.Attempt, peer string, description []byte) (net.Conn, error) {
	c, err := a.Connect(ctx, description)
	if err != nil {
		return nil, cause(ctx, err)
	}
	if s.PortPool.keepTunnel(peer, c.Tunnel()) {
		s.Log.Info("a tunnel stays for the next time", "peer", peer, "unused", tunnelLife.String())
	}
	return c, nil
}
