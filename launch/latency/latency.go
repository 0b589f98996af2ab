// Package latency keeps the distances to other nodes, and a stable order of them: what P2P-MPI's
// daemons hold beside their list of hosts.
//
// It sends nothing and reads no clock. Its user takes from Due the nodes to probe, sends each one
// small message and waits for the answer, over a connection that is open already, and calls Probe
// with the round trip, or Failed. All state is in the Table and belongs to its caller: a Table is
// not safe for concurrent use.
//
// A round of probes counts as its shortest probe, because every disturbance makes a probe longer.
// For the same reason a round below the estimate is adopted at once, and only the second
// consecutive round above it moves it, by a part of the difference.
//
// The order is one of sites. The hosts of a site share the path to it, and a LAN adds little to
// that; but the probes of hundreds of hosts differ by milliseconds when those hosts, or this one,
// are busy, which is more than the difference between neighbouring sites. So the distance of a site
// is that of the nearest of its hosts, for which the noise is least because it is the minimum of
// many probes, and its hosts are grouped together in the order of their names. A host more than
// twice as far as its site, by more than the noise, is listed separately, and so is the node that
// the table belongs to, which is nearer than any network allows.
//
// A site passes another only when it is nearer by more than a margin, so that two equally distant
// sites keep their places whatever the noise, and a job that is started twice runs on the same
// hosts.
package latency

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

// Config sets how to probe and how to evaluate. A zero field has its default.
type Config struct {
	Probes int           // probes of a round; 5
	Period time.Duration // between two rounds for the same node, a quarter more or less, the first ones sooner; 300 s
	Rise   float64       // part of the difference by which the estimate follows two higher rounds, in (0, 1]; 0.25
	Margin float64       // part of the farther node's latency by which the other must be nearer to pass; 1/32
	Floor  time.Duration // the minimum margin; 20 us
	Apart  time.Duration // minimum distance from its site at which a host is listed separately; 5 ms
	Lost   int           // consecutive failures after which the estimate is dropped; 3
	Site   int           // nodes of one site that may be probed at a time, so that those of others are; 4
}

func (c Config) withDefaults() Config {
	c.Probes = cmp.Or(c.Probes, 5)
	c.Period = cmp.Or(c.Period, 300*time.Second)
	c.Rise = cmp.Or(c.Rise, 0.25)
	c.Margin = cmp.Or(c.Margin, 1.0/32)
	c.Floor = cmp.Or(c.Floor, 20*time.Microsecond)
	c.Apart = cmp.Or(c.Apart, 5*time.Millisecond)
	c.Lost = cmp.Or(c.Lost, 3)
	c.Site = cmp.Or(c.Site, 4)
	return c
}

// The first rounds of a node follow each other sooner, by a part of the period: the very first
// takes place while the path is being set up, along with those to others.
const (
	earlyRounds = 3
	earlyPart   = 60
)

// retry is how long a node is left alone after one failure; it doubles with every further failure,
// up to the period.
const retry = time.Second

// here is a round trip below that of any network: that of the table's own node.
const here = 2 * time.Microsecond

// Table holds the latencies from one node to others.
type Table struct {
	cfg   Config
	nodes map[overlay.NodeID]*estimate
	order []place // the last result of Order; new places are not in it yet
}

// place is an element of the order: a site, if the name is empty, or a host listed separately.
type place overlay.NodeID

// estimate is the state of one node.
type estimate struct {
	rtt    time.Duration // 0: unknown
	round  time.Duration // shortest probe of the round in progress; 0: none yet
	probes int           // of the round in progress
	before time.Duration // shortest probe of the round before; 0: there was none
	rounds int           // complete ones
	fails  int           // consecutive
	apart  bool          // it is listed separately, not with its site
	out    bool          // Due returned it, and neither Probe nor Failed was called since
	due    time.Time     // when to probe next; zero: at once
	last   time.Time     // of the last answered probe
}

// Entry is a node and its distance.
type Entry struct {
	Node   overlay.NodeID
	RTT    time.Duration // 0: unknown
	Heard  time.Time     // time of the last answer; zero: never
	Silent bool          // it was probed and has not answered; RTT is 0
}

// NewTable returns a Table without nodes.
func NewTable(cfg Config) *Table {
	return &Table{cfg: cfg.withDefaults(), nodes: map[overlay.NodeID]*estimate{}}
}

