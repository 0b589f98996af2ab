package submit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/launch/allocate"
	"github.com/isthmus-grid/isthmus/launch/mapping"
	"github.com/isthmus-grid/isthmus/launch/nodeservice/nodepb"
	"github.com/isthmus-grid/isthmus/launch/profile"
	"github.com/isthmus-grid/isthmus/launch/reserve"
	"github.com/isthmus-grid/isthmus/overlay"
)

// Measure answers with the test's far and wide; other paths are unknown. No site may take part in
// two bandwidth measurements at a time.
func (w *world) Measure(ctx context.Context, q *nodepb.MeasureRequest) (*nodepb.MeasureResponse, error) {
	n, err := w.of(ctx)
	if err != nil {
		return nil, err
	}
	r := &nodepb.MeasureResponse{}
	for _, to := range q.Nodes {
		d := &nodepb.Distance{Node: to, LatencyNs: uint64(w.far[n.name+" "+to])}
		if q.Bandwidth {
			d.Bandwidth = uint64(w.wide[n.name+" "+to])
			defer w.occupy(strings.Split(n.name, "/")[0], strings.Split(to, "/")[0])()
		}
		r.Distances = append(r.Distances, d)
	}
	return r, nil
}

// occupy marks two sites as busy, until the function it returns is called.
func (w *world) occupy(a, b string) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy == nil {
		w.busy = map[string]bool{}
	}
	if w.busy[a] || w.busy[b] {
		w.t.Errorf("%s and %s are measured while one of them is: %v", a, b, w.busy)
	}
	w.busy[a], w.busy[b] = true, true
	w.carried++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.busy[a], w.busy[b] = false, false
	}
}

func TestQuestions(t *testing.T) {
	var hosts []Host
	for _, name := range strings.Fields("a/n1 b/away a/n2 b/n1 c/idle c/mute c/n1 a/n3 b/n2 d/away") {
		n, err := overlay.ParseNodeID(name)
		if err != nil {
			t.Fatal(err)
		}
		h := Host{Host: allocate.Host{Node: n, Jobs: 1}}
		switch n.Name {
		case "away":
			h.State = stateAway
		case "idle":
			h.Jobs = 0
		case "mute":
			h.Fault = fmt.Errorf("no answer")
		}
		hosts = append(hosts, h)
	}
	if got, want := fmt.Sprint(questions(hosts)), "[{{a n1} [{b n1} {c n1} {a n2}]} {{b n1} [{c n1} {b n2}]}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := questions(hosts[:2]); len(got) > 0 {
		t.Errorf("one host is to measure %v", got)
	}
}

