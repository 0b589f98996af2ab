package broker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/broker/statusmap"
	"github.com/isthmus-grid/isthmus/internal/account/traffic"
	"github.com/isthmus-grid/isthmus/launch/offer"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Bounds on the map.
const (
	maxMapSites   = 24
	maxMapPairs   = 40
	maxMapProxies = 8
	maxMapBrokers = 4
	maxHostNames  = 8 // of a site's hosts that are not up, in a table
)

// mapWidths are the widths of the drawings of one map, for telephones, tablets and desks: the style
// shows the one that needs the least scaling, so that texts are legible on each.
var mapWidths = []int{360, 620, 960}

// hostLister returns the hosts of a site, sorted.
type hostLister func(overlay.SiteID) []offer.Host

// mapView is the map: the same content drawn for each of mapWidths, and what is not drawn.
type mapView struct {
	Drawings                          []statusmap.Map
	LeftSites, LeftPairs, LeftProxies int
	LeftBrokers                       int
}

// drawMap draws the map of a status whose sites are sorted by name. Beyond maxMapSites it draws those
// with the most processes, beyond maxMapPairs those that fail, have links or cannot have any, and beyond maxMapProxies
// those with the most links.
func drawMap(s Status, pairs []pairRow, hosts hostLister) mapView {
	var m mapView
	sites := most(s.Sites, maxMapSites, &m.LeftSites,
		func(x SiteStatus) int { return x.Processes }, func(x SiteStatus) string { return string(x.Profile.Site) })
	proxies := most(s.Proxies, maxMapProxies, &m.LeftProxies,
		func(x ProxyStatus) int { return x.Live }, func(x ProxyStatus) string { return x.Name })
	others := s.otherBrokers()
	m.LeftBrokers = max(len(others)+1-maxMapBrokers, 0)
	others = others[:len(others)-m.LeftBrokers]
	g := statusmap.Grid{Brokers: brokerBoxes(s, others)}
	for _, p := range proxies {
		g.Proxies = append(g.Proxies, proxyBox(p))
	}
	drawn := map[overlay.SiteID]bool{}
	for _, site := range sites {
		drawn[site.Profile.Site] = true
		g.Sites = append(g.Sites, siteBox(site, hosts(site.Profile.Site), others))
	}
	pairs = slices.DeleteFunc(slices.Clone(pairs), func(p pairRow) bool { return !drawn[p.Asker] || !drawn[p.Target] })
	g.Pairs = pairBoxes(pairs, relayedBy(s.Traffic))
	if n := len(g.Pairs); n > maxMapPairs {
		g.Pairs = slices.DeleteFunc(g.Pairs, func(p statusmap.PairBox) bool { return p.Kind == "planned" })
		slices.SortStableFunc(g.Pairs, func(a, b statusmap.PairBox) int { return cmp.Compare(precedence[a.Kind], precedence[b.Kind]) })
		g.Pairs = g.Pairs[:min(len(g.Pairs), maxMapPairs)]
		m.LeftPairs = n - len(g.Pairs)
	}
	for _, width := range mapWidths {
		m.Drawings = append(m.Drawings, statusmap.Draw(g, width))
	}
	return m
}

// precedence orders pairs of which not all can be drawn.
var precedence = map[string]int{"failing": 0, "relay": 1, "traversal": 1, "open": 1, "none": 2}

// most returns the max elements with the greatest weight, by name, and sets left to the number of the
// others.
func most[T any](all []T, max int, left *int, weight func(T) int, name func(T) string) []T {
	if len(all) <= max {
		return all
	}
	*left = len(all) - max
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b T) int { return cmp.Compare(weight(b), weight(a)) })
	all = all[:max]
	slices.SortStableFunc(all, func(a, b T) int { return cmp.Compare(name(a), name(b)) })
	return all
}

// brokerBoxes returns this broker, and the others of which sites tell.
func brokerBoxes(s Status, others []string) []statusmap.BrokerBox {
	up := 0
	open := map[string]int{}
	for _, site := range s.Sites {
		if site.Connected {
			up++
		}
		for _, session := range site.Brokers {
			if session.Open {
				open[session.Broker]++
			}
		}
	}
	sites := plural(len(s.Sites), "site", "sites")
	boxes := []statusmap.BrokerBox{{Name: s.Broker, Note: fmt.Sprintf("%d of %s, %s", up, sites, plural(len(s.Proxies), "proxy", "proxies"))}}
	for _, name := range others {
		boxes = append(boxes, statusmap.BrokerBox{Name: name, Note: fmt.Sprintf("%d of %s", open[name], sites)})
	}
	return boxes
}

// brokersText says which other brokers a site has sessions with; "" if it reports none.
func brokersText(s SiteStatus, own string) string {
	var all []string
	for _, session := range s.Brokers {
		switch {
		case session.Broker == own:
		case session.Open:
			all = append(all, "connected to "+session.Broker)
		default:
			all = append(all, "not connected to "+session.Broker)
		}
	}
	return strings.Join(all, ", ")
}

func proxyBox(p ProxyStatus) statusmap.ProxyBox {
	box := statusmap.ProxyBox{Name: p.Name, Load: float64(p.Live) / float64(max(p.Capacity, 1))}
	switch {
	case p.Draining:
		box.Note = "drains: " + plural(p.Live, "link", "links")
	case p.Live >= p.Capacity:
		box.Note = "full: " + plural(p.Live, "link", "links")
	default:
		box.Note = fmt.Sprintf("%d of %d links", p.Live, p.Capacity)
	}
	return box
}

