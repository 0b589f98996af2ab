package match

import (
	"fmt"
	"time"

	"github.com/isthmus-grid/isthmus/launch/profile"
	"github.com/isthmus-grid/isthmus/overlay"
)

// MaxHosts bounds the hosts of an offer.
const MaxHosts = 2048

// Host is the free capacity of a host for the job.
type Host struct {
	Node      overlay.NodeID
	Processes int               // the maximum that its owner permits
	Cores     int               // in total
	Speed     profile.Frequency // of each core; 0: unknown, which meets no limit
	Memory    profile.Bytes     // in total
}

// Link is a measurement between two hosts, or two sites. A zero field was not measured, and meets
// no limit.
type Link struct {
	RTT       time.Duration
	Bandwidth profile.Rate
}

// Offer is what the grid has: hosts, and the links between them. Make it with NewOffer; then enter
// the measurements.
type Offer struct {
	hosts    []Host
	sites    map[[2]overlay.SiteID]Link
	pairs    map[[2]overlay.NodeID]Link
	reported map[overlay.SiteID]bool // sites with a host that has an entry in pairs

	site  []int    // host: index into links; nil until surveyed
	links [][]Link // site, site
	own   []Link   // host, host; nil if pairs is empty
}

// NewOffer returns an offer of hosts with distinct names, without measurements. It retains hosts.
func NewOffer(hosts []Host) (*Offer, error) {
	if len(hosts) > MaxHosts {
		return nil, fmt.Errorf("match: an offer of %d hosts; at most %d", len(hosts), MaxHosts)
	}
	seen := make(map[overlay.NodeID]bool, len(hosts))
	for _, h := range hosts {
		if seen[h.Node] {
			return nil, fmt.Errorf("match: host %v is offered twice", h.Node)
		}
		if h.Processes < 0 || h.Cores < 0 || h.Speed < 0 || h.Memory < 0 {
			return nil, fmt.Errorf("match: host %v offers less than nothing: %+v", h.Node, h)
		}
		seen[h.Node] = true
	}
	return &Offer{
		hosts:    hosts,
		sites:    map[[2]overlay.SiteID]Link{},
		pairs:    map[[2]overlay.NodeID]Link{},
		reported: map[overlay.SiteID]bool{},
	}, nil
}

// Sites enters a measurement from hosts of one site to those of another, or among those of one
// site. Of the two directions the worse one counts.
func (o *Offer) Sites(from, to overlay.SiteID, l Link) { o.sites[[2]overlay.SiteID{from, to}] = l }

// Hosts enters a measurement from one host to another; it replaces that of their sites. Where the
// limits of a profile do not tell it apart from its neighbours, it adds no cost to the search.
func (o *Offer) Hosts(from, to overlay.NodeID, l Link) {
	o.pairs[[2]overlay.NodeID{from, to}] = l
	o.reported[from.Site], o.reported[to.Site] = true, true
}

// surveyed returns the offer with tables of all links, for many look-ups.
func (o *Offer) surveyed() *Offer {
	t := *o
	t.site = make([]int, len(o.hosts))
	var first []int // host of each site
	number := map[overlay.SiteID]int{}
	for h := range o.hosts {
		at, known := number[o.hosts[h].Node.Site]
		if !known {
			at = len(first)
			number[o.hosts[h].Node.Site] = at
			first = append(first, h)
		}
		t.site[h] = at
	}
	t.links = make([][]Link, len(first))
	for x, a := range first {
		for _, b := range first {
			t.links[x] = append(t.links[x], o.siteLink(o.hosts[a].Node.Site, o.hosts[b].Node.Site))
		}
	}
	if len(o.pairs) > 0 {
		t.own = make([]Link, len(o.hosts)*len(o.hosts))
		for i := range t.own {
			t.own[i] = o.lookUp(i/len(o.hosts), i%len(o.hosts))
		}
	}
	return &t
}

// link returns the link between two different hosts.
func (o *Offer) link(a, b int) Link {
	switch {
	case o.own != nil:
		return o.own[a*len(o.hosts)+b]
	case o.site != nil:
		return o.links[o.site[a]][o.site[b]]
	}
	return o.lookUp(a, b)
}

func (o *Offer) siteLink(a, b overlay.SiteID) Link {
	return minLink(o.sites[[2]overlay.SiteID{a, b}], o.sites[[2]overlay.SiteID{b, a}])
}

// lookUp is link without the tables.
func (o *Offer) lookUp(a, b int) Link {
	from, to := o.hosts[a].Node, o.hosts[b].Node
	l := o.siteLink(from.Site, to.Site)
	if !o.reported[from.Site] || !o.reported[to.Site] {
		return l
	}
	own := minLink(o.pairs[[2]overlay.NodeID{from, to}], o.pairs[[2]overlay.NodeID{to, from}])
	if own.RTT > 0 {
		l.RTT = own.RTT
	}
	if own.Bandwidth > 0 {
		l.Bandwidth = own.Bandwidth
	}
	return l
}

// minLink combines the links of two directions.
func minLink(a, b Link) Link {
	a.RTT = max(a.RTT, b.RTT)
	if a.Bandwidth == 0 || b.Bandwidth != 0 && b.Bandwidth < a.Bandwidth {
		a.Bandwidth = b.Bandwidth
	}
	return a
}
