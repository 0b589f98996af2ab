package submit

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/match"
	"github.com/isthmus-grid/isthmus/launch/nodeservice"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/profile"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Bounds on the measurements between sites before a submission.
const (
	maxSites   = 32               // compared, the nearest
	siteTime   = 10 * time.Second // for a site to measure the latencies to the others
	carrySites = 16               // between which bandwidth is measured, the nearest
	carryTime  = 20 * time.Second // for all of that; nodes cache the results, so that another submission continues with the rest
)

// network holds the paths between sites, and within them, as measured by one host of each. The key
// has the sites in the order of their names.
type network map[[2]overlay.SiteID]allocate.Path

func sitePair(a, b overlay.SiteID) [2]overlay.SiteID {
	if b < a {
		a, b = b, a
	}
	return [2]overlay.SiteID{a, b}
}

// Path implements allocate.Network.
func (n network) Path(a, b overlay.NodeID) (allocate.Path, bool) {
	path := n[sitePair(a.Site, b.Site)]
	return path, path.RTT > 0 && a != b
}

// fillOffer enters the measurements into an offer.
func (n network) fillOffer(offer *match.Offer) {
	for pair, path := range n {
		offer.Sites(pair[0], pair[1], match.Link{RTT: path.RTT, Bandwidth: rateOf(path.Bandwidth)})
	}
}

// rateOf returns a bandwidth in bytes a second as a rate, rounded down to two digits, the precision
// of a measurement of some tenths of a second: the rate will be used as a limit.
func rateOf(bandwidth float64) profile.Rate {
	bits := profile.Rate(min(bandwidth*8, 1<<60))
	digit := profile.Rate(1)
	for bits/digit >= 100 {
		digit *= 10
	}
	return bits / digit * digit
}

// paths lists the known paths between sites, in the order of their names.
func (n network) paths(sites []overlay.SiteID) (all []allocate.SitePath) {
	sites = slices.Compact(slices.Sorted(slices.Values(sites)))
	for i, a := range sites {
		for _, b := range sites[i+1:] {
			all = append(all, allocate.SitePath{Sites: [2]overlay.SiteID{a, b}, Path: n[sitePair(a, b)]})
		}
	}
	return all
}

// neededMeasurements reports which measurements between hosts affect the placement of a job.
func neededMeasurements(j *Job) (latency, bandwidth bool) {
	if j.Profile == nil {
		auto := len(j.Hosts) == 0 && (j.strategy() == allocate.Auto{}.Name() || j.Place.Graph != nil)
		return auto, auto && j.Place.Message > 0
	}
	note := func(n profile.Network) {
		latency, bandwidth = latency || n.Latency > 0, bandwidth || n.Bandwidth > 0
	}
	for _, g := range j.Profile.Groups {
		note(g.Inside)
	}
	for _, b := range j.Profile.Between {
		note(b.Network)
	}
	return latency, bandwidth
}

// question is the list of nodes that one host must measure.
type question struct {
	asked overlay.NodeID
	nodes []overlay.NodeID
}

// questions makes the nearest host of each site measure the path to that of each farther site, and
// to a neighbour. hosts is sorted by distance.
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

// measureLinks returns what hosts of different sites measure between them. It leaves out what
// cannot be measured in time. It calls tell with the number of bandwidths measured and needed.
func (g *Grid) measureLinks(ctx context.Context, hosts []Host, bandwidth bool, tell func(have, need int)) network {
	asked := questions(hosts)
	found := g.latencies(ctx, asked)
	if !bandwidth {
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, carryTime)
	defer cancel()
	left := ways(asked, found)
	type answer struct {
		way
		bandwidth float64
	}
	answers, busy, under := make(chan answer), map[overlay.SiteID]bool{}, 0
	for need := len(left); ; {
		if tell != nil {
			tell(need-len(left)-under, need)
		}
		for i := free(left, busy); i >= 0 && ctx.Err() == nil; i = free(left, busy) {
			w := left[i]
			left = slices.Delete(left, i, i+1)
			busy[w.from.Site], busy[w.to.Site] = true, true
			under++
			go func() { answers <- answer{w, g.carries(ctx, w)} }() // the loop below receives the answer
		}
		if under == 0 {
			return found
		}
		a := <-answers
		under--
		busy[a.from.Site], busy[a.to.Site] = false, false
		pair := sitePair(a.from.Site, a.to.Site)
		found[pair] = allocate.Path{RTT: found[pair].RTT, Bandwidth: a.bandwidth}
	}
}

// latencies makes the hosts measure the latencies to the others.
func (g *Grid) latencies(ctx context.Context, asked []question) network {
	ctx, cancel := context.WithTimeout(ctx, siteTime)
	defer cancel()
	found := network{}
	var mu sync.Mutex
	var calls sync.WaitGroup
	for _, q := range asked {
		calls.Go(func() {
			distances := g.distances(ctx, q, false)
			mu.Lock()
			defer mu.Unlock()
			for node, d := range distances {
				found[sitePair(q.asked.Site, node.Site)] = allocate.Path{RTT: time.Duration(d.LatencyNs)}
			}
		})
	}
	calls.Wait()
	return found
}

// way is a path between two hosts.
type way struct{ from, to overlay.NodeID }

// ways returns the paths whose bandwidth must be measured, because a latency was found: those
// between the nearest sites first.
func ways(asked []question, found network) (all []way) {
	index := map[overlay.SiteID]int{}
	for i, q := range asked {
		index[q.asked.Site] = i
		for _, node := range q.nodes {
			if i < carrySites && found[sitePair(q.asked.Site, node.Site)].RTT > 0 {
				all = append(all, way{q.asked, node})
			}
		}
	}
	for _, q := range asked { // the last site has only its neighbour to measure
		for _, node := range q.nodes {
			if _, known := index[node.Site]; !known {
				index[node.Site] = len(index)
			}
		}
	}
	far := func(w way) int { return index[w.from.Site] + index[w.to.Site] }
	slices.SortStableFunc(all, func(a, b way) int { return cmp.Compare(far(a), far(b)) })
	return slices.DeleteFunc(all, func(w way) bool { return index[w.to.Site] >= carrySites })
}

// free returns the index of the first way whose sites are not busy with another measurement,
// because concurrent measurements would disturb each other; -1: there is none.
func free(left []way, busy map[overlay.SiteID]bool) int {
	return slices.IndexFunc(left, func(w way) bool { return !busy[w.from.Site] && !busy[w.to.Site] })
}

// carries makes a host measure how many bytes a second the path to another carries; 0: unknown.
func (g *Grid) carries(ctx context.Context, w way) float64 {
	d := g.distances(ctx, question{w.from, []overlay.NodeID{w.to}}, true)[w.to]
	return float64(d.GetBandwidth())
}

// distances makes a host measure, and returns its results.
func (g *Grid) distances(ctx context.Context, q question, bandwidth bool) map[overlay.NodeID]*nodepb.Distance {
	m := &nodepb.MeasureRequest{Bandwidth: bandwidth}
	for _, n := range q.nodes {
		m.Nodes = append(m.Nodes, n.Key())
	}
	r, err := g.Client().Measure(nodeservice.At(ctx, q.asked), m)
	if err != nil {
		return nil
	}
	known := map[overlay.NodeID]*nodepb.Distance{}
	for _, d := range r.Distances {
		// Ignores results that were not requested.
		if node, err := overlay.ParseNodeID(d.Node); err == nil && d.LatencyNs > 0 && d.LatencyNs < uint64(time.Minute) && slices.Contains(q.nodes, node) {
			known[node] = d
		}
	}
	return known
}
