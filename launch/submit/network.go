package submit

import (
	"cmp"
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
	maxSites   = 32               // that are compared, the nearest
	siteTime   = 10 * time.Second // for a site to measure how far the others are
	carrySites = 16               // between which bandwidth is measured, the nearest
	carryTime  = 20 * time.Second // for all of that; nodes keep what was found, so that another time goes on with the rest
)

// network is what lies between sites, and within them, as one host of each has measured
// it. The key has the sites in the order of their names.
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

// fillOffer tells an offer what was measured.
func (n network) fillOffer(offer *match.Offer) {
	for pair, path := range n {
		offer.Sites(pair[0], pair[1], match.Link{RTT: path.RTT, Bandwidth: rateOf(path.Bandwidth)})
	}
}

// rateOf is bytes a second with the two digits that a measurement of some tenths of a
// second is good for, rounded down: a limit is to hold.
func rateOf(bandwidth float64) profile.Rate {
	bits := profile.Rate(min(bandwidth*8, 1<<60))
	digit := profile.Rate(1)
	for bits/digit >= 100 {
		digit *= 10
	}
	return bits / digit * digit
}

// paths lists what is known of the ways between sites, in the order of their names.
func (n network) paths(sites []overlay.SiteID) (all []allocate.SitePath) {
	sites = slices.Compact(slices.Sorted(slices.Values(sites)))
	for i, a := range sites {
		for _, b := range sites[i+1:] {
			all = append(all, allocate.SitePath{Sites: [2]overlay.SiteID{a, b}, Path: n[sitePair(a, b)]})
		}
	}
	return all
}

// neededMeasurements reports what of the ways between hosts decides where a job is placed.
func neededMeasurements(j *Job) (latency, bandwidth bool) {
	if j.Profile == nil {
		auto := len(j.Hosts) == 0 && j.Strategy == allocate.Auto{}.Name()
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

// measureLinks returns what hosts of different sites measure between them. What cannot be
// measured in time is left out. tell hears how many bandwidths are known of how many.
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
			go func() { answers <- answer{w, g.carries(ctx, w)} }() // which is waited for below
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

// latencies has the hosts asked measure how far the others are.
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

// way is between two hosts.
type way struct{ from, to overlay.NodeID }

// ways are those of which the bandwidth is to be measured, because they exist: between
// the nearest sites first.
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
	for _, q := range asked { // the last site has nobody to ask but its neighbour
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

// free returns the first way of which both sites have nothing else to measure, lest they
// measure each other; -1: there is none.
func free(left []way, busy map[overlay.SiteID]bool) int {
	return slices.IndexFunc(left, func(w way) bool { return !busy[w.from.Site] && !busy[w.to.Site] })
}

// carries has a host measure how many bytes a second the way to another carries; 0: it is
// not known.
func (g *Grid) carries(ctx context.Context, w way) float64 {
	d := g.distances(ctx, question{w.from, []overlay.NodeID{w.to}}, true)[w.to]
	return float64(d.GetBandwidth())
}

// distances has a host measure, and returns what it knows.
func (g *Grid) distances(ctx context.Context, q question, bandwidth bool) map[overlay.NodeID]*gatepb.Distance {
	m := &gatepb.MeasureRequest{Bandwidth: bandwidth}
	for _, n := range q.nodes {
		m.Nodes = append(m.Nodes, n.String())
	}
	r, err := g.Gate().Measure(gate.At(ctx, q.asked), m)
	if err != nil {
		return nil
	}
	known := map[overlay.NodeID]*gatepb.Distance{}
	for _, d := range r.Distances {
		// What it was not asked is no answer.
		if node, err := overlay.ParseNodeID(d.Node); err == nil && d.LatencyNs > 0 && d.LatencyNs < uint64(time.Minute) && slices.Contains(q.nodes, node) {
			known[node] = d
		}
	}
	return known
}