// Keep sets the nodes of the table: it adds new ones as unknown, and drops others.
func (t *Table) Keep(nodes []overlay.NodeID) {
	wanted := make(map[overlay.NodeID]bool, len(nodes))
	for _, n := range nodes {
		wanted[n] = true
		if t.nodes[n] == nil {
			t.nodes[n] = &estimate{}
		}
	}
	for n := range t.nodes {
		if !wanted[n] {
			delete(t.nodes, n)
		}
	}
}

// Adopt is Keep, and takes the order of nodes as the previous order: so a table continues the order
// of another one, as far as the latencies still allow.
func (t *Table) Adopt(nodes []overlay.NodeID) {
	t.Keep(nodes)
	t.order = nil
	sites := map[overlay.SiteID]bool{}
	for _, n := range nodes {
		t.order = append(t.order, place(n)) // Order drops those that are with their sites
		if !sites[n.Site] {
			sites[n.Site] = true
			t.order = append(t.order, place{Site: n.Site})
		}
	}
}

// Due returns up to limit nodes to probe now: those never probed first, then those overdue longest. Sites
// take turns, and each has a bounded number of nodes that are being probed, so that the silent nodes of
// one do not keep others waiting. The caller must call Probe or Failed for each, after a timeout of its own at the latest.
func (t *Table) Due(now time.Time, limit int) []overlay.NodeID {
	var due []overlay.NodeID
	slots := map[overlay.SiteID]int{} // of a site: those taken
	for n, e := range t.nodes {
		if e.out {
			slots[n.Site]++
		} else if !now.Before(e.due) {
			due = append(due, n)
		}
	}
	slices.SortFunc(due, func(a, b overlay.NodeID) int {
		return cmp.Or(t.nodes[a].due.Compare(t.nodes[b].due), compareNodes(a, b))
	})
	slot := make(map[overlay.NodeID]int, len(due)) // a site's first node is probed before the second one of any
	for _, n := range due {
		slot[n] = slots[n.Site]
		slots[n.Site]++
	}
	due = slices.DeleteFunc(due, func(n overlay.NodeID) bool { return slot[n] >= t.cfg.Site })
	slices.SortStableFunc(due, func(a, b overlay.NodeID) int { return cmp.Compare(slot[a], slot[b]) })
	due = due[:min(max(limit, 0), len(due))]
	for _, n := range due {
		t.nodes[n].out = true
	}
	return due
}

// Probe records the round trip of one probe of node at the time now. A round trip that is not
// positive counts as no answer; a node that is not in the table is ignored.
func (t *Table) Probe(node overlay.NodeID, rtt time.Duration, now time.Time) {
	e := t.nodes[node]
	switch {
	case e == nil:
		return
	case rtt <= 0:
		t.Failed(node, now)
		return
	}
	e.out, e.fails, e.last = false, 0, now
	if e.probes == 0 || rtt < e.round {
		e.round = rtt
	}
	e.probes++
	if e.rtt == 0 || e.round < e.rtt {
		e.rtt = e.round // no disturbance makes a probe shorter
	}
	if e.probes < t.cfg.Probes {
		e.due = now
		return
	}
	if lower := min(e.round, e.before); lower > e.rtt {
		e.rtt += time.Duration(t.cfg.Rise * float64(lower-e.rtt))
	}
	e.before = e.round
	e.probes = 0
	e.rounds++
	period := t.cfg.Period
	if e.rounds <= earlyRounds {
		period /= earlyPart
	}
	e.due = now.Add(jitter(period, node, e.rounds))
}

// Failed records that a probe of node had no answer.
func (t *Table) Failed(node overlay.NodeID, now time.Time) {
	e := t.nodes[node]
	if e == nil {
		return
	}
	e.out, e.probes = false, 0
	wait := t.cfg.Period
	if e.fails < 20 {
		wait = min(wait, retry<<e.fails)
	}
	e.fails++
	if e.fails >= t.cfg.Lost {
		e.rtt = 0
	}
	e.due = now.Add(wait)
}

// jitter returns the period, a quarter more or less, so that the nodes of a grid that started
// together do not probe together. It derives from the name, so it needs no randomness.
func jitter(period time.Duration, node overlay.NodeID, round int) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(node.Key()))
	h.Write([]byte(strconv.Itoa(round)))
	part := float64(h.Sum32())/(1<<32)/2 + 0.75
	return time.Duration(part * float64(period))
}

