package latency

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/overlay"
)

var start = time.Unix(1e9, 0)

// node returns the only node of its site.
func node(name string) overlay.NodeID {
	return overlay.NodeID{Site: overlay.SiteID("site-" + name), Name: name}
}

// round probes a node for a whole round.
func round(t *Table, n overlay.NodeID, now time.Time, rtt func() time.Duration) {
	for range t.cfg.Probes {
		t.Probe(n, rtt(), now)
	}
}

func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

func names(entries []Entry) string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Node.Name)
	}
	return strings.Join(all, " ")
}

func TestShortestProbeCounts(t *testing.T) {
	table := NewTable(Config{Probes: 3})
	table.Keep([]overlay.NodeID{node("a")})
	for _, rtt := range []time.Duration{900, 300, 700} {
		table.Probe(node("a"), rtt*time.Microsecond, start)
	}
	if got := table.Order()[0]; got.RTT != 300*time.Microsecond || !got.Heard.Equal(start) {
		t.Errorf("%+v, want 300 us", got)
	}
}

func TestLowerAtOnceHigherLaterAndByAPart(t *testing.T) {
	table := NewTable(Config{})
	a := node("a")
	table.Keep([]overlay.NodeID{a})
	for _, c := range []struct{ round, want time.Duration }{
		{10 * time.Millisecond, 10 * time.Millisecond},
		{18 * time.Millisecond, 10 * time.Millisecond}, // once may be chance
		{20 * time.Millisecond, 12 * time.Millisecond},
		{4 * time.Millisecond, 4 * time.Millisecond},
		{8 * time.Millisecond, 4 * time.Millisecond},
		{8 * time.Millisecond, 5 * time.Millisecond},
	} {
		round(table, a, start, always(c.round))
		if got := table.Order()[0].RTT; got != c.want {
			t.Errorf("after a round of %v: %v, want %v", c.round, got, c.want)
		}
	}
}

// The testbed of the P2P-MPI co-allocation paper: 350 hosts at sites with differences of 0.6 to 10
// ms, here with noise of the same size.
func TestOrderOf350HostsIsThatOfTheirSites(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	type place struct {
		site  overlay.SiteID
		hosts int
		rtt   time.Duration
	}
	places := []place{
		{"nancy", 60, 100 * time.Microsecond}, {"lyon", 50, 10500 * time.Microsecond}, {"rennes", 90, 11600 * time.Microsecond},
		{"bordeaux", 60, 12600 * time.Microsecond}, {"grenoble", 20, 13200 * time.Microsecond}, {"sophia", 70, 17100 * time.Microsecond},
	}
	rank, far := map[overlay.SiteID]int{}, map[overlay.SiteID]time.Duration{}
	var nodes []overlay.NodeID
	for i, p := range places {
		rank[p.site], far[p.site] = i, p.rtt
		for h := range p.hosts {
			nodes = append(nodes, overlay.NodeID{Site: p.site, Name: fmt.Sprintf("h%03d", h)})
		}
	}
	rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	table := NewTable(Config{})
	table.Keep(nodes)
	inversions := func(order []Entry) (n int) {
		for i := range order {
			for j := range i {
				if rank[order[j].Node.Site] > rank[order[i].Node.Site] {
					n++
				}
			}
		}
		return n
	}
	var before []Entry
	flaps, sorted := 0, 0
	for r := range 50 {
		for _, n := range nodes {
			// The machine is busy: some hosts are slower than others for a whole round, by more
			// than the differences between sites.
			busy := time.Duration(rng.ExpFloat64() * float64(time.Millisecond))
			round(table, n, start, func() time.Duration {
				return far[n.Site] + busy + time.Duration(rng.ExpFloat64()*200)*time.Microsecond
			})
		}
		order := table.Order()
		if n := inversions(order); n != 0 {
			t.Fatalf("round %d: %d pairs of hosts are in another order than their sites", r, n)
		}
		same := func(a, b Entry) bool { return a.Node == b.Node }
		if r > 0 {
			if !slices.EqualFunc(before, order, same) {
				flaps++
			}
			byRTT := slices.Clone(order)
			slices.SortStableFunc(byRTT, func(a, b Entry) int { return int(a.RTT - b.RTT) })
			if !slices.EqualFunc(byRTT, order, same) {
				sorted++
			}
		}
		before = order
	}
	if flaps > 0 {
		t.Errorf("the order changed in %d of 49 rounds, with nothing but noise", flaps)
	}
	if sorted == 0 {
		t.Error("sorting by estimate gives the same order: this test shows nothing")
	}
}

