package connhelper

import (
	"context"
	"fmt"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// Hosts returns the nodes of the grid, including this one, in the order of offer.Compare. The
// frontal answers from a cache of some seconds. Hosts waits for a session with the frontal until
// ctx ends, and then fails with an overlay.ErrNoSession. The caller owns the list.
func (h *Helper) Hosts(ctx context.Context) ([]offer.Host, error) {
	f, err := h.frontal(ctx)
	if err != nil {
		return nil, err
	}
	m, err := f.directory().Hosts(ctx, &controlpb.HostsRequest{})
	if err != nil {
		return nil, fmt.Errorf("helper %v: the list of hosts: %w", h.node, control.FromStatus(err))
	}
	list, err := offer.ListFromPB(m)
	if err != nil {
		return nil, fmt.Errorf("helper %v: %w: the list of hosts from %v: %w", h.node, wire.ErrMalformed, f.session.Peer(), err)
	}
	return list, nil
}

// Node returns the node that the helper runs on.
func (h *Helper) Node() overlay.NodeID { return h.node }
