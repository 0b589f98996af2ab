package connhelper

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/connhelper/reserve"
	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/carrier/encap"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/pki/ticket"
	"github.com/isthmus-grid/isthmus/internal/sleep"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// reserved is a relay that is kept in reserve for a process of this node.
type reserved = reserve.Relay[*process]

// reserveBound bounds one request for a reserve, maxReserving those under way.
const (
	reserveBound = 10 * time.Second
	maxReserving = 16
)

// reserves are the relays that are kept for links of this node's processes.
type reserves struct {
	*common
	kept       reserve.Table[*process]
	requesting chan struct{} // one token for each that is being requested
}

// keep stores a reserve for a process, and determines how to reach its proxy, which would take
// time when the reserve is dialled.
func (k *reserves) keep(p *process, rank uint32, one *reserved) {
	k.kept.Keep(p, rank, one)
	if k.here.get(p.name) != p {
		k.kept.Forget(p) // it has left meanwhile
	}
	f, _ := k.uplink.currentFrontal()
	if f == nil || f.profile.GatewayOnly { // the gateway determines it
		return
	}
	k.work.Go(func() {
		ctx, cancel := context.WithTimeout(k.life, reserveBound)
		defer cancel()
		addrs, proxy, err := k.outbound.mayReach(f, reserveJourney(one, p, rank))
		for _, addr := range addrs {
			err = k.outbound.proxies.Prepare(ctx, addr, encap.RouteOf(f.profile, proxy), ticket.MaxLife)
		}
		if err != nil {
			k.log.Debug("the proxy of a reserve does not answer", "proxy", one.Relay.Proxy, "error", err)
		}
	})
}

// reserveJourney returns the journey to the reserve's proxy.
func reserveJourney(one *reserved, p *process, rank uint32) journey {
	return journey{
		addrs: one.Relay.Addresses, proxy: true, link: one.Link, asker: p.name, target: overlay.ProcessName{Job: p.name.Job, Rank: rank},
	}
}

// request requests a reserve for a link of p, unless there is one. It does so in the background, by
// spawn.
func (k *reserves) request(ctx context.Context, spawn func(func()), p *process, f *wire.LocalReserve) {
	if f.Rank == p.name.Rank || len(k.requesting) == cap(k.requesting) || !k.kept.Wants(p, f.Rank, f.Generation, time.Now()) {
		return // the process asks again
	}
	spawn(func() {
		select {
		case k.requesting <- struct{}{}:
			defer func() { <-k.requesting }()
		default:
			return
		}
		ctx, cancel := context.WithTimeout(ctx, reserveBound)
		defer cancel()
		one, err := k.get(ctx, p, f)
		if err != nil {
			k.kept.Failed(p, f.Rank, err, time.Now())
			k.log.Debug("no reserve", "from", p.name.String(), "to", f.Rank, "error", err)
			return
		}
		k.keep(p, f.Rank, one)
		k.log.Debug("relay in reserve", "from", p.name.String(), "to", f.Rank, "proxy", one.Relay.Proxy)
	})
}

func (k *reserves) get(ctx context.Context, p *process, l *wire.LocalReserve) (*reserved, error) {
	f, err := k.uplink.frontalFor(ctx, p)
	if err != nil {
		return nil, err
	}
	id := newID()
	r, err := f.directory().Reserve(ctx, &controlpb.SignalRequest{
		Link: id[:], Technique: uint32(overlay.Relay), Asker: control.ProcessToPB(p.name), AskerNode: k.node.Name,
		Target: control.ProcessToPB(overlay.ProcessName{Job: p.name.Job, Rank: l.Rank}), TargetGeneration: uint64(l.Generation),
	})
	if err != nil {
		return nil, control.FromStatus(err)
	}
	if r.Relay == nil {
		return nil, fmt.Errorf("%w: a reserve without a relay", wire.ErrMalformed)
	}
	one := &reserved{
		Link: id, Relay: r.Relay, Life: l.Generation, Via: overlay.Via(r.Via), Reason: r.Reason,
		Peer: overlay.NodeID{Site: overlay.SiteID(r.TargetSite), Name: r.TargetNode},
	}
	return one.Expiring(r.LifeMs, time.Now()), nil
}

