package gateway

import (
	"time"

	"github.com/isthmus-grid/isthmus/internal/account"
	"github.com/isthmus-grid/isthmus/internal/account/audit"
	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/overlay"
)

// whenEnded returns what happens, in this order, when a relayed link has ended. It is logged last, so
// that a reader of the log finds it counted.
func (g *Gateway) whenEnded() account.Subscribers[*liveLink] {
	return account.Subscribers[*liveLink]{
		g.countEnded,
		func(l *liveLink, e account.LinkEnded) {
			if l.proxy != "" && e.Traffic.BToA == 0 {
				g.proxies.Forget(l.proxy) // nothing was received in the form in which it was dialled
			}
		},
		func(_ *liveLink, e account.LinkEnded) { g.Audit.Append(audit.EndOf(e)) },
		g.logEnded,
	}
}

// ended returns what is known of the link at its end: AToB is what left the site, the first of
// Nodes. The peer's is known when the connection's intro or signalling request named it. The link
// has its throttle still.
func (l *liveLink) ended(site overlay.SiteID, lasted time.Duration, err error) account.LinkEnded {
	e := account.LinkEnded{
		ID: l.id, Principal: l.principal, Job: l.job, Ranks: l.ranks, Nodes: []overlay.NodeID{{Site: site, Name: l.node}},
		Peer: l.from + " " + l.to, Traffic: l.meter.Stats(), Lasted: lasted, Err: err, Reason: l.kind + ": ended",
	}
	if peer, err := overlay.ParseNodeID(l.peer); err == nil {
		e.Nodes = append(e.Nodes, peer)
	}
	if l.technique != 0 {
		e.Technique = l.technique.String()
	}
	if err != nil {
		e.Reason = l.kind + ": " + err.Error()
	}
	if rate, key := l.throttle.Limit(); key != "" {
		e.LimitedTo, e.LimitedBy = rate.String(), key
	}
	return e
}

// countEnded moves the link from those that are carried to the counts of those that were.
func (g *Gateway) countEnded(l *liveLink, e account.LinkEnded) {
	out, back := traffic.Of(e.Traffic, l.throttle, false)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.links.places.Give(l.node, 1)
	delete(g.links.live, l)
	g.links.bytes += e.Traffic.Total()
	l.addTo(&g.links.sums, g.site, out, back)
}

func (g *Gateway) logEnded(l *liveLink, e account.LinkEnded) {
	g.logLink(l.forwardedLink, "carried", e.Err, append(e.LimitAttrs(), "bytes_out", e.Traffic.AToB, "bytes_in", e.Traffic.BToA, "duration", e.Lasted.Round(time.Millisecond).String())...)
}

// addTo adds what a link moved, for the project of the process at this site.
func (l forwardedLink) addTo(sums *traffic.Sums, site overlay.SiteID, out, back traffic.Count) {
	peer := traffic.Unknown
	if node, err := overlay.ParseNodeID(l.peer); err == nil {
		peer = node.Site
	}
	sums.Add(traffic.Pair{From: site, To: peer}, out, back)
	sums.AddProject(l.principal.Project, out.Bytes+back.Bytes)
}

// Totals counts the live links of each kind, and sums what all links moved,
// those that are over, too.
func (g *Gateway) Totals() (kinds map[string]int, by *traffic.Sums) {
	kinds = map[string]int{"carry": 0, "inbound": 0, "reversed": 0, "traversal": 0}
	g.mu.Lock()
	defer g.mu.Unlock() // a link ends under it: none is missed or counted twice
	by = g.links.sums.Clone()
	for l := range g.links.live {
		kinds[l.kind]++
		out, back := traffic.Of(l.meter.Stats(), l.throttle, true)
		l.addTo(by, g.site, out, back)
	}
	return kinds, by
}
