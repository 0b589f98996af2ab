package connhelper

import (
	"context"
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/internal/control/controlpb"
	"github.com/isthmus-grid/isthmus/internal/limit"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
	"github.com/isthmus-grid/isthmus/wire"
)

// hostsWait is how long Hosts waits for a session. A user is waiting for the list, and it is longer
// than a restart of the frontal takes.
const hostsWait = 3 * time.Second

// maxStale bounds the reason for a list that is not current, in bytes.
const maxStale = 1 << 10

// Hosts returns the nodes of the grid, including this one, in the order of offer.Compare. The
// frontal answers from a cache of at most some seconds. Hosts waits for a session with the frontal, but not
// for long, and then fails with an overlay.ErrNoSession. The caller owns the list.
func (h *Helper) Hosts(ctx context.Context) (offer.List, error) {
	waiting, cancel := context.WithTimeout(ctx, hostsWait)
	defer cancel()
	f, err := h.uplink.frontal(waiting)
	if err != nil {
		return offer.List{}, err
	}
	m, err := f.directory().Hosts(ctx, &controlpb.HostsRequest{})
	if err != nil {
		return offer.List{}, fmt.Errorf("helper %v: the list of hosts: %w", h.node, control.FromStatus(err))
	}
	list, err := offer.ListFromPB(m)
	if err != nil {
		return offer.List{}, fmt.Errorf("helper %v: %w: the list of hosts from %v: %w", h.node, wire.ErrMalformed, f.session.Peer(), err)
	}
	return offer.List{Hosts: list, Stale: limit.Text(m.Stale, maxStale)}, nil
}

// Node returns the node that the helper runs on.
func (h *Helper) Node() overlay.NodeID { return h.node }
