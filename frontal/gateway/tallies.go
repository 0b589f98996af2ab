package gateway

import (
	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/overlay"
)

// addTo adds what a link moved, for the project of the process at this site.
func (l link) addTo(sums *traffic.Sums, site overlay.SiteID, out, back traffic.Count) {
	peer := traffic.Unknown
	if node, err := overlay.ParseNodeID(l.peer); err == nil {
		peer = node.Site
	}
	sums.Add(traffic.Pair{From: site, To: peer}, out, back)
	sums.AddProject(l.principal.Project, out.Bytes+back.Bytes)
}

// Moved counts the live links of each kind, and sums what all links moved,
// those that are over, too.
func (g *Gateway) Moved() (kinds map[string]int, by *traffic.Sums) {
	kinds = map[string]int{"carry": 0, "inbound": 0, "reversed": 0, "meeting": 0}
	g.mu.Lock()
	defer g.mu.Unlock() // a link ends under it: none is missed or counted twice
	by = g.links.sums.Clone()
	for m, l := range g.links.live {
		kinds[l.kind]++
		out, back := traffic.Of(m.Stats(), l.pace, true)
		l.addTo(by, g.site, out, back)
	}
	return kinds, by
}
