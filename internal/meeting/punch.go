package meeting

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/isthmus-grid/isthmus/internal/meeting/meetingpb"
	"github.com/isthmus-grid/isthmus/internal/punch"
	"github.com/isthmus-grid/isthmus/overlay"
)

func (s *Side) attempt(ctx context.Context, controlling, lowTTL bool) (*punch.Attempt, error) {
	b, err := s.Bearings(ctx)
	if err != nil {
		return nil, err
	}
	if len(b.STUN) == 0 {
		return nil, fmt.Errorf("%w: the broker names no STUN server", overlay.ErrUnreachable)
	}
	return punch.New(punch.Config{
		Local: netip.AddrPortFrom(s.Address, 0), STUN: b.STUN, LowTTL: lowTTL, Controlling: controlling,
		Forbidden: s.Forbidden, Log: s.Log,
	})
}

// lowTTL makes the first datagrams die behind the own gateway. Only gateways
// that answer by themselves need it, but an end does not know the other's, and
// it costs no more than punch.DefaultHoldOff.
const lowTTL = true

func (s *Side) askPunch(ctx context.Context, ex Exchange) (net.Conn, error) {
	a, err := s.attempt(ctx, true, lowTTL)
	if err != nil {
		return nil, err
	}
	defer a.Close() // does nothing to a connection
	description, err := a.Describe(ctx)
	if err != nil {
		return nil, err
	}
	reply, err := ex(ctx, marshal(&meetingpb.PunchOffer{Description: description, LowTtl: lowTTL}))
	if err != nil {
		return nil, err
	}
	var m meetingpb.PunchAnswer
	if err := unmarshal(reply, &m); err != nil {
		return nil, err
	}
	c, err := a.Connect(ctx, m.Description)
	if err != nil {
		return nil, cause(ctx, err)
	}
	return c, nil
}

func (s *Side) answerPunch(ctx context.Context, offer []byte, reply func([]byte) error) (net.Conn, error) {
	var m meetingpb.PunchOffer
	if err := unmarshal(offer, &m); err != nil {
		return nil, err
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
	if err := reply(marshal(&meetingpb.PunchAnswer{Description: description})); err != nil {
		return nil, err
	}
	c, err := a.Connect(ctx, m.Description)
	if err != nil {
		return nil, cause(ctx, err)
	}
	return c, nil
}
