package gateway

import (
	"github.com/isthmus-grid/isthmus/internal/account/metrics"
	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Tallies sum what was carried by whom it was for.
type Tallies struct {
	ByPair    traffic.Sums  // of sites
	ByProject metrics.Tally // of the process at this site
}

// note adds what a link moved.
func (t *Tallies) note(site overlay.SiteID, l link, out, back traffic.Count) {
	peer := traffic.Unknown
	if node, err := overlay.ParseNodeID(l.peer); err == nil {
		peer = node.Site
	}
	t.ByPair.Add(traffic.Pair{From: site, To: peer}, out, back)
	t.ByProject.Add(out.Bytes+back.Bytes, metrics.Project(l.principal.Project))
}

// Pairs are the bytes by this site, the other, and the direction.
func (t *Tallies) Pairs(site overlay.SiteID) (all []metrics.Sample) {
	for p, c := range t.ByPair.Counts() {
		labels := []string{string(site), string(p.To), "out"}
		switch site {
		case p.From:
		case p.To:
			labels[1], labels[2] = string(p.From), "in"
		default: // more sites than are kept apart
			labels = []string{metrics.Other, metrics.Other, metrics.Other}
		}
		all = append(all, metrics.Sample{Labels: labels, Value: float64(c.Bytes)})
	}
	return all
}

// Moved counts the live links of each kind, and sums what all links moved,
// those that are over, too.
func (g *Gateway) Moved() (kinds map[string]int, by *Tallies) {
	kinds, by = map[string]int{"carry": 0, "inbound": 0, "reversed": 0, "meeting": 0}, &Tallies{}
	g.mu.Lock()
	defer g.mu.Unlock() // a link ends under it: none is missed or counted twice
	by.ByPair = *g.links.ByPair.Clone()
	by.ByProject.Merge(&g.links.ByProject)
	for m, l := range g.links.live {
		kinds[l.kind]++
		out, back := traffic.Of(m.Stats(), l.pace, true)
		by.note(g.site, l.link, out, back)
	}
	return kinds, by
}
