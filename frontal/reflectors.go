package frontal

import (
	"context"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/nat/coordinate"
)

// Reflectors queries the broker for every caller: the answer contains a clock reading.
func (d *directoryServer) Reflectors(ctx context.Context, req *controlpb.ReflectorsRequest) (*controlpb.ReflectorsResponse, error) {
	if _, err := d.f.helperOf(ctx, "Reflectors"); err != nil {
		return nil, control.Status(err)
	}
	resp, err := d.f.reflectors(ctx, req)
	return resp, control.Status(err)
}

// CallBack passes a helper's request for a call-back to the broker, which knows whether the helper
// may name the address.
func (d *directoryServer) CallBack(ctx context.Context, req *controlpb.CallBackRequest) (*controlpb.CallBackResponse, error) {
	id, err := d.f.helperOf(ctx, "CallBack")
	if err != nil {
		return nil, control.Status(err)
	}
	resp, err := d.f.up.CallBack(ctx, req)
	if err != nil {
		d.f.log.Warn("call-back refused", "node", id.Node().String(), "to", req.To, "error", err)
	}
	return resp, control.Status(err)
}

// reflectors is the broker's answer without what the settings deny.
func (f *Frontal) reflectors(ctx context.Context, req *controlpb.ReflectorsRequest) (*controlpb.ReflectorsResponse, error) {
	resp, err := f.up.Reflectors(ctx, req)
	if err == nil {
		coordinate.Filter(resp, f.config().rule().Without)
	}
	return resp, err
}
