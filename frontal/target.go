package frontal

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/isthmus-grid/isthmus/frontal/gateway"
	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// targetServer serves the calls of the broker.
type targetServer struct {
	controlpb.UnimplementedTargetServer
	f *Frontal
}

// Signal passes a signalling request to the helper of the process that it
// names, and the helper's events back; or this gateway is the target's end.
func (t *targetServer) Signal(in *controlpb.Signal, out grpc.ServerStreamingServer[controlpb.SignalEvent]) error {
	ctx, cancel := context.WithTimeout(out.Context(), maxSignalling)
	defer cancel()
	point, s, err := t.check(ctx, in, "Signal")
	if err != nil {
		return control.Status(err)
	}
	name := point.Process
	t.f.gateway.Allow(in.ConnectAddress)
	t.f.gateway.AllowRelay(in.Relay, gateway.AllowedFor)
	t.f.log.Info("signalling", "link", fmt.Sprintf("%x", in.Link), "job", name.Job, "asker", in.Asker.GetRank(), "asker_node", in.AskerSite+"/"+in.AskerNode,
		"target", name.Rank, "node", point.Node.String(), "technique", overlay.Technique(min(in.Technique, 255)).String(), "proxy", in.Relay.GetProxy())
	send := func(event *controlpb.SignalEvent) error {
		if event.Kind == controlpb.SignalEvent_CONNECTED {
			t.noteCall(in, point.Node.Name)
		}
		return out.Send(event)
	}
	if technique, err := control.TechniqueFromPB(in.Technique); err == nil && t.f.gateway.StandsIn(technique) {
		if err := t.f.gateway.Answer(ctx, in, point, send); err != nil {
			return out.Send(&controlpb.SignalEvent{Kind: controlpb.SignalEvent_FAILED, Fault: control.Fault(err)})
		}
		return nil
	}
	events, err := controlpb.NewTargetClient(s.Conn()).Signal(ctx, in)
	if err != nil {
		return control.Status(t.f.helperError(s, point, err))
	}
	return control.Status(t.f.passEvents(events, send, func(err error) error { return t.f.helperError(s, point, err) }))
}

// noteCall records that a process of another site has connected to one of a node here.
func (t *targetServer) noteCall(in *controlpb.Signal, own string) {
	technique, err := control.TechniqueFromPB(in.Technique)
	if site := overlay.SiteID(in.AskerSite); err == nil && site != t.f.site {
		t.f.memory.Called(site, own, technique, time.Now())
	}
}

// check returns which helper plays the target's part of a signalling request, if the broker made it
// and the site's policy permits it.
func (t *targetServer) check(ctx context.Context, in *controlpb.Signal, call string) (point overlay.AccessPoint, s *control.Session, err error) {
	if id := control.SessionOf(ctx).Peer(); id.Role != control.RoleBroker {
		return overlay.AccessPoint{}, nil, t.f.forbidden("%v may not call %s; the broker may", id, call)
	}
	name, err := control.ProcessFromPB(in.Target)
	if err != nil {
		return overlay.AccessPoint{}, nil, fmt.Errorf("%s: %w: target: %w", t.f.who, wire.ErrMalformed, err)
	}
	point, s, err = t.f.registry.Target(name, overlay.Generation(in.TargetGeneration))
	if err != nil {
		return overlay.AccessPoint{}, nil, fmt.Errorf("%s: %w", t.f.who, err)
	}
	if err := t.f.permit.Permit(in, point); err != nil {
		t.f.log.Warn("the site's policy refuses what the broker signals", "job", name.Job, "target", name.Rank, "asker_node", in.AskerSite+"/"+in.AskerNode, "error", err)
		return overlay.AccessPoint{}, nil, fmt.Errorf("%s: %w", t.f.who, err)
	}
	if err := t.f.askerInside(in); err != nil {
		t.f.auditRefusal(control.SessionOf(ctx).Peer().String(), "signalling", err)
		return overlay.AccessPoint{}, nil, err
	}
	return point, s, nil
}

// helperError adds class and text to the error of a call to a helper.
func (f *Frontal) helperError(s *control.Session, p overlay.AccessPoint, err error) error {
	select {
	case <-s.Done():
		return fmt.Errorf("%s: %w: helper %v left while it was asked about %v", f.who, overlay.ErrNoSession, p.Node, p.Process)
	default:
		return control.FromStatus(err)
	}
}
