// Package latency keeps how far other nodes are, and an order of them that does not
// flap: what P2P-MPI's daemons hold beside their list of hosts.
//
// It sends nothing and reads no clock. Its user takes from Due the nodes to probe, sends
// each one small message and its answer over a connection that is open already, and
// tells Probe how many nanoseconds that took, or Failed. All state is in the Table and
// belongs to whoever calls it: a Table is not safe for concurrent use.
//
// A round of probes counts for its shortest one, because whatever disturbs a probe makes
// it longer. For the same reason a round below the estimate is believed at once, and only
// the second in a row above it moves it, a part of the way. In the order, a node passes another
// only when it is nearer by more than a margin, so that two nodes as far as each other
// keep their places whatever the noise, and a job that is started twice runs on the same
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

// Config says how to probe and how to judge. A zero field stands for its default.
type Config struct {
	Probes int           // probes of a round; 5
	Period time.Duration // from a round to the next of the same node, a quarter more or less, the first ones sooner; 300 s
	Rise   float64       // part of the way that the estimate rises to two higher rounds, in (0, 1]; 0.25
	Margin float64       // part of the farther node's latency by which the other must be nearer to pass; 1/32
	Floor  time.Duration // the least margin; 20 us
	Lost   int           // failures in a row after which the estimate is given up; 3
}

func (c Config) withDefaults() Config {
	c.Probes = cmp.Or(c.Probes, 5)
	c.Period = cmp.Or(c.Period, 300*time.Second)
	c.Rise = cmp.Or(c.Rise, 0.25)
	c.Margin = cmp.Or(c.Margin, 1.0/32)
	c.Floor = cmp.Or(c.Floor, 20*time.Microsecond)
	c.Lost = cmp.Or(c.Lost, 3)
	return c
}

// The first rounds of a node follow each other sooner, by a part of the period: the
// first of all is made while the way there is opened, along with those to others.
const (
	earlyRounds = 3
	earlyPart   = 60
)

// retry is how long a node that failed once is left alone; it doubles with every
// further failure, up to the period.
const retry = time.Second

// Table holds the latencies from one node to others.
type Table struct {
	cfg   Config
	nodes map[overlay.NodeID]*estimate
	order []overlay.NodeID // as Order returned it last; new nodes are not in it yet
	fresh []overlay.NodeID // those, in the order in which they were named
}

// estimate is what is known of one node.
type estimate struct {
	rtt    time.Duration // 0: unknown
	round  time.Duration // shortest probe of the round in progress; 0: none yet
	probes int           // of the round in progress
	before time.Duration // shortest probe of the round before; 0: there was none
	rounds int           // complete ones
	fails  int           // in a row
	out    bool          // Due named it, and neither Probe nor Failed did since
	due    time.Time     // when to probe next; zero: at once
	last   time.Time     // of the last probe that was answered
}

// Entry is a node and how far it is.
type Entry struct {
	Node  overlay.NodeID
	RTT   time.Duration // 0: unknown
	Heard time.Time     // when it answered last; zero: never
}

// NewTable returns a Table without nodes.
func NewTable(cfg Config) *Table {
	return &Table{cfg: cfg.withDefaults(), nodes: map[overlay.NodeID]*estimate{}}
}

// Keep makes nodes the nodes of the table: new ones are added as unknown, others are
// forgotten.
func (t *Table) Keep(nodes []overlay.NodeID) {
	wanted := make(map[overlay.NodeID]bool, len(nodes))
	for _, n := range nodes {
		wanted[n] = true
		if t.nodes[n] == nil {
			t.nodes[n] = &estimate{}
			t.fresh = append(t.fresh, n)
		}
	}
	for n := range t.nodes {
		if !wanted[n] {
			delete(t.nodes, n)
		}
	}
	gone := func(n overlay.NodeID) bool { return !wanted[n] }
	t.order = slices.DeleteFunc(t.order, gone)
	t.fresh = slices.DeleteFunc(t.fresh, gone)
}