// Auto and the limits of profiles use the distances among sites, not only from the submitter.
func TestPlaceByWhatSitesMeasure(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1", "c/n1:1", "d/n1:1") // 1, 2, 3, 4 ms from the submitter
	w.far = map[string]time.Duration{"a/n1 b/n1": 9 * time.Millisecond, "b/n1 d/n1": 100 * time.Microsecond, "c/n1 d/n1": 5 * time.Millisecond}
	where := func(change func(*Job)) string {
		t.Helper()
		j := jobOf(t, 2, nil)
		change(j)
		plan, err := Plan(t.Context(), w.grid, j)
		if err != nil {
			return err.Error()
		}
		var names []string
		for _, h := range plan.Used() {
			names = append(names, h.Node.String())
		}
		return strings.Join(names, " ")
	}
	if got := where(func(j *Job) { j.Strategy = "auto" }); got != "b/n1 d/n1" {
		t.Errorf("auto: %s", got)
	}
	profiled := func(limit string) func(*Job) {
		p, err := profile.Read("p.yaml", []byte("groups:\n- {name: one, processes: 1}\n- {name: two, processes: 1}\nbetween:\n- {groups: [one, two], latency: "+limit+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return func(j *Job) { j.Profile = p }
	}
	if got := where(profiled("500us")); got != "b/n1 d/n1" {
		t.Errorf("within 500 us: %s", got)
	}
	if got := where(profiled("50us")); strings.Contains(got, "/n1 ") || got == "" {
		t.Errorf("within 50 us: %s", got)
	}
	w.far = nil
	if got := where(func(j *Job) { j.Strategy = "auto" }); got != "a/n1 b/n1" {
		t.Errorf("auto, when nothing is measured: %s", got)
	}
}

// A job with a graph has one rank on each host, each strategy measures the latencies between sites, and the plan has what
// they say.
func TestPlaceGraph(t *testing.T) {
	w := newWorld(t, "a/n1:4", "a/n2:4", "b/n1:4", "b/n2:4", "b/n3:4")
	w.far = map[string]time.Duration{}
	for i, from := range w.order {
		for _, to := range w.order[i+1:] {
			w.far[from+" "+to] = 10 * time.Millisecond
		}
	}
	w.far["b/n1 b/n2"] = time.Millisecond
	for strategy, want := range map[string]float64{"none": 1, "sma": 0, "auto": 0, "": 0} {
		j := jobOf(t, 3, nil)
		j.Strategy, j.Place.Graph = strategy, mapping.Band(3, 3, 1)
		plan, err := Plan(t.Context(), w.grid, j)
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Used()) != 3 || plan.Graph == nil || plan.Graph.Cut != want || plan.Graph.Weight != 2 || plan.Graph.Iteration < 1 {
			t.Errorf("%s: on %d hosts, %+v; want a cut of %g", strategy, len(plan.Used()), plan.Graph, want)
		}
		var text strings.Builder
		if err := plan.WriteTable(&text); err != nil || !strings.Contains(text.String(), fmt.Sprintf("weight between sites: %g of 2\n", want)) {
			t.Errorf("%s: the table is\n%s, %v", strategy, text.String(), err)
		}
		j.Hosts = []HostShare{{Node: overlay.NodeID{Site: "a", Name: "n1"}, Ranks: 3}}
		if _, err := Plan(t.Context(), w.grid, j); err == nil || !strings.Contains(err.Error(), "a job with a graph") {
			t.Errorf("with ranks on a host: %v", err)
		}
	}
}

// Auto and the limits of profiles use the bandwidth between sites, where that matters; an unknown
// one meets no limit.
func TestPlaceByBandwidth(t *testing.T) {
	w := newWorld(t, "a/n1:1", "b/n1:1", "c/n1:1", "d/n1:1")
	w.far, w.wide = map[string]time.Duration{}, map[string]float64{}
	for i, from := range w.order {
		for _, to := range w.order[i+1:] {
			w.far[from+" "+to] = 10 * time.Millisecond
			w.wide[from+" "+to] = 50e6
		}
	}
	w.far["a/n1 b/n1"], w.wide["a/n1 b/n1"] = time.Millisecond, 0.5e6 // near, with a low bandwidth
	w.wide["a/n1 c/n1"] = 0                                           // unknown
	plan := func(change func(*Job)) (*allocate.Plan, string) {
		t.Helper()
		w.carried = 0
		j := jobOf(t, 2, nil)
		change(j)
		plan, err := Plan(t.Context(), w.grid, j)
		if err != nil {
			return nil, err.Error()
		}
		var names []string
		for _, h := range plan.Used() {
			names = append(names, h.Node.String())
		}
		return plan, strings.Join(names, " ")
	}
	auto := func(message int) func(*Job) {
		return func(j *Job) { j.Strategy, j.Place.Message = "auto", message }
	}
	if _, got := plan(auto(0)); got != "a/n1 b/n1" || w.carried > 0 {
		t.Errorf("auto, for small messages: %s, with %d bandwidths measured", got, w.carried)
	}
	p, got := plan(auto(1 << 20))
	if got != "a/n1 d/n1" || w.carried != 6 {
		t.Errorf("auto, for messages of 1 MiB: %s, with %d bandwidths measured", got, w.carried)
	}
	if got := fmt.Sprint(p.Paths); got != "[{[a d] {10ms 5e+07}}]" {
		t.Errorf("the plan knows the paths %s", got)
	}
	profiled := func(text string) func(*Job) {
		p, err := profile.Read("p.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return func(j *Job) { j.Profile, j.Place.Ranks = p, p.Processes() }
	}
	two := "groups:\n- {name: one, processes: 1}\n- {name: two, processes: 1}\nbetween:\n- {groups: [one, two], bandwidth: "
	if _, got := plan(profiled(two + "400Mbit/s}\n")); got == "a/n1 b/n1" || got == "a/n1 c/n1" || !strings.Contains(got, "/n1 ") {
		t.Errorf("at least 400 Mbit/s: %s", got)
	}
	if _, got := plan(profiled(two + "1Gbit/s}\n")); !strings.Contains(got, "bandwidth: asks for at least 1Gbit/s; the best is 400Mbit/s (one at ") {
		t.Errorf("at least 1 Gbit/s: %s", got)
	}
	w.wide["b/n1 c/n1"] = 10e6
	inside := "groups:\n- {name: all, processes: 3, inside: {bandwidth: 80Mbit/s}}\n"
	if _, got := plan(profiled(inside)); got != "b/n1 c/n1 d/n1" {
		t.Errorf("three of 80 Mbit/s: %s", got)
	}
	clear(w.wide)
	if _, got := plan(profiled(two + "4Mbit/s}\n")); !strings.Contains(got, "bandwidth: asks for at least 4Mbit/s; the best is not known, so that it cannot be shown to hold (one at ") {
		t.Errorf("at least 4 Mbit/s where nobody knows: %s", got)
	}
}

// Every path is measured once, those between the nearest sites first, and no site takes part in two
// measurements at a time.
func TestTurns(t *testing.T) {
	for sites := range 20 {
		var hosts []Host
		found, want := network{}, 0
		for i := range sites {
			name := overlay.SiteID(fmt.Sprintf("s%02d", i))
			for n := range 1 + i%3 {
				hosts = append(hosts, Host{Host: allocate.Host{Node: overlay.NodeID{Site: name, Name: fmt.Sprint("n", n)}, Jobs: 1}})
			}
			for j := range i + 1 {
				found[sitePair(name, overlay.SiteID(fmt.Sprintf("s%02d", j)))] = allocate.Path{RTT: time.Millisecond}
				if i < carrySites && (i != j || i%3 > 0) {
					want++
				}
			}
		}
		left := ways(questions(hosts), found)
		rng := rand.New(rand.NewPCG(uint64(sites), 1))
		busy, seen := map[overlay.SiteID]bool{}, map[[2]overlay.SiteID]bool{}
		var under []way
		for len(left) > 0 || len(under) > 0 {
			if i := free(left, busy); i >= 0 {
				w := left[i]
				pair := sitePair(w.from.Site, w.to.Site)
				if seen[pair] || busy[w.from.Site] || busy[w.to.Site] || w.from == w.to {
					t.Fatalf("%d sites: %v is measured, again, or at a wrong time", sites, w)
				}
				seen[pair], busy[w.from.Site], busy[w.to.Site] = true, true, true
				left, under = slices.Delete(left, i, i+1), append(under, w)
				continue
			}
			i := rng.IntN(len(under))
			busy[under[i].from.Site], busy[under[i].to.Site] = false, false
			under = slices.Delete(under, i, i+1)
		}
		if len(seen) != want {
			t.Errorf("%d sites: %d ways are measured, want %d", sites, len(seen), want)
		}
	}
	near := network{sitePair("a", "b"): {RTT: 1}, sitePair("a", "d"): {RTT: 1}, sitePair("b", "d"): {RTT: 1}, sitePair("a", "c"): {}}
	var hosts []Host
	for _, site := range []overlay.SiteID{"a", "b", "c", "d"} {
		hosts = append(hosts, Host{Host: allocate.Host{Node: overlay.NodeID{Site: site, Name: "n"}, Jobs: 1}})
	}
	if got := fmt.Sprint(ways(questions(hosts), near)); got != "[{{a n} {b n}} {{a n} {d n}} {{b n} {d n}}]" {
		t.Errorf("of ways that exist in part, %s are measured", got)
	}
}

func TestRatesHaveTwoDigits(t *testing.T) {
	for bytes, want := range map[float64]profile.Rate{0: 0, 11.87e6: 94e6, 12.5e6: 100e6, 1: 8, 124: 990, 1e300: 1_100_000_000_000_000_000} {
		if got := rateOf(bytes); got != want {
			t.Errorf("%g bytes a second are %v, want %v", bytes, got, want)
		}
	}
}

// A host that refuses the job of a profile is replaced by another suitable one.
func TestProfileIsMatchedAgain(t *testing.T) {
	w := newWorld(t, "a/n1:2", "b/n1:2", "c/n1:2")
	p, err := profile.Read("p.yaml", []byte("groups:\n- {name: all, processes: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var out buffer
	j := jobOf(t, 2, &out)
	j.Profile = p
	w.nodes["a/n1"].node, err = reserve.NewNode(1, reserve.Policy{Jobs: 1, Processes: 2, Deny: []reserve.Rule{{Identity: "*"}}})
	if err != nil {
		t.Fatal(err)
	}
	w.nodes["b/n1"].dead = true
	if _, err := w.run(j); err != nil {
		t.Fatal(err)
	}
	if want := "[c/n1:0] rank 0\n[c/n1:1] rank 1\n"; out.sorted() != want {
		t.Error(out.sorted())
	}
	w.idle()
}
