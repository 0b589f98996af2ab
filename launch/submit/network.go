package submit

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/gate"
	"github.com/isthmus-grid/isthmus/launch/gate/gatepb"
	"github.com/isthmus-grid/isthmus/launch/match"
	"github.com/isthmus-grid/isthmus/launch/profile"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Bounds of what is measured between sites before a submission.
const (
	maxSites = 32               // that are compared, the nearest
	siteTime = 10 * time.Second // for a site to measure the others
)

// network is the round trips between sites, and within them, as one host of each has
// measured them. The key has the sites in the order of their names.
type network map[[2]overlay.SiteID]time.Duration

func sitePair(a, b overlay.SiteID) [2]overlay.SiteID {
	if b < a {
		a, b = b, a
	}
	return [2]overlay.SiteID{a, b}
}

// Path implements allocate.Network. Bandwidth is not measured.
func (n network) Path(a, b overlay.NodeID) (allocate.Path, bool) {
	rtt := n[sitePair(a.Site, b.Site)]
	return allocate.Path{RTT: rtt}, rtt > 0 && a != b
}

// tell tells an offer what was measured.
func (n network) tell(offer *match.Offer) {
	for pair, rtt := range n {
		offer.Sites(pair[0], pair[1], match.Link{RTT: rtt})
	}
}

// matters reports whether a job is placed by what lies between hosts.
func matters(j *Job) bool {
	if j.Profile == nil {
		return len(j.Hosts) == 0 && j.Strategy == allocate.Auto{}.Name()
	}
	return slices.ContainsFunc(j.Profile.Groups, func(g profile.Group) bool { return g.Inside.Latency > 0 }) ||
		slices.ContainsFunc(j.Profile.Between, func(b profile.Between) bool { return b.Latency > 0 })
}

// question is what one host is to measure.
type question struct {
	asked overlay.NodeID
	nodes []overlay.NodeID
}

// questions has the nearest host of each site measure the way to that of each site that
// is farther, and to a neighbour. The hosts are in the order of their distance.
func questions(hosts []Host) (all []question) {
	neighbour := map[overlay.SiteID]overlay.NodeID{}
	for _, h := range hosts {
		if h.Jobs == 0 || h.State == stateAway || h.Fault != nil {
			continue
		}
		site := func(q question) bool { return q.asked.Site == h.Node.Site }
		switch _, found := neighbour[h.Node.Site]; {
		case !slices.ContainsFunc(all, site):
			if len(all) < maxSites {
				all = append(all, question{asked: h.Node})
			}
		case !found:
			neighbour[h.Node.Site] = h.Node
		}
	}
	for i := range all {
		for _, other := range all[i+1:] {
			all[i].nodes = append(all[i].nodes, other.asked)
		}
		if n, found := neighbour[all[i].asked.Site]; found {
			all[i].nodes = append(all[i].nodes, n)
		}
	}
	return slices.DeleteFunc(all, func(q question) bool { return len(q.nodes) == 0 })
}

// between returns what hosts of different sites measure between them. What cannot be
// measured in time is left out.
func (g *Grid) between(ctx context.Context, hosts []Host) network {
	ctx, cancel := context.WithTimeout(ctx, siteTime)
	defer cancel()
	found := network{}
	var mu sync.Mutex
	var calls sync.WaitGroup
	for _, q := range questions(hosts) {
		calls.Go(func() {
			m := &gatepb.MeasureRequest{}
			for _, n := range q.nodes {
				m.Nodes = append(m.Nodes, n.String())
			}
			r, err := g.Gate().Measure(gate.At(ctx, q.asked), m)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, d := range r.Distances {
				// What it was not asked is no answer.
				if node, err := overlay.ParseNodeID(d.Node); err == nil && d.LatencyNs > 0 && d.LatencyNs < uint64(time.Minute) && slices.Contains(q.nodes, node) {
					found[sitePair(q.asked.Site, node.Site)] = time.Duration(d.LatencyNs)
				}
			}
		})
	}
	calls.Wait()
	return found
}
