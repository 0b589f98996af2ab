package connhelper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate"
	"github.com/isthmus-grid/isthmus/internal/nat/signalling"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// outgoing is a signalling request of this node.
type outgoing struct {
	*signalling.Call
	link   wire.ID
	life   context.Context
	detach func() bool // detaches the call from the dial's context
}

// signalRequest returns the request that all techniques share.
func (d *dialler) signalRequest(p *process, to target, t overlay.Technique) *controlpb.SignalRequest {
	link := newID()
	return &controlpb.SignalRequest{
		Link: link[:], Technique: uint32(t), Asker: control.ProcessToPB(p.name), AskerNode: d.node.Name,
		Target: control.ProcessToPB(to.point.Process), TargetGeneration: uint64(to.point.Generation),
	}
}

// signal makes a signalling request. It ends with ctx until detach is called, and after watchTimeout
// in any case. failed may be nil.
func (d *dialler) signal(ctx context.Context, f *frontal, request *controlpb.SignalRequest, failed func(error)) *outgoing {
	life, end := context.WithTimeout(context.WithoutCancel(ctx), watchTimeout)
	request.SmallPackets = carrier.SmallPackets(ctx)
	spawn := func(run func()) { d.work.Go(func() { defer end(); run() }) }
	call := signalling.Start(life, spawn, f.directory(), request, signalling.Hooks{CallError: control.FromStatus, Failed: failed})
	return &outgoing{Call: call, link: wire.ID(request.Link), life: life, detach: context.AfterFunc(ctx, end)}
}

// outcome waits for the end of the call. It returns what the target has prepared for the next time, or what failed at
// the target's side, if that is known.
func (o *outgoing) outcome() (next []byte, err error) {
	e, err := o.Result()
	if errors.Is(o.life.Err(), context.DeadlineExceeded) {
		err = nil // no event in time: the relay's own timeout reports failures
	}
	return e.GetAnswer(), err
}

// targetService handles the signalling requests of other processes: the target's side of plans.
type targetService struct {
	controlpb.UnimplementedTargetServer
	*common
	delivery   *delivery
	traversals *traversals
	reserves   *reserves
	opts       *Options // for measurements
}

// Signal performs the target's part of a technique.
func (t *targetService) Signal(m *controlpb.Signal, stream grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
	if role := control.SessionOf(stream.Context()).Peer().Role; role != control.RoleFrontal {
		return control.Status(fmt.Errorf("%w: a %v does not signal", overlay.ErrForbidden, role))
	}
	err := t.handleSignal(stream.Context(), m, stream.Send)
	if err != nil {
		err = fmt.Errorf("helper %v: %w", t.node, err)
		t.log.Warn("signalling failed", "asker", m.GetAsker().String(), "site", m.AskerSite, "error", err)
		return stream.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_FAILED, Fault: control.Fault(err)})
	}
	return nil
}

func (t *targetService) handleSignal(ctx context.Context, m *controlpb.Signal, tell func(*controlpb.SignalEvent) error) error {
	p, asker, err := t.endsOf(m)
	if err != nil {
		return err
	}
	release, err := t.budgets.admit(p)
	if err != nil {
		return err
	}
	defer release()
	name := p.name
	f, err := t.uplink.frontal(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, relayTimeout, fmt.Errorf("%w after %v", overlay.ErrTimeout, relayTimeout))
	defer cancel()
	if m.SmallPackets {
		ctx = carrier.WithSmallPackets(ctx)
	}
	connected, err := t.meet(ctx, f, asker, m, tell, func(c socket, path overlay.Path) error {
		if err := t.delivery.deliver(p, c, path); err != nil {
			return fmt.Errorf("handing the connection to %v: %w", name, err)
		}
		t.log.Info("signalled", "from", asker.String(), "to", name.String(), "technique", path.String())
		return nil
	})
	if err != nil {
		return err
	}
	return tell(connected)
}