// Within a site names decide, whatever the noise; but not for a host that is farther away, nor for
// the table's own node.
func TestHostsOfASiteStandTogether(t *testing.T) {
	at := func(site, name string) overlay.NodeID {
		return overlay.NodeID{Site: overlay.SiteID(site), Name: name}
	}
	table := NewTable(Config{Probes: 1})
	far := map[overlay.NodeID]time.Duration{
		at("home", "self"): time.Microsecond, at("home", "a"): 4 * time.Millisecond, at("home", "b"): 100 * time.Microsecond,
		at("near", "a"): 11 * time.Millisecond, at("near", "b"): 13 * time.Millisecond, at("near", "c"): 10 * time.Millisecond,
		at("near", "vpn"): 60 * time.Millisecond, at("far", "a"): 12 * time.Millisecond, at("lost", "a"): 0,
	}
	probe := func() string {
		var nodes []overlay.NodeID
		for n := range far {
			nodes = append(nodes, n)
		}
		table.Keep(nodes)
		for n, rtt := range far {
			if rtt > 0 {
				table.Probe(n, rtt, start)
			}
		}
		var all []string
		for _, e := range table.Order() {
			all = append(all, e.Node.String())
		}
		return strings.Join(all, " ")
	}
	want := "home/self home/a home/b near/a near/b near/c far/a near/vpn lost/a"
	if got := probe(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// On a machine so busy that half of the hosts are that late, it is not listed separately.
	far[at("near", "a")], far[at("near", "b")] = 18*time.Millisecond, 19*time.Millisecond
	calm := table
	table = NewTable(Config{Probes: 1})
	if got, want := probe(), "home/self home/a home/b near/a near/b near/c near/vpn far/a lost/a"; got != want {
		t.Errorf("busy: got  %s\nwant %s", got, want)
	}
	table = calm
	far[at("near", "a")], far[at("near", "b")] = 11*time.Millisecond, 13*time.Millisecond
	// Back with its site when it is clearly within the range, not before.
	far[at("near", "vpn")] = 19 * time.Millisecond
	if got := probe(); got != want {
		t.Errorf("hardly nearer, vpn is with its site: %s", got)
	}
	far[at("near", "vpn")] = 17 * time.Millisecond
	if got, want := probe(), "home/self home/a home/b near/a near/b near/c near/vpn far/a lost/a"; got != want {
		t.Errorf("nearer: got  %s\nwant %s", got, want)
	}
}

// An order from elsewhere is kept while no site is nearer by more than the margin.
func TestAdoptedOrder(t *testing.T) {
	a1, a2, b1, c1 := overlay.NodeID{Site: "a", Name: "1"}, overlay.NodeID{Site: "a", Name: "2"}, overlay.NodeID{Site: "b", Name: "1"}, overlay.NodeID{Site: "c", Name: "1"}
	table := NewTable(Config{})
	table.Adopt([]overlay.NodeID{c1, b1, a2, a1})
	for n, rtt := range map[overlay.NodeID]time.Duration{a1: 10000, a2: 12000, b1: 10200, c1: 15000} {
		table.Probe(n, rtt*time.Microsecond, start)
	}
	if got := table.Order(); got[0].Node != b1 || got[1].Node != a1 || got[2].Node != a2 || got[3].Node != c1 {
		t.Errorf("%v, want b, as far as a and before it, then a, then c", got)
	}
}

// Random latencies, checked against the contract: no significant inversion, and no change without
// one.
func TestOrderKeepsItsPromise(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	moved, kept := 0, 0
	for range 300 {
		table := NewTable(Config{Rise: 1, Probes: 1, Lost: 1})
		var nodes []overlay.NodeID
		for i := range 2 + rng.IntN(12) {
			nodes = append(nodes, node(fmt.Sprint("n", i)))
		}
		for range 20 {
			table.Keep(nodes[:1+rng.IntN(len(nodes))])
			var before []overlay.NodeID // one for each place, as each has a site of its own
			for _, p := range table.order {
				before = append(before, overlay.NodeID{Site: p.Site, Name: strings.TrimPrefix(string(p.Site), "site-")})
			}
			passes := func(a, b overlay.NodeID) bool {
				return table.cfg.isNearer(table.nodes[a].rtt, table.nodes[b].rtt)
			}
			before = slices.DeleteFunc(before, func(n overlay.NodeID) bool { return table.nodes[n] == nil })
			for _, n := range nodes {
				switch rng.IntN(6) {
				case 0, 1, 2:
					table.Probe(n, time.Duration(9000+rng.IntN(2000))*time.Microsecond, start)
				case 3:
					table.Failed(n, start)
				}
			}
			wrong := false // whether the previous order must change
			for i, b := range before {
				wrong = wrong || table.nodes[b].rtt == 0
				for _, a := range before[:i] {
					wrong = wrong || table.nodes[a].rtt > 0 && passes(b, a)
				}
			}
			after := table.Order()
			if len(after) != len(table.nodes) {
				t.Fatalf("%d entries of %d nodes", len(after), len(table.nodes))
			}
			var kin []overlay.NodeID // those that were in the previous order
			unknown := false
			for i, e := range after {
				if unknown && e.RTT > 0 {
					t.Fatalf("%+v stands behind unknown ones", e)
				}
				unknown = unknown || e.RTT == 0
				for _, a := range after[:i] {
					if e.RTT > 0 && passes(e.Node, a.Node) {
						t.Fatalf("%+v stands before %+v", a, e)
					}
				}
				if slices.Contains(before, e.Node) {
					kin = append(kin, e.Node)
				}
			}
			if wrong {
				moved++
			} else if kept++; !slices.Equal(kin, before) {
				t.Fatalf("the order changed without need: %v to %v", before, kin)
			}
		}
	}
	if moved < 100 || kept < 100 {
		t.Errorf("changed %d times, kept %d times: too few of one", moved, kept)
	}
}

func TestAChangedPathMovesItsNode(t *testing.T) {
	table := NewTable(Config{})
	table.Keep([]overlay.NodeID{node("a"), node("b"), node("c")})
	round(table, node("a"), start, always(10*time.Millisecond))
	round(table, node("b"), start, always(12*time.Millisecond))
	round(table, node("c"), start, always(17*time.Millisecond))
	round(table, node("c"), start, always(5*time.Millisecond))
	if got := names(table.Order()); got != "c a b" {
		t.Errorf("c came nearer: order %s", got)
	}
	rounds := 0
	for names(table.Order()) != "c b a" && rounds < 20 {
		round(table, node("a"), start, always(17*time.Millisecond))
		rounds++
	}
	if rounds < 3 || rounds > 4 {
		t.Errorf("a went away to 17 ms and stood last after %d rounds, want 3 or 4", rounds)
	}
}

func TestANodeThatIsLostGoesLast(t *testing.T) {
	table := NewTable(Config{})
	a, b := node("a"), node("b")
	table.Keep([]overlay.NodeID{a, b})
	round(table, a, start, always(time.Millisecond))
	round(table, b, start, always(2*time.Millisecond))
	table.Failed(a, start)
	table.Failed(a, start)
	if got := names(table.Order()); got != "a b" {
		t.Errorf("after two failures: %s", got)
	}
	table.Probe(a, 0, start) // a clock that stood still is not an answer
	if got := table.Order(); names(got) != "b a" || got[1].RTT != 0 {
		t.Errorf("after three failures: %+v", got)
	}
	table.Probe(a, time.Millisecond, start)
	if got := names(table.Order()); got != "a b" {
		t.Errorf("after it came back: %s", got)
	}
}

// Due returns each node of a round as often as the round has probes, then not for a period, and
// never one with a probe pending.
func TestDue(t *testing.T) {
	table := NewTable(Config{Probes: 2, Period: 100 * time.Second})
	nodes := []overlay.NodeID{node("a"), node("b"), node("c")}
	table.Keep(nodes)
	now := start
	if got := table.Due(now, 2); !slices.Equal(got, nodes[:2]) {
		t.Errorf("first: %v", got)
	}
	if got := table.Due(now, 9); !slices.Equal(got, nodes[2:]) {
		t.Errorf("second, while a and b are out: %v", got)
	}
	if got := table.Due(now, 9); len(got) != 0 {
		t.Errorf("all are out, and %v are due", got)
	}
	for _, n := range nodes {
		table.Probe(n, time.Millisecond, now)
	}
	if got := table.Due(now, 9); len(got) != 3 {
		t.Errorf("the round is not over: %v", got)
	}
	table.Probe(nodes[0], time.Millisecond, now)
	table.Probe(nodes[1], time.Millisecond, now)
	table.Failed(nodes[2], now)
	if got := table.Due(now.Add(retry-1), 9); len(got) != 0 {
		t.Errorf("before the retry: %v", got)
	}
	if got := table.Due(now.Add(retry), 9); !slices.Equal(got, nodes[2:]) {
		t.Errorf("the retry: %v", got)
	}
	for round := range earlyRounds {
		if got := table.Due(now.Add(1249*time.Millisecond), 9); len(got) != 0 {
			t.Errorf("early round %d: after less than three quarters of a sixtieth of a period: %v", round, got)
		}
		now = now.Add(2084 * time.Millisecond)
		for range 2 {
			if got := table.Due(now, 9); len(got) != 2 || slices.Contains(got, nodes[2]) {
				t.Errorf("early round %d: %v", round, got)
			}
			table.Probe(nodes[0], time.Millisecond, now)
			table.Probe(nodes[1], time.Millisecond, now)
		}
	}
	if got := table.Due(now.Add(74*time.Second), 9); len(got) != 0 {
		t.Errorf("a rest of less than three quarters of a period: %v", got)
	}
	if got := table.Due(now.Add(126*time.Second), 9); len(got) != 2 {
		t.Errorf("after a period and a quarter: %v", got)
	}
	for range 100 { // nothing overflows
		table.Failed(nodes[2], now)
	}
	if wait := table.nodes[nodes[2]].due.Sub(now); wait != 100*time.Second {
		t.Errorf("after many failures the wait is %v, want the period", wait)
	}
	table.Keep(nil)
	if got := table.Due(now.Add(time.Hour), 9); len(got) != 0 || len(table.Order()) != 0 {
		t.Errorf("a table without nodes: %v", got)
	}
	table.Probe(nodes[0], 1, now) // a late answer
	table.Failed(nodes[1], now)
	if len(table.Order()) != 0 {
		t.Error("a late answer brought its node back")
	}
}

// A site that lists nodes which do not answer is probed a few at a time, and the others' nodes beside them.
func TestSitesTakeTurns(t *testing.T) {
	table := NewTable(Config{Site: 2})
	var nodes []overlay.NodeID
	for i := range 1000 {
		nodes = append(nodes, overlay.NodeID{Site: "a", Name: fmt.Sprintf("n%03d", i)})
	}
	b := overlay.NodeID{Site: "b", Name: "n1"}
	table.Keep(append(nodes, b))
	if got := table.Due(start, 2); !slices.Equal(got, []overlay.NodeID{nodes[0], b}) {
		t.Errorf("first %v", got)
	}
	if got := table.Due(start, 9); !slices.Equal(got, nodes[1:2]) {
		t.Errorf("then %v", got)
	}
	table.Probe(b, time.Millisecond, start)
	table.Failed(nodes[0], start)
	if got := table.Due(start, 9); !slices.Equal(got, []overlay.NodeID{b, nodes[2]}) && !slices.Equal(got, []overlay.NodeID{nodes[2], b}) {
		t.Errorf("at last %v", got)
	}
	silent := 0
	for _, e := range table.Order() {
		if e.Silent {
			silent++
		}
		if want := e.Node == nodes[0]; e.Silent != want {
			t.Errorf("%v: silent is %t", e.Node, e.Silent)
		}
	}
	if silent != 1 {
		t.Errorf("%d nodes are silent", silent)
	}
}