// Due returns up to limit nodes to probe now: those never probed first, then those that
// wait longest. Each is the caller's until it calls Probe or Failed for it, which it
// must within a time of its own.
func (t *Table) Due(now time.Time, limit int) []overlay.NodeID {
	var due []overlay.NodeID
	for n, e := range t.nodes {
		if !e.out && !now.Before(e.due) {
			due = append(due, n)
		}
	}
	slices.SortFunc(due, func(a, b overlay.NodeID) int {
		return cmp.Or(t.nodes[a].due.Compare(t.nodes[b].due), compareNodes(a, b))
	})
	due = due[:min(max(limit, 0), len(due))]
	for _, n := range due {
		t.nodes[n].out = true
	}
	return due
}

// Probe takes the round trip of one probe of node at the time now. A time that is not
// positive says nothing of the path and counts as no answer; a node that is not in the
// table is left out of it.
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
		e.rtt = e.round // nothing makes a probe too short
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

// Failed says that a probe of node had no answer.
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

// jitter is the period, a quarter more or less, so that the nodes of a grid that started
// together do not probe together. It follows from the name, so it needs no randomness.
func jitter(period time.Duration, node overlay.NodeID, round int) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(node.String()))
	h.Write([]byte(strconv.Itoa(round)))
	part := float64(h.Sum32())/(1<<32)/2 + 0.75
	return time.Duration(part * float64(period))
}

// Order returns all nodes, nearest first, those of unknown latency last. No node stands
// before one that is nearer by more than the margin; apart from that nodes keep the
// places they had.
func (t *Table) Order() []Entry {
	known := func(n overlay.NodeID) bool { return t.nodes[n].rtt > 0 }
	var placed, unknown []overlay.NodeID
	for _, n := range t.order {
		if known(n) {
			placed = t.insert(placed, n)
		} else {
			unknown = append(unknown, n)
		}
	}
	var fresh []overlay.NodeID
	for _, n := range t.fresh {
		if known(n) {
			fresh = append(fresh, n)
		} else {
			unknown = append(unknown, n)
		}
	}
	slices.SortStableFunc(fresh, t.compare)
	placed = t.merge(placed, fresh)
	t.order, t.fresh = placed, unknown
	return t.entries()
}

// insert puts n before the first node that it may pass, or last. When no two nodes of
// placed are in the wrong order by more than the margin, none are afterwards: those
// behind the first that n passes are hardly nearer than that one, so not nearer than n.
func (t *Table) insert(placed []overlay.NodeID, n overlay.NodeID) []overlay.NodeID {
	for i, other := range placed {
		if t.passes(n, other) {
			return slices.Insert(placed, i, n)
		}
	}
	return append(placed, n)
}

// merge puts the sorted nodes that have no place yet between the others, where they are
// by their latency, and then settles the order once more.
func (t *Table) merge(placed, fresh []overlay.NodeID) []overlay.NodeID {
	if len(fresh) == 0 {
		return placed
	}
	all := make([]overlay.NodeID, 0, len(placed)+len(fresh))
	for _, n := range placed {
		for len(fresh) > 0 && t.compare(fresh[0], n) < 0 {
			all, fresh = append(all, fresh[0]), fresh[1:]
		}
		all = append(all, n)
	}
	var settled []overlay.NodeID
	for _, n := range append(all, fresh...) {
		settled = t.insert(settled, n)
	}
	return settled
}

// passes reports whether n is nearer than other by more than the margin.
func (t *Table) passes(n, other overlay.NodeID) bool {
	far := t.nodes[other].rtt
	margin := max(t.cfg.Floor, time.Duration(t.cfg.Margin*float64(far)))
	return t.nodes[n].rtt < far-margin
}

func (t *Table) compare(a, b overlay.NodeID) int {
	return cmp.Or(cmp.Compare(t.nodes[a].rtt, t.nodes[b].rtt), compareNodes(a, b))
}

func compareNodes(a, b overlay.NodeID) int {
	return cmp.Or(cmp.Compare(a.Site, b.Site), cmp.Compare(a.Name, b.Name))
}

// entries is the order with what is known.
func (t *Table) entries() []Entry {
	all := make([]Entry, 0, len(t.nodes))
	for _, nodes := range [][]overlay.NodeID{t.order, t.fresh} {
		for _, n := range nodes {
			e := t.nodes[n]
			all = append(all, Entry{n, e.rtt, e.last})
		}
	}
	return all
}
