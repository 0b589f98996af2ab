package connhelper

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/probe"
	"github.com/isthmus-grid/isthmus/internal/nat/simopen"
	"github.com/isthmus-grid/isthmus/internal/nat/traverse"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// measureTimeout bounds a measurement, whatever its caller requests.
const measureTimeout = 90 * time.Second

// measuring holds a token while a measurement is under way in this process: two at once would
// mistake each other's traffic for effects of the firewall. Idle mappings are measured with hardly
// any traffic, and in parallel.
var measuring, idling = make(chan struct{}, 1), make(chan struct{}, 1)

// Measure measures the site's profile from this node, for its frontal.
func (t *targetService) Measure(ctx context.Context, req *controlpb.MeasureRequest) (*controlpb.Measurement, error) {
	peer := control.SessionOf(ctx).Peer()
	if peer.Role != control.RoleFrontal {
		return nil, control.Status(fmt.Errorf("%w: a %v does not measure", overlay.ErrForbidden, peer.Role))
	}
	m, err := t.measure(ctx, req)
	if err != nil {
		return nil, control.Status(fmt.Errorf("helper %v: measuring the site: %w", t.node, err))
	}
	return m.ToPB(), nil
}

func (t *targetService) measure(ctx context.Context, req *controlpb.MeasureRequest) (probe.Measured, error) {
	token, bound := measuring, measureTimeout
	waits := idleWaits(req)
	if len(waits) > 0 {
		if err := probe.CheckIdleWaits(waits); err != nil {
			return probe.Measured{}, fmt.Errorf("%w: %w", wire.ErrMalformed, err)
		}
		token, bound = idling, measureTimeout+probe.IdleBound(waits)
	}
	select {
	case token <- struct{}{}:
		defer func() { <-token }()
	default:
		return probe.Measured{}, fmt.Errorf("%w: it is being measured already", overlay.ErrOverloaded)
	}
	if req.GetFirstPort() > 65535 || req.GetLastPort() > 65535 {
		return probe.Measured{}, fmt.Errorf("%w: ports %d-%d", wire.ErrMalformed, req.GetFirstPort(), req.GetLastPort())
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	f, err := t.uplink.frontal(ctx)
	if err != nil {
		return probe.Measured{}, err
	}
	opts := probe.Options{
		Grid:      askFrontal{f.directory(), t.traversals},
		Ports:     overlay.Ports{First: uint16(req.GetFirstPort()), Last: uint16(req.GetLastPort())},
		HTTPProxy: t.opts.HTTPProxy,
		TLS:       t.opts.Credentials.DataClient(control.RoleBroker, control.RoleProxy),
		Raw:       traverse.Available,
		Port443:   simopen.MayBind443,
	}
	if len(waits) > 0 {
		o, err := probe.MeasureIdle(ctx, opts, waits)
		return probe.Result{Findings: o.Findings()}.MeasuredBy(t.node.Name, time.Now()), err
	}
	o, err := probe.Measure(ctx, opts)
	if err != nil {
		return probe.Measured{}, err
	}
	return probe.Infer(o).MeasuredBy(t.node.Name, time.Now()), nil
}

// idleWaits returns the times for which mappings are to be idle; none for a measurement of
// everything else.
func idleWaits(req *controlpb.MeasureRequest) []time.Duration {
	var waits []time.Duration
	for _, s := range req.GetIdleS() {
		waits = append(waits, time.Duration(s)*time.Second)
	}
	return waits
}

// askFrontal is the helper's interface to the grid for measurements.
type askFrontal struct {
	controlpb.DirectoryClient
	traversals *traversals
}

func (a askFrontal) Reflectors(ctx context.Context, req *controlpb.ReflectorsRequest) (*controlpb.ReflectorsResponse, error) {
	resp, err := a.DirectoryClient.Reflectors(ctx, req)
	return a.traversals.permitted(resp), control.FromStatus(err)
}

func (a askFrontal) CallBack(ctx context.Context, req *controlpb.CallBackRequest) (*controlpb.CallBackResponse, error) {
	resp, err := a.DirectoryClient.CallBack(ctx, req)
	return resp, control.FromStatus(err)
}