// siteBox returns a site, whose sessions are with this broker and the others named.
func siteBox(s SiteStatus, hosts []offer.Host, others []string) statusmap.SiteBox {
	box := statusmap.SiteBox{ID: s.Profile.Site, Up: s.Connected, Hosts: hosts, Note: plural(s.Processes, "process", "processes"), Sessions: []statusmap.Session{statusmap.Open}}
	state := "connected"
	if !s.Connected {
		state, box.Note, box.Sessions[0] = "away", "away", statusmap.Closed
	}
	for _, name := range others {
		session := statusmap.Unknown
		for _, reported := range s.Brokers {
			switch {
			case reported.Broker != name:
			case reported.Open:
				session = statusmap.Open
			default:
				session = statusmap.Closed
			}
		}
		box.Sessions = append(box.Sessions, session)
	}
	box.Title = fmt.Sprintf("%s: %s; %s; hosts: %s", s.Profile.Site, state, plural(s.Processes, "process", "processes"), hostsText(s.Hosts, hosts))
	return box
}

// hostsText counts hosts by state, and names those that are not up.
func hostsText(c offer.Counts, hosts []offer.Host) string {
	text := fmt.Sprintf("%d up", c.Up)
	for _, state := range []struct {
		state offer.State
		count int
	}{{offer.Away, c.Away}, {offer.Unknown, c.Unknown}} {
		if state.count == 0 {
			continue
		}
		text += fmt.Sprintf("; %d %v", state.count, state.state)
		var names []string
		for _, h := range hosts {
			if h.State == state.state && len(names) < maxHostNames {
				names = append(names, h.Node.Name)
			}
		}
		if len(names) > 0 && len(names) < state.count {
			names = append(names, "...")
		}
		if len(names) > 0 {
			text += ": " + strings.Join(names, ", ")
		}
	}
	return text
}

// severity orders the states of a pair's two directions: the map shows the worse.
var severity = map[string]int{"planned": 0, "open": 1, "traversal": 2, "relay": 3, "none": 4, "failing": 5}

// pairBoxes returns the rows of the map: one for both directions of a pair, with the state of the
// worse and the traffic of both.
func pairBoxes(pairs []pairRow, relayed map[direction]string) []statusmap.PairBox {
	both := map[direction]trafficView{}
	worse := map[direction]pairRow{}
	var order []direction
	for _, p := range pairs {
		key := unordered(p.Asker, p.Target)
		both[key] = both[key].add(p.Traffic)
		old, seen := worse[key]
		if !seen {
			order = append(order, key)
		}
		if !seen || severity[p.Kind] > severity[old.Kind] {
			worse[key] = p
		}
	}
	var boxes []statusmap.PairBox
	for _, key := range order {
		p := worse[key]
		box := statusmap.PairBox{
			A: key.asker, B: key.target, Asker: p.Asker, Target: p.Target,
			Kind: p.Kind, Label: cmp.Or(p.Now, p.Plan), Title: p.summary(), Details: both[key].short(),
		}
		switch p.Kind {
		case "failing":
			box.Details = append([]string{"fails"}, box.Details...)
		case "none":
			box.Label = "no path"
		case "planned":
			box.Label = "no link yet"
		}
		if p.Kind == "relay" || p.Kind == "failing" {
			box.Proxy = relayed[key]
		}
		boxes = append(boxes, box)
	}
	return boxes
}

// unordered returns the pair with the lesser name first.
func unordered(a, b overlay.SiteID) direction { return direction{min(a, b), max(a, b)} }

// relayedBy returns the proxy of each pair of sites: the one that has the most links between them
// now, or had.
func relayedBy(flows []traffic.Flow) map[direction]string {
	best := map[direction]traffic.Flow{}
	for _, f := range flows {
		if !strings.HasPrefix(f.By, proxyPrefix) {
			continue
		}
		key := unordered(f.From, f.To)
		if old, ok := best[key]; !ok || cmp.Or(cmp.Compare(f.Links, old.Links), cmp.Compare(f.Bytes, old.Bytes), cmp.Compare(old.By, f.By)) > 0 {
			best[key] = f
		}
	}
	names := map[direction]string{}
	for key, f := range best {
		names[key] = strings.TrimPrefix(f.By, proxyPrefix)
	}
	return names
}

// summary describes the row in words, for readers who cannot see the line.
func (p pairRow) summary() string {
	switch {
	case p.Kind == "none":
		return fmt.Sprintf("%s cannot reach %s", p.Asker, p.Target)
	case p.Kind == "failing":
		return fmt.Sprintf("%s to %s fails: %s", p.Asker, p.Target, clip(p.Trouble, 200))
	case p.Now == "":
		return fmt.Sprintf("%s to %s: no link yet; %s is tried first", p.Asker, p.Target, p.Plan)
	}
	text := fmt.Sprintf("%s to %s: %s, set up in %s", p.Asker, p.Target, p.Now, milliseconds(p.SetupMS))
	if p.Traffic.Reported {
		text += "; carried: " + p.Traffic.Text()
	}
	return text
}