// Order returns all nodes, nearest first, those of unknown latency last. No site precedes one that
// is nearer by more than the margin; apart from that sites keep their places. The hosts of a site
// are in the order of their names.
func (t *Table) Order() []Entry {
	at := t.places()
	settled, old := make([]place, 0, len(at)), make(map[place]bool, len(at))
	for _, p := range t.order {
		if at[p] != nil {
			settled, old[p] = insert(settled, p, at, t.cfg), true
		}
	}
	var fresh []place
	for p := range at {
		if !old[p] {
			fresh = append(fresh, p)
		}
	}
	slices.SortFunc(fresh, func(a, b place) int { return comparePlaces(a, b, at) })
	t.order = merge(settled, fresh, at, t.cfg)
	all := make([]Entry, 0, len(t.nodes))
	add := func(nodes []overlay.NodeID) {
		slices.SortFunc(nodes, compareNodes)
		for _, n := range nodes {
			e := t.nodes[n]
			all = append(all, Entry{n, e.rtt, e.last, e.rtt == 0 && e.fails > 0})
		}
	}
	for _, p := range t.order {
		add(at[p].nodes)
	}
	var unknown []overlay.NodeID
	for n, e := range t.nodes {
		if e.rtt == 0 {
			unknown = append(unknown, n)
		}
	}
	add(unknown)
	return all
}

// group is the nodes at a place.
type group struct {
	rtt   time.Duration // of the nearest
	nodes []overlay.NodeID
}

// places returns the places, with the nodes of known latency.
func (t *Table) places() map[place]*group {
	sites := map[overlay.SiteID][]time.Duration{}
	for n, e := range t.nodes {
		if e.rtt > here { // the own node does not indicate the distance of its site
			sites[n.Site] = append(sites[n.Site], e.rtt)
		}
	}
	for _, rtts := range sites {
		slices.Sort(rtts)
	}
	at := map[place]*group{}
	for n, e := range t.nodes {
		if e.rtt == 0 {
			continue
		}
		p := place{Site: n.Site}
		if e.apart = t.separated(e, sites[n.Site]); e.apart {
			p = place(n)
		}
		if at[p] == nil {
			at[p] = &group{rtt: e.rtt}
		}
		at[p].rtt = min(at[p].rtt, e.rtt)
		at[p].nodes = append(at[p].nodes, n)
	}
	return at
}

// noisy is the number of times the median host's noise that one may have: if noise falls off
// exponentially, one host of 256 has more.
const noisy = 8

// separated reports whether a host is listed separately, given all latencies of its site in
// ascending order. A separate host rejoins its site only when it is clearly within the site's
// range, so that it does not flap.
func (t *Table) separated(e *estimate, site []time.Duration) bool {
	if e.rtt <= here {
		return true
	}
	near := site[0]
	noise := site[(len(site)-1)/2] - near
	span := max(t.cfg.Apart, near, noisy*noise)
	if e.apart {
		span -= span / 4
	}
	return e.rtt > near+span
}

// insert puts p before the first place that it may pass, or last. If no two of settled are in the
// wrong order by more than the margin, none are afterwards: those after the first that p passes are
// at most slightly nearer than that one, so not nearer than p.
func insert(settled []place, p place, at map[place]*group, cfg Config) []place {
	for i, other := range settled {
		if cfg.isNearer(at[p].rtt, at[other].rtt) {
			return slices.Insert(settled, i, p)
		}
	}
	return append(settled, p)
}

// merge puts the new, sorted places between the others by their latency, and then settles the order
// once more.
func merge(settled, fresh []place, at map[place]*group, cfg Config) []place {
	if len(fresh) == 0 {
		return settled
	}
	all := make([]place, 0, len(settled)+len(fresh))
	for _, p := range settled {
		for len(fresh) > 0 && comparePlaces(fresh[0], p, at) < 0 {
			all, fresh = append(all, fresh[0]), fresh[1:]
		}
		all = append(all, p)
	}
	settled = nil
	for _, p := range append(all, fresh...) {
		settled = insert(settled, p, at, cfg)
	}
	return settled
}

// isNearer reports whether rtt is nearer than other by more than the margin.
func (c Config) isNearer(rtt, other time.Duration) bool {
	margin := max(c.Floor, time.Duration(c.Margin*float64(other)))
	return rtt < other-margin
}

func comparePlaces(a, b place, at map[place]*group) int {
	return cmp.Or(cmp.Compare(at[a].rtt, at[b].rtt), compareNodes(overlay.NodeID(a), overlay.NodeID(b)))
}

func compareNodes(a, b overlay.NodeID) int {
	return cmp.Or(cmp.Compare(a.Site, b.Site), cmp.Compare(a.Name, b.Name))
}
