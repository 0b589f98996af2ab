package nodeservice

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/isthmus-grid/isthmus/internal/control"
	"github.com/isthmus-grid/isthmus/launch/latency"
	"github.com/isthmus-grid/isthmus/launch/nearby"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

// HostList serves Submitters.Hosts: the grid's list of hosts with the distance of each.
type HostList struct {
	List   func(context.Context) (offer.List, error) // from the frontal; sorted by offer.Compare
	Nearby *nearby.Nearby
}

// Hosts returns the list. From now on it measures nodes that are up and accept jobs, so that a
// later call has their distances.
func (l HostList) Hosts(ctx context.Context, _ *nodepb.HostsRequest) (*nodepb.HostsResponse, error) {
	list, err := l.List(ctx)
	if err != nil {
		return nil, control.Status(err)
	}
	var up []overlay.NodeID
	for _, h := range list.Hosts {
		if h.State == offer.Up && h.Offer.Jobs > 0 { // other hosts have no node service that answers
			up = append(up, h.Node)
		}
	}
	r := hostsToPB(list.Hosts, l.Nearby.Order(up))
	r.Stale = list.Stale
	return r, nil
}

// hostsToPB puts the hosts in order first, in that order, which a placement then follows; the
// others keep their order.
func hostsToPB(list []offer.Host, order []latency.Entry) *nodepb.HostsResponse {
	rtts := make(map[overlay.NodeID]time.Duration, len(order))
	silent := make(map[overlay.NodeID]bool)
	places := make(map[overlay.NodeID]int, len(order)) // counted from the end, so that hosts without one sort last
	for i, e := range order {
		rtts[e.Node], places[e.Node], silent[e.Node] = e.RTT, len(order)-i, e.Silent
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b offer.Host) int { return cmp.Compare(places[b.Node], places[a.Node]) })
	r := &nodepb.HostsResponse{Hosts: make([]*nodepb.Host, len(list))}
	for i, h := range list {
		r.Hosts[i] = &nodepb.Host{
			Node: h.Node.Key(), State: h.State.String(), SilentMs: uint64(h.Silent.Milliseconds()),
			Jobs: uint32(h.Offer.Jobs), Processes: uint32(h.Offer.Processes), Memory: uint64(h.Offer.Memory), Cpu: uint32(h.Offer.CPU),
			LatencyNs: uint64(rtts[h.Node]), Power: uint32(h.Offer.Power), Note: h.Note, Unanswered: silent[h.Node],
		}
	}
	return r
}

// ownDistance is the distance of a node from itself, which is not measured.
const ownDistance = time.Microsecond

// Pinger returns a nearby.Ping from the node self that times NodeService.Ping on the client that reach
// returns, usually (*Server).Reach.
func Pinger(self overlay.NodeID, reach func(context.Context, overlay.NodeID) (nodepb.NodeServiceClient, func(), error)) nearby.Ping {
	return func(ctx context.Context, node overlay.NodeID) (time.Duration, error) {
		if node == self {
			return ownDistance, nil
		}
		there, done, err := reach(ctx, node)
		if err != nil {
			return 0, err
		}
		defer done()
		start := time.Now()
		if _, err := there.Ping(ctx, &nodepb.PingRequest{}); err != nil {
			return 0, control.FromStatus(err)
		}
		return time.Since(start), nil
	}
}
