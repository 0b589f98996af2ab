package connhelper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/internal/carrier"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// signalling is the asker's side of one Signal call. A goroutine of the helper forwards its
// events until the call ends.
type signalling struct {
	link   wire.ID
	events <-chan *controlpb.SignalEvent // closed when the call ended
	err    error                         // why it ended; valid after events is closed
	end    context.CancelFunc
	detach func() bool // detaches the call from the dial's context
	life   context.Context

	onReserved func(next []byte) // called with what the target has prepared for the next time; may be nil
}

// signalRequest returns the request that all techniques share.
func (d *dialler) signalRequest(p *process, to target, t overlay.Technique) *controlpb.SignalRequest {
	link := newID()
	return &controlpb.SignalRequest{
		Link: link[:], Technique: uint32(t), Asker: control.ProcessToPB(p.name), AskerNode: d.node.Name,
		Target: control.ProcessToPB(to.point.Process), TargetGeneration: uint64(to.point.Generation),
	}
}

// openSignalling starts the call. It ends with ctx until detach is called, and after watchTimeout
// in any case.
func (d *dialler) openSignalling(ctx context.Context, f *frontal, request *controlpb.SignalRequest) (*signalling, error) {
	life, end := context.WithTimeout(context.WithoutCancel(ctx), watchTimeout)
	detach := context.AfterFunc(ctx, end)
	request.SmallPackets = carrier.SmallPackets(ctx)
	stream, err := f.directory().Signal(life, request)
	if err != nil {
		end()
		return nil, control.FromStatus(err)
	}
	events := make(chan *controlpb.SignalEvent, 4) // more than a call has
	in := &signalling{link: wire.ID(request.Link), events: events, end: end, detach: detach, life: life}
	d.work.Go(func() {
		defer end()
		defer close(events)
		in.err = receive(life, stream, events)
	})
	return in, nil
}

func receive(ctx context.Context, stream grpc.ServerStreamingClient[controlpb.SignalEvent], events chan<- *controlpb.SignalEvent) error {
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return control.FromStatus(err)
		}
		if e.Kind == controlpb.SignalEvent_FAILED {
			err := control.FaultErr(e.Fault)
			if errors.Is(err, overlay.ErrOverloaded) { // the broker's own bounds fail the call
				err = fmt.Errorf("%w: %w", err, errUnanswered)
			}
			return err
		}
		select {
		case events <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// failure returns why the call ended; call it after events was closed.
func (in *signalling) failure() error {
	if in.err == nil {
		return fmt.Errorf("%w: the signalling request ended without a result", overlay.ErrRefused)
	}
	return in.err
}

// errUnanswered marks the end of a wait for a signalling request that the target's side has not
// accepted: nothing was tried.
var errUnanswered = errors.New("the target's side has not begun")

// unanswered returns the error of a wait for an event of the given kind that ended with ctx.
func unanswered(ctx context.Context, kind controlpb.SignalEvent_Kind) error {
	return fmt.Errorf("%w: waited for the signalling request to be %v: %w", context.Cause(ctx), kind, errUnanswered)
}

// await returns the next event of the given kind.
func (in *signalling) await(ctx context.Context, kind controlpb.SignalEvent_Kind) (*controlpb.SignalEvent, error) {
	for {
		select {
		case e, ok := <-in.events:
			if !ok {
				return nil, in.failure()
			}
			if e.Kind == kind {
				return e, nil
			}
		case <-ctx.Done():
			return nil, unanswered(ctx, kind)
		}
	}
}

// outcome waits for the end of the call and returns what failed at the target's side, if that is
// known.
func (in *signalling) outcome() error {
	for e := range in.events {
		if e.Kind == controlpb.SignalEvent_CONNECTED {
			if in.onReserved != nil {
				in.onReserved(e.Answer)
			}
			return nil
		}
	}
	if in.life.Err() != nil {
		return nil // no event in time: the relay's own timeout reports failures
	}
	return in.err
}

// targetService handles the signalling requests of other processes: the target's side of plans.
type targetService struct {
	controlpb.UnimplementedTargetServer
	*common
	budgets    *budgets
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
	accept := func(answer []byte) error {
		return tell(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_ACCEPTED, Answer: answer})
	}
	ctx, cancel := context.WithTimeoutCause(ctx, relayTimeout, fmt.Errorf("%w after %v", overlay.ErrTimeout, relayTimeout))
	defer cancel()
	if m.SmallPackets {
		ctx = carrier.WithSmallPackets(ctx)
	}
	c, path, err := t.meet(ctx, f, asker, m, accept)
	if err != nil {
		return err
	}
	connected := &controlpb.SignalEvent{Kind: controlpb.SignalEvent_CONNECTED}
	if c == nil {
		return tell(connected) // the asker calls again to use what was prepared
	}
	if err := t.delivery.deliver(p, c, path); err != nil {
		return fmt.Errorf("handing the connection to %v: %w", name, err)
	}
	t.log.Info("signalled", "from", asker.String(), "to", name.String(), "technique", path.String())
	connected.Answer = t.traversals.side(f, journey{asker: asker, target: name}).ReservePort(ctx, path.Technique, path.Peer.String(), m.Offer)
	return tell(connected)
}