// endsOf returns the local process that a signalling request names, and the asker's name.
func (t *targetService) endsOf(m *controlpb.Signal) (p *process, asker overlay.ProcessName, err error) {
	name, err := control.ProcessFromPB(m.Target)
	if err != nil {
		return nil, asker, err
	}
	if asker, _, err = signalling.Peer(m, name); err != nil {
		return nil, asker, err
	}
	p = t.here.get(name)
	if p == nil {
		return nil, asker, fmt.Errorf("%w: no %v here", overlay.ErrUnknownProcess, name)
	}
	if m.TargetGeneration != 0 && m.TargetGeneration != uint64(p.generation) {
		return nil, asker, fmt.Errorf("%w: %v has started again since", overlay.ErrStale, name)
	}
	return p, asker, nil
}

// meet makes the target's connection: to the relay with its ticket, back to the asker with the
// connect-id, or as the technique negotiates. It notifies the asker that it has started, with the
// answer if the technique has one, has the connection delivered, and returns the event for the end.
func (t *targetService) meet(ctx context.Context, f *frontal, asker overlay.ProcessName, m *controlpb.Signal, tell func(*controlpb.SignalEvent) error, deliver func(socket, overlay.Path) error) (*controlpb.SignalEvent, error) {
	path := overlay.Path{
		Technique: overlay.Technique(m.Technique), Reason: m.Reason, Small: m.SmallPackets,
		Peer: overlay.NodeID{Site: overlay.SiteID(m.AskerSite), Name: m.AskerNode},
	}
	if f.profile.GatewayOnly {
		path.Via = overlay.ViaTarget
	}
	if coordinate.Knows(path.Technique) && !f.profile.GatewayOnly {
		if err := t.outbound.skipReason(path.Technique); err != nil {
			return nil, err
		}
		side := t.traversals.side(f, journey{asker: asker, target: overlay.ProcessName{Job: asker.Job, Rank: m.Target.GetRank()}})
		return signalling.Answer(ctx, side, m, tell, func(c net.Conn) error {
			path.Reason = withLimits(path.Reason, t.site.version(c, strings.HasPrefix(path.Reason, "over IPv6")))
			s, err := t.socketFor(c)
			if err != nil {
				return err
			}
			return deliver(s, path)
		})
	}
	inside := path.Technique.Kind() == overlay.TargetDials && overlay.SiteID(m.AskerSite) == t.node.Site
	ctx, end, err := t.outbound.dialSlot(ctx, f, inside, peerDialTimeout) // before the asker relies on this end
	if err != nil {
		return nil, err
	}
	defer end()
	if err := tell(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_ACCEPTED}); err != nil {
		return nil, err
	}
	link, err := idOf(m.Link)
	if err != nil {
		return nil, err
	}
	name, err := control.ProcessFromPB(m.Target)
	if err != nil {
		return nil, err
	}
	j := journey{asker: asker, target: name, link: link}
	var greeting []byte
	switch path.Technique.Kind() {
	case overlay.ByProxy:
		if m.Relay == nil {
			return nil, fmt.Errorf("%w: a signalling request for a relay that names none", wire.ErrMalformed)
		}
		path.Proxy = m.Relay.Proxy
		j.addrs, j.proxy, greeting = m.Relay.Addresses, true, m.Relay.Ticket
	case overlay.TargetDials:
		id, err := idOf(m.ConnectId)
		if err != nil {
			return nil, err
		}
		j.inside = overlay.SiteID(m.AskerSite) == t.node.Site
		j.foreign = !j.inside
		j.addrs = []string{m.ConnectAddress}
		greeting = wire.Append(nil, &wire.Intro{Kind: wire.IntroReverse, ID: id, Job: name.Job, Rank: name.Rank, From: t.node, Technique: path.Technique, Via: path.Via})
	default:
		return nil, fmt.Errorf("%w: technique %v; upgrade this helper", wire.ErrVersion, path.Technique)
	}
	c, limits, err := t.outbound.reach(ctx, f, j)
	if err != nil {
		return nil, err
	}
	path.Reason = withLimits(path.Reason, append(limits, relayLimit(m.GetRelay())))
	if err := write(ctx, c, greeting); err != nil {
		return nil, err
	}
	s, err := t.socketFor(c)
	if err != nil {
		return nil, err
	}
	return &controlpb.SignalEvent{Kind: controlpb.SignalEvent_CONNECTED}, deliver(s, path)
}
