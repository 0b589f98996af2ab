package frontal

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/wire"
)

// hostEntered records a helper's offer. A visitor offers nothing, nor does a helper that sends no
// offer.
func (f *Frontal) hostEntered(s *control.Session, m *controlpb.HostOffer) error {
	if m == nil || s.Visiting() {
		return nil
	}
	o, err := offer.FromPB(m)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", f.who, wire.ErrMalformed, err)
	}
	return f.hosts.Enter(s, o)
}

// Hosts lists the grid's hosts for a helper.
func (d *directoryServer) Hosts(ctx context.Context, _ *controlpb.HostsRequest) (*controlpb.HostList, error) {
	if _, err := d.f.helperOf(ctx, "Hosts"); err != nil {
		return nil, control.Status(err)
	}
	list, err := d.f.hosts.All(ctx)
	if err != nil {
		return nil, control.Status(err)
	}
	pb := offer.ListToPB(list.Hosts)
	pb.Stale = list.Stale
	return pb, nil
}
