package coordinate

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate/coordinatepb"
	"github.com/isthmus-grid/isthmus/internal/nat/traverse"
	"github.com/isthmus-grid/isthmus/overlay"
)

// engine returns the engine, or an error that says why there is none.
func (s *Side) engine() (*traverse.Engine, error) {
	if s.Engine == nil || s.PortPool == nil {
		return nil, fmt.Errorf("%w: %w; give isthmus-helper (or, on a gateway, isthmus-frontal) the capability, as in AmbientCapabilities=CAP_NET_RAW",
			overlay.ErrForbidden, traverse.ErrPrivilege)
	}
	return s.Engine, nil
}

// askTraverse dials a port that the target reserved, and has the SYN carried there meanwhile.
// Without a valid one it requests one first.
func (s *Side) askTraverse(ctx context.Context, peer string, _ uint16, ex Exchange) (net.Conn, error) {
	engine, err := s.engine()
	if err != nil {
		return nil, err
	}
	reserved, warm := s.recall(peer)
	asked := make(chan error, 1)
	if warm {
		asked <- nil
	} else {
		go func() { // in parallel to the preparation of this end's port
			var err error
			reserved, err = s.askReservedPort(ctx, ex)
			asked <- err
		}()
	}
	own := s.sparePort()
	if own == nil {
		own, err = s.prepare(ctx, s.ports(0))
	}
	if own != nil {
		defer own.close()
	}
	if err = errors.Join(err, <-asked); err != nil {
		return nil, err
	}
	c, err := s.traverse(ctx, engine, own, reserved, ex)
	if warm && errors.Is(err, overlay.ErrStale) {
		if reserved, err = s.askReservedPort(ctx, ex); err == nil {
			c, err = s.traverse(ctx, engine, own, reserved, ex)
		}
	}
	return c, err
}

// traverse dials the reserved port from own.
func (s *Side) traverse(ctx context.Context, engine *traverse.Engine, own *ready, reserved peerPort, ex Exchange) (net.Conn, error) {
	level, why, ok := traverse.Choose(s.Profile, reserved.end.Profile)
	if !ok {
		return nil, fmt.Errorf("%w: %s", overlay.ErrNoPath, why)
	}
	remote := reserved.end.Mapping.Outside
	if err := s.checkTarget(remote); err != nil {
		return nil, err
	}
	if own.port.Local().Addr().Is6() && remote.Addr().Unmap().Is4() {
		return nil, fmt.Errorf("%w: the target reserved %v where a port on its IPv6 address was asked for; a daemon of an earlier version does so: upgrade it", overlay.ErrUnreachable, remote)
	}
	c, err := engine.Connect(ctx, traverse.Request{
		Level: level, Local: own.port.Local(), Remote: remote,
		Dial: func(ctx context.Context) (*net.TCPConn, error) { return own.port.Dial(ctx, remote) },
		Carry: func(ctx context.Context, syn []byte) error {
			_, err := ex(ctx, marshal(&coordinatepb.TraverseOffer{
				Profile: own.profile(), ReservedPort: reserved.id[:], Syn: syn, Source: own.end.Mapping.Outside.String(), Level: uint32(level),
				Ipv6: remote.Addr().Unmap().Is6(),
			}))
			return err
		},
	})
	if err != nil {
		return nil, cause(ctx, err)
	}
	return scaled(c)
}

// askReservedPort requests that the target prepare a port.
func (s *Side) askReservedPort(ctx context.Context, ex Exchange) (peerPort, error) {
	reply, err := ex(ctx, marshal(&coordinatepb.TraverseOffer{Profile: marshal(control.ProfileToPB(s.Profile)), Ipv6: s.preferredAddress().Is6()}))
	if err != nil {
		return peerPort{}, err
	}
	var m coordinatepb.ReservedPort
	if err := unmarshal(reply, &m); err != nil {
		return peerPort{}, err
	}
	return readReservedPort(&m)
}

// answerTraverse reserves a port, or injects the SYN that arrived for one.
func (s *Side) answerTraverse(ctx context.Context, peer string, offer []byte, reply func([]byte) error) (net.Conn, error) {
	engine, err := s.engine()
	if err != nil {
		return nil, err
	}
	var m coordinatepb.TraverseOffer
	if err := unmarshal(offer, &m); err != nil {
		return nil, err
	}
	if m.Ipv6 {
		if s, err = s.OverIPv6(); err != nil {
			return nil, err
		}
	}
	if len(m.ReservedPort) == 0 {
		p, err := s.reserveNext(ctx, peer)
		if err != nil {
			return nil, err
		}
		return nil, reply(marshal(p))
	}
	source, err := parseAddr("the asker's address", m.Source)
	if err != nil {
		return nil, err
	}
	if err := s.checkTarget(source); err != nil {
		return nil, err
	}
	r, err := s.PortPool.claim(m.ReservedPort)
	if err != nil {
		return nil, err
	}
	defer r.close()
	injected, err := engine.Inject(ctx, traverse.Injection{Level: traverse.Level(min(m.Level, 255)), SYN: m.Syn, Source: source, Target: r.port.Local()})
	if err != nil {
		return nil, err
	}
	if err := reply(nil); err != nil {
		injected.Close()
		return nil, err
	}
	c, err := r.port.Accept(ctx, source)
	if err != nil {
		injected.Close()
		return nil, cause(ctx, err)
	}
	return c, nil
}