// endsOf returns the local process that a signalling request names, and the asker's name.
func (t *targetService) endsOf(m *controlpb.Signal) (p *process, asker overlay.ProcessName, err error) {
	name, err := control.ProcessFromPB(m.Target)
	if err != nil {
		return nil, asker, err
	}
	asker, err = control.ProcessFromPB(m.Asker)
	if err != nil {
		return nil, asker, err
	}
	if asker.Job != name.Job {
		return nil, asker, fmt.Errorf("%w: %v asks for %v of another job", overlay.ErrForbidden, asker, name)
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
// answer if the technique has one.
func (t *targetService) meet(ctx context.Context, f *frontal, asker overlay.ProcessName, m *controlpb.Signal, accept func(answer []byte) error) (socket, overlay.Path, error) {
	path := overlay.Path{
		Technique: overlay.Technique(m.Technique), Reason: m.Reason, Small: m.SmallPackets,
		Peer: overlay.NodeID{Site: overlay.SiteID(m.AskerSite), Name: m.AskerNode},
	}
	if f.profile.GatewayOnly {
		path.Via = overlay.ViaTarget
	}
	if coordinate.Knows(path.Technique) && !f.profile.GatewayOnly {
		if err := t.outbound.skipReason(path.Technique); err != nil {
			return nil, path, err
		}
		target := overlay.ProcessName{Job: asker.Job, Rank: m.Target.GetRank()}
		c, err := t.traversals.side(f, journey{asker: asker, target: target}).Answer(ctx, path.Technique, path.Peer.String(), m.Offer, accept)
		if c == nil || err != nil {
			return nil, path, err
		}
		path.Reason = withLimits(path.Reason, t.site.version(c, strings.HasPrefix(path.Reason, "over IPv6")))
		s, err := t.socketFor(c)
		return s, path, err
	}
	inside := path.Technique.Kind() == overlay.TargetDials && overlay.SiteID(m.AskerSite) == t.node.Site
	ctx, end, err := t.outbound.dialSlot(ctx, f, inside, peerDialTimeout) // before the asker relies on this end
	if err != nil {
		return nil, path, err
	}
	defer end()
	if err := accept(nil); err != nil {
		return nil, path, err
	}
	link, err := idOf(m.Link)
	if err != nil {
		return nil, path, err
	}
	name, err := control.ProcessFromPB(m.Target)
	if err != nil {
		return nil, path, err
	}
	j := journey{asker: asker, target: name, link: link}
	var greeting []byte
	switch path.Technique.Kind() {
	case overlay.ByProxy:
		if m.Relay == nil {
			return nil, path, fmt.Errorf("%w: a signalling request for a relay that names none", wire.ErrMalformed)
		}
		path.Proxy = m.Relay.Proxy
		j.addrs, j.proxy, greeting = m.Relay.Addresses, true, m.Relay.Ticket
	case overlay.TargetDials:
		id, err := idOf(m.ConnectId)
		if err != nil {
			return nil, path, err
		}
		j.inside = overlay.SiteID(m.AskerSite) == t.node.Site
		j.foreign = !j.inside
		j.addrs = []string{m.ConnectAddress}
		greeting = wire.Append(nil, &wire.Intro{Kind: wire.IntroReverse, ID: id, Job: name.Job, Rank: name.Rank, From: t.node, Technique: path.Technique, Via: path.Via})
	default:
		return nil, path, fmt.Errorf("%w: technique %v; upgrade this helper", wire.ErrVersion, path.Technique)
	}
	c, limits, err := t.outbound.reach(ctx, f, j)
	if err != nil {
		return nil, path, err
	}
	path.Reason = withLimits(path.Reason, append(limits, relayLimit(m.GetRelay())))
	if err := write(ctx, c, greeting); err != nil {
		return nil, path, err
	}
	s, err := t.socketFor(c)
	return s, path, err
}