// Reserve implements controlpb.TargetServer: it keeps the target's end.
func (t *targetService) Reserve(ctx context.Context, m *controlpb.Signal) (*controlpb.ReserveResponse, error) {
	if err := t.keepReserve(ctx, m); err != nil {
		return nil, control.Status(fmt.Errorf("helper %v: %w", t.node, err))
	}
	return &controlpb.ReserveResponse{}, nil
}

func (t *targetService) keepReserve(ctx context.Context, m *controlpb.Signal) error {
	if role := control.SessionOf(ctx).Peer().Role; role != control.RoleFrontal {
		return fmt.Errorf("%w: a %v does not signal", overlay.ErrForbidden, role)
	}
	p, asker, err := t.endsOf(m)
	if err != nil {
		return err
	}
	link, err := idOf(m.Link)
	if err != nil {
		return err
	}
	if m.Relay == nil || overlay.Technique(m.Technique) != overlay.Relay {
		return fmt.Errorf("%w: a reserve that is no relay", wire.ErrMalformed)
	}
	one := &reserved{
		Link: link, Relay: m.Relay, Life: overlay.Generation(m.AskerGeneration), Reason: m.Reason,
		Peer: overlay.NodeID{Site: overlay.SiteID(m.AskerSite), Name: m.AskerNode},
	}
	if site := t.site.Load(); site != nil && site.GatewayOnly {
		one.Via = overlay.ViaTarget
	}
	one.Expiring(m.LifeMs, time.Now())
	one.RenewedByPeer()
	t.reserves.keep(p, asker.Rank, one)
	return nil
}

// untilReached calls dial again until it succeeds, fails for good, or ctx ends. The ticket of a reserve is
// as good as before after a dial that has not reached the proxy, and what killed all paths at once may
// hold the proxy up for a moment, too.
func untilReached[C any](ctx context.Context, dial func() (C, error)) (C, error) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, longestPause) {
		c, err := dial()
		if err == nil || !isTransient(err) || sleep.For(ctx, pause) != nil {
			return c, err
		}
	}
}

// dial connects p to the relay that is kept for its link to rank, in small packets: large
// ones may not pass any more, and there is no time to find out. The link looks for a path with
// full-sized packets afterwards. Whether the other end dials the relay too shows in the link's
// handshake, and says nothing about the path.
func (k *reserves) dial(ctx context.Context, p *process, rank uint32) (readyConn, error) {
	one := k.kept.Take(p, rank, time.Now())
	if one == nil {
		return readyConn{}, fmt.Errorf("%w: none is kept in reserve", overlay.ErrNoRelay)
	}
	f, _ := k.uplink.currentFrontal()
	if site := k.site.Load(); f == nil && site != nil && !site.GatewayOnly {
		f = &frontal{profile: *site} // the session is gone, and not needed
	}
	if f == nil {
		return readyConn{}, fmt.Errorf("%w: the gateway that would carry to proxy %s is away", overlay.ErrNoSession, one.Relay.Proxy)
	}
	path := overlay.Path{
		Technique: overlay.Relay, Via: one.Via, Proxy: one.Relay.Proxy, Peer: one.Peer, Small: true,
		Reason: withLimits(one.Reason+"; it was kept in reserve", []string{relayLimit(one.Relay)}),
	}
	c, err := untilReached(ctx, func() (limitedStream, error) {
		c, limits, err := k.outbound.reach(carrier.WithSmallPackets(carrier.Urgent(ctx)), f, reserveJourney(one, p, rank))
		return limitedStream{c, limits}, err
	})
	if err != nil {
		return readyConn{}, fmt.Errorf("proxy %s: %w", one.Relay.Proxy, err)
	}
	path.Reason = withLimits(path.Reason, c.limits)
	if err := write(ctx, c.Stream, one.Relay.Ticket); err != nil {
		return readyConn{}, fmt.Errorf("proxy %s: %w", one.Relay.Proxy, err)
	}
	s, err := k.socketFor(c.Stream)
	return readyConn{conn: s, path: path}, err
}
