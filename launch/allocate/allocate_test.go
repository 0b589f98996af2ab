package allocate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/overlay"
)

func node(name string) overlay.NodeID { return overlay.NodeID{Site: "s", Name: name} }

// hostsOf makes hosts of one site that take these numbers of processes.
func hostsOf(processes ...int) []Host {
	hosts := make([]Host, len(processes))
	for i, p := range processes {
		hosts[i] = Host{Node: node(fmt.Sprint("h", i)), Latency: time.Duration(i) * time.Millisecond, Processes: p, Jobs: 1}
	}
	return hosts
}

// The paper's example of replication, n=3 and r=2, and other possible results.
func TestThreeRanksTwice(t *testing.T) {
	for _, c := range []struct {
		processes []int
		ranks     string
	}{
		{[]int{3, 3}, "0-2 | 0-2/1"},
		{[]int{2, 2, 2}, "0-1 | 2,0/1 | 1-2/1"},
		{[]int{1, 1, 1, 1, 1, 1}, "0 | 1 | 2 | 0/1 | 1/1 | 2/1"},
		{[]int{6, 6}, "0-2 | 0-2/1"},
	} {
		for _, strategy := range []string{"spread", "concentrate"} {
			p := allocate(t, Job{Ranks: 3, Copies: 2}, hostsOf(c.processes...), strategy)
			var ranks []string
			for _, h := range p.Used() {
				ranks = append(ranks, ranksText(h.Processes))
			}
			if got := strings.Join(ranks, " | "); got != c.ranks {
				t.Errorf("%s on %v: %s, want %s", strategy, c.processes, got, c.ranks)
			}
			checkPlan(t, p)
		}
	}
	var lack *Shortage
	if _, err := Allocate(Job{Ranks: 3, Copies: 2}, hostsOf(4, 1, 1), Spread{}); !errors.As(err, &lack) || lack.Have != 5 || lack.Need != 6 {
		t.Errorf("(4,1,1): %v, want a shortage of 5 for 6", err)
	} else if !slices.Equal(lack.Limits, []Limit{LimitProcesses, LimitCopies}) {
		t.Errorf("(4,1,1): in the way %v, want processes and copies", lack.Limits)
	}
}

// J=2, P=1 and J=1, P=2: the owner's two settings in the paper's section 4.1, one job after the
// other.
func TestOwnersSettings(t *testing.T) {
	for _, c := range []struct{ jobs, processes, ranks, accepted int }{{2, 1, 1, 2}, {1, 2, 2, 1}} {
		h := hostsOf(c.processes)
		h[0].Jobs = c.jobs
		accepted := 0
		for {
			if _, err := Allocate(Job{Ranks: c.ranks, Copies: 1}, h, Spread{}); err != nil {
				var lack *Shortage
				if !errors.As(err, &lack) || !slices.Equal(lack.Limits, []Limit{LimitJobs}) {
					t.Errorf("J=%d, P=%d: %v, want jobs in the way", c.jobs, c.processes, err)
				}
				break
			}
			accepted++
			h[0].Jobs--
		}
		if accepted != c.accepted {
			t.Errorf("J=%d, P=%d: %d jobs of %d accepted, want %d", c.jobs, c.processes, accepted, c.ranks, c.accepted)
		}
	}
}

func TestBook(t *testing.T) {
	for processes, want := range map[int]int{100: 119, 350: 375, 600: 627, 1: 1, 2: 5, 3: 7, 64: 82, MaxProcesses: MaxProcesses + 60, 0: 0, MaxProcesses + 1: 0} {
		if got := Book(processes, 1); got != want {
			t.Errorf("%d processes: %d hosts, want %d", processes, got, want)
		}
	}
	for n := 1; n < 5000; n++ {
		for r := 1; r <= 3; r++ {
			x := float64(n * r)
			if want := n*r + int(math.Floor(3*math.Log2(x)+1e-9)); Book(n, r) != want {
				t.Fatalf("Book(%d, %d) = %d, want %d", n, r, Book(n, r), want)
			}
		}
	}
	if Book(-1, 1) != 0 || Book(math.MaxInt, math.MaxInt) != 0 {
		t.Error("Book of nonsense is not 0")
	}
}

// paper is the pseudo-code of section 4.3, line by line, as the oracle. Its concentrate must not
// run its outer loop twice; a panic prevents that, which is the only change.
func paper(strategy string, n, r int, processes []int) (ranks [][]int) {
	slist := processes[:min(len(processes), n*r)]
	u, c := make([]int, len(slist)), make([]int, len(slist))
	for i, p := range slist {
		c[i] = min(p, n)
	}
	d, cont := 0, true
	for pass := 0; cont; pass++ {
		if strategy == "concentrate" && pass == 1 {
			panic("the outer loop would overwrite what the first pass placed")
		}
		for i := 0; i < len(slist) && cont; i++ {
			if strategy == "concentrate" {
				u[i] = min(c[i], n*r-d)
				d += u[i]
			} else if u[i] < c[i] {
				u[i]++
				d++
			}
			if d == n*r {
				cont = false
			}
		}
	}
	rank := 0
	for i := range slist {
		var of []int
		for range u[i] {
			of = append(of, rank)
			if rank++; rank >= n {
				rank = 0
			}
		}
		ranks = append(ranks, of)
	}
	return ranks
}

// cases returns how many of all random cases a test is to try.
func cases(all int) int {
	if testload.Full() {
		return all
	}
	return all / 4
}

func TestStrategiesAreThePapers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	placed, refused := 0, 0
	for range cases(6000) {
		n, r := 1+rng.IntN(12), 1+rng.IntN(4)
		processes := make([]int, 1+rng.IntN(30))
		for i := range processes {
			processes[i] = 1 + rng.IntN(5)
		}
		fits := 0
		for _, p := range processes[:min(len(processes), n*r)] {
			fits += min(p, n)
		}
		for _, strategy := range []Strategy{Spread{}, Concentrate{}} {
			p, err := Allocate(Job{Ranks: n, Copies: r}, hostsOf(processes...), strategy)
			if (err == nil) != (fits >= n*r) {
				t.Fatalf("n=%d r=%d on %v: error %v, the paper's condition (b) has %d of %d", n, r, processes, err, fits, n*r)
			}
			if err != nil {
				refused++
				continue
			}
			placed++
			want := paper(strategy.Name(), n, r, processes)
			for i, h := range p.Hosts {
				var ranks []int
				for _, q := range h.Processes {
					ranks = append(ranks, q.Rank)
				}
				if i < len(want) && !slices.Equal(ranks, want[i]) || i >= len(want) && len(ranks) > 0 {
					t.Fatalf("%s n=%d r=%d on %v: host %d has %v, the paper says %v", strategy.Name(), n, r, processes, i, ranks, want)
				}
			}
			checkPlan(t, p)
		}
	}
	if placed < cases(500) || refused < cases(500) {
		t.Errorf("%d placed and %d refused: too few of one kind to mean something", placed, refused)
	}
}

// checkPlan checks the invariants of every plan.
func checkPlan(t testing.TB, p *Plan) {
	t.Helper()
	where := map[Process]overlay.NodeID{}
	for _, h := range p.Hosts {
		if len(h.Processes) > h.Capacity {
			t.Fatalf("%s runs %d processes and takes %d", h.Node, len(h.Processes), h.Capacity)
		}
		ranks := map[int]bool{}
		for _, q := range h.Processes {
			if ranks[q.Rank] {
				t.Fatalf("%s runs two copies of rank %d", h.Node, q.Rank)
			}
			ranks[q.Rank] = true
			if there, twice := where[q]; twice {
				t.Fatalf("%+v runs on %s and %s", q, there, h.Node)
			}
			where[q] = h.Node
		}
	}
	want := 0
	for rank := range p.Job.Ranks {
		copies := p.Job.Copies
		if rank == 0 && p.Job.pinned() {
			copies = 1
			if at := where[Process{0, 0}]; at != p.Job.Home {
				t.Fatalf("rank 0 runs on %s, its home is %s", at, p.Job.Home)
			}
		}
		for c := range copies {
			if _, runs := where[Process{rank, c}]; !runs {
				t.Fatalf("copy %d of rank %d runs nowhere", c, rank)
			}
			want++
		}
	}
	if len(where) != want || want != p.Job.Processes() {
		t.Fatalf("%d processes placed, %d wanted, Job.Processes says %d", len(where), want, p.Job.Processes())
	}
}

func TestRankZeroStaysAtHome(t *testing.T) {
	for _, strategy := range Strategies {
		for n := 1; n <= 6; n++ {
			for r := 1; r <= 3; r++ {
				hosts := hostsOf(1, 3, 2, 1, 6, 6, 6)
				for _, home := range []string{"h0", "h1", "h6"} {
					checkPlan(t, allocate(t, Job{Ranks: n, Copies: r, Home: node(home)}, hosts, strategy))
				}
			}
		}
	}
	p := allocate(t, Job{Ranks: 4, Copies: 2, Home: node("h1")}, hostsOf(3, 2, 3), "concentrate")
	var b strings.Builder
	for _, h := range p.Used() {
		fmt.Fprintf(&b, "%s: %s; ", h.Node.Name, ranksText(h.Processes))
	}
	if got, want := b.String(), "h1: 0,1/1; h0: 1-3; h2: 2-3/1; "; got != want {
		t.Errorf("got %s want %s", got, want)
	}
	if _, err := Allocate(Job{Ranks: 2, Copies: 1, Home: node("elsewhere")}, hostsOf(2, 2), Spread{}); !errors.Is(err, errNoHome) {
		t.Errorf("a home that is no host: %v", err)
	}
	busy := hostsOf(2, 8)
	busy[0].Jobs = 0
	if _, err := Allocate(Job{Ranks: 2, Copies: 1, Home: node("h0")}, busy, Spread{}); err == nil || !strings.Contains(err.Error(), "in the way: jobs") {
		t.Errorf("a home that takes no job: %v", err)
	}
}

func TestMemoryAndCPULimitHosts(t *testing.T) {
	hosts := hostsOf(4, 4, 4)
	hosts[0].Memory = 2 << 30
	hosts[1].CPU = 1500
	hosts[2].Memory = 1
	p := allocate(t, Job{Ranks: 3, Copies: 1, Memory: 1 << 30, CPU: 1000}, hosts, "concentrate")
	if got := []int{p.Hosts[0].Capacity, p.Hosts[1].Capacity, p.Hosts[2].Capacity}; !slices.Equal(got, []int{2, 1, 0}) {
		t.Errorf("capacities %v, want 2, 1, 0", got)
	}
	checkPlan(t, p)
}

func TestShortageNamesTheLimitAndTheNearestOffer(t *testing.T) {
	hosts := hostsOf(4, 4)
	for i := range hosts {
		hosts[i].Memory, hosts[i].CPU = 4<<30, 4000
	}
	for _, c := range []struct {
		name, want string
		job        Job
		change     func([]Host)
	}{
		{"memory", "8 processes (8 ranks, 1 copies each) do not fit: 2 hosts take 4; in the way: memory; would fit: 4 ranks, or 1073741824 bytes per process",
			Job{Ranks: 8, Copies: 1, Memory: 2 << 30}, nil},
		{"cpu", "8 processes (8 ranks, 1 copies each) do not fit: 2 hosts take 2; in the way: cpu; would fit: 2 ranks, or 1000/1000 of a core per process",
			Job{Ranks: 8, Copies: 1, CPU: 2500}, nil},
		{"copies", "6 processes (2 ranks, 3 copies each) do not fit: 2 hosts take 4; in the way: copies; would fit: 2 copies of each rank",
			Job{Ranks: 2, Copies: 3}, nil},
		{"two limits", "8 processes (8 ranks, 1 copies each) do not fit: 2 hosts take 2; in the way together: memory, cpu; would fit: 2 ranks",
			Job{Ranks: 8, Copies: 1, CPU: 2500, Memory: 3 << 30}, nil},
		{"jobs", "8 processes (8 ranks, 1 copies each) do not fit: 2 hosts take 4; in the way: jobs, processes; would fit: 4 ranks",
			Job{Ranks: 8, Copies: 1}, func(h []Host) { h[1].Jobs = 0 }},
		{"nobody", "1 processes (1 ranks, 1 copies each) do not fit: 2 hosts take 0; in the way: jobs",
			Job{Ranks: 1, Copies: 1}, func(h []Host) { h[0].Jobs, h[1].Jobs = 0, 0 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			hosts := slices.Clone(hosts)
			if c.change != nil {
				c.change(hosts)
			}
			_, err := Allocate(c.job, hosts, Concentrate{})
			if err == nil || err.Error() != c.want {
				t.Errorf("\n got %v\nwant %s", err, c.want)
			}
		})
	}
	if _, err := Allocate(Job{Ranks: 1, Copies: 1}, nil, Spread{}); err == nil || !strings.Contains(err.Error(), "0 hosts take 0; in the way together: hosts") {
		t.Errorf("no hosts: %v", err)
	}
}

// Every offer fits, and the next value up does not: checked by trying all.
func TestOffersAreTheNearest(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	short := 0
	for range cases(3000) {
		hosts := hostsOf(make([]int, 1+rng.IntN(5))...)
		for i := range hosts {
			hosts[i].Processes, hosts[i].Jobs = rng.IntN(5), rng.IntN(3)
			hosts[i].Memory, hosts[i].CPU = int64(rng.IntN(20)), rng.IntN(20)
		}
		job := Job{Ranks: 1 + rng.IntN(10), Copies: 1 + rng.IntN(4), Memory: int64(rng.IntN(10)), CPU: rng.IntN(10)}
		if rng.IntN(3) == 0 {
			job.Home = hosts[rng.IntN(len(hosts))].Node
		}
		var lack *Shortage
		if _, err := Allocate(job, hosts, Spread{}); !errors.As(err, &lack) {
			continue
		}
		short++
		want := 0
		for _, change := range []func(v int) (Job, bool){
			func(v int) (Job, bool) { j := job; j.Ranks = v; return j, v < job.Ranks },
			func(v int) (Job, bool) { j := job; j.Copies = v; return j, v < job.Copies },
			func(v int) (Job, bool) { j := job; j.Memory = int64(v); return j, int64(v) < job.Memory },
			func(v int) (Job, bool) { j := job; j.CPU = v; return j, v < job.CPU },
		} {
			best := Job{}
			for v := 1; ; v++ {
				j, less := change(v)
				if !less {
					break
				}
				if fits(j, hosts) {
					best = j
				}
			}
			if best.Ranks == 0 {
				continue
			}
			if want++; !slices.ContainsFunc(lack.Nearest, func(o Offer) bool { return o.Job == best }) {
				t.Fatalf("%+v on %+v: offers %+v, %+v is missing", job, hosts, lack.Nearest, best)
			}
		}
		if len(lack.Nearest) != want {
			t.Fatalf("%+v on %+v: %d offers, want %d", job, hosts, len(lack.Nearest), want)
		}
	}
	if short < cases(500) {
		t.Errorf("only %d jobs did not fit", short)
	}
}

// When a strategy reports that it is settled, further hosts change nothing.
func TestSettledIsFinal(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	settled := 0
	for range cases(5000) {
		hosts := hostsOf(make([]int, 2+rng.IntN(10))...)
		for i := range hosts {
			hosts[i].Processes = rng.IntN(4)
		}
		job := Job{Ranks: 1 + rng.IntN(6), Copies: 1 + rng.IntN(2)}
		near := hosts[:1+rng.IntN(len(hosts)-1)]
		for _, s := range []Strategy{Spread{}, Concentrate{}, Auto{}} {
			if !Settled(job, near, s) {
				continue
			}
			settled++
			a, err := Allocate(job, near, s)
			if err != nil {
				t.Fatalf("%s is settled and refuses: %v", s.Name(), err)
			}
			b, err := Allocate(job, hosts, s)
			if err != nil || !slices.EqualFunc(a.Used(), b.Used(), func(a, b Placed) bool {
				return a.Node == b.Node && slices.Equal(a.Processes, b.Processes)
			}) {
				t.Fatalf("%s said settled with %d of %d hosts: %v and %v, %v", s.Name(), len(near), len(hosts), a.Used(), b.Used(), err)
			}
		}
	}
	if settled < cases(500) {
		t.Errorf("settled only %d times", settled)
	}
}

func TestTiesKeepTheirOrderAndUnknownComesLast(t *testing.T) {
	hosts := hostsOf(1, 1, 1, 1)
	hosts[0].Latency, hosts[1].Latency, hosts[2].Latency, hosts[3].Latency = UnknownLatency, 5, 5, 1
	p := allocate(t, Job{Ranks: 4, Copies: 1}, Order(hosts), "spread")
	var names []string
	for _, h := range p.Used() {
		names = append(names, h.Node.Name)
	}
	if got := strings.Join(names, " "); got != "h3 h1 h2 h0" {
		t.Errorf("order %s, want h3 h1 h2 h0", got)
	}
	if hosts[0].Node.Name != "h0" {
		t.Error("Order sorted the caller's slice")
	}
}

func TestPlanAsTableAndJSON(t *testing.T) {
	hosts := []Host{
		{Node: overlay.NodeID{Site: "lyon", Name: "b"}, Latency: 10500 * time.Microsecond, Processes: 9, Jobs: 1},
		{Node: overlay.NodeID{Site: "nancy", Name: "a"}, Latency: 98765, Processes: 2, Jobs: 1},
		{Node: overlay.NodeID{Site: "nancy", Name: "c"}, Latency: UnknownLatency, Processes: 2, Jobs: 1},
	}
	p := allocate(t, Job{Ranks: 3, Copies: 2, Pattern: Master}, Order(hosts), "spread")
	var b strings.Builder
	if err := p.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	want := `HOST  SITE   LATENCY    CAPACITY  PROCESSES  RANKS
a     nancy  0.099 ms   2         2          0-1
b     lyon   10.500 ms  3         2          2,0/1
c     nancy  unknown    2         2          1-2/1
spread: 6 processes (3 ranks, 2 copies each) on 3 of 3 hosts, 2 sites; pairs of copies at one site: 1
`
	if b.String() != want {
		t.Errorf("table\n%swant\n%s", b.String(), want)
	}
	out, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON := `{"strategy":"spread","ranks":3,"copies":2,"together":1,"pattern":"master","hosts":[` +
		`{"node":"nancy/a","site":"nancy","latency_ms":0.098765,"capacity":2,"processes":[{"rank":0,"copy":0},{"rank":1,"copy":0}]},` +
		`{"node":"lyon/b","site":"lyon","latency_ms":10.5,"capacity":3,"processes":[{"rank":2,"copy":0},{"rank":0,"copy":1}]},` +
		`{"node":"nancy/c","site":"nancy","latency_ms":null,"capacity":2,"processes":[{"rank":1,"copy":1},{"rank":2,"copy":1}]}]}`
	if string(out) != wantJSON {
		t.Errorf("JSON\n%s\nwant\n%s", out, wantJSON)
	}

	p.Paths = []SitePath{
		{[2]overlay.SiteID{"lyon", "nancy"}, Path{10 * time.Millisecond, 11.85e6}},
		{[2]overlay.SiteID{"lyon", "orsay"}, Path{RTT: 5 * time.Millisecond}},
		{[2]overlay.SiteID{"nancy", "orsay"}, Path{}},
	}
	b.Reset()
	if err := p.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	want += `
BETWEEN  AND    LATENCY    BANDWIDTH
lyon     nancy  10.000 ms  94.8 Mbit/s
lyon     orsay  5.000 ms   unknown
nancy    orsay  unknown    unknown
`
	if b.String() != want {
		t.Errorf("table\n%swant\n%s", b.String(), want)
	}
	if out, err = json.Marshal(p); err != nil {
		t.Fatal(err)
	}
	wantJSON = strings.TrimSuffix(wantJSON, "}") + `,"paths":[{"sites":["lyon","nancy"],"latency_ms":10,"bandwidth":11850000},` +
		`{"sites":["lyon","orsay"],"latency_ms":5},{"sites":["nancy","orsay"]}]}`
	if string(out) != wantJSON {
		t.Errorf("JSON\n%s\nwant\n%s", out, wantJSON)
	}
	p.Paths, p.Risk = nil, &Risk{MTBF: 30 * 24 * time.Hour, Walltime: 36 * time.Hour, Failure: []float64{0.7364, 0.042102, 0.001408}}
	b.Reset()
	if err := p.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	if want := `

REPLICAS  PROCESSES  FAILS IN 36h, IF A HOST FAILS EVERY 30d
1         3          73.6 %
2         6          4.21 %
3         9          0.141 %
`; !strings.HasSuffix(b.String(), want[1:]) {
		t.Errorf("table\n%swant at its end\n%s", b.String(), want)
	}
	if out, err = json.Marshal(p); err != nil || !strings.HasSuffix(string(out), `"risk":{"mtbf_s":2592000,"walltime_s":129600,"failure":[0.7364,0.042102,0.001408]}}`) {
		t.Errorf("JSON %s, %v", out, err)
	}
	for bytes, want := range map[float64]string{0: "unknown", 1e9: "8 Gbit/s", 125: "1 kbit/s"} {
		if got := bandwidthText(bytes); got != want {
			t.Errorf("%g bytes a second are written %q, want %q", bytes, got, want)
		}
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	twice := hostsOf(1, 1)
	twice[1].Node = twice[0].Node
	for _, c := range []struct {
		job   Job
		hosts []Host
		want  string
	}{
		{Job{Ranks: 0, Copies: 1}, hostsOf(1), "0 ranks"},
		{Job{Ranks: 1, Copies: 0}, hostsOf(1), "0 copies"},
		{Job{Ranks: MaxProcesses, Copies: 2}, hostsOf(1), "at most"},
		{Job{Ranks: math.MaxInt, Copies: math.MaxInt}, hostsOf(1), "at most"},
		{Job{Ranks: 1, Copies: 1, Memory: -1}, hostsOf(1), "negative"},
		{Job{Ranks: 1, Copies: 1, Pattern: 9}, hostsOf(1), "pattern"},
		{Job{Ranks: 1, Copies: 1}, twice, "twice"},
	} {
		if _, err := Allocate(c.job, c.hosts, Spread{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q in it", c.job, err, c.want)
		}
	}
	if _, err := ByName("scatter", nil); err == nil || !strings.Contains(err.Error(), "concentrate") {
		t.Errorf("an unknown strategy: %v, want the known ones named", err)
	}
	hosts := hostsOf(-3, 1)
	checkPlan(t, allocate(t, Job{Ranks: 1, Copies: 1}, hosts, "spread"))
}

// A violation of a strategy's contract is an error, and its plan is discarded.
func TestPromisesOfStrategiesAreChecked(t *testing.T) {
	for _, c := range []struct {
		shares []Share
		want   string
	}{
		{[]Share{{0, 1}}, "1 processes placed of 2"},
		{[]Share{{0, 2}}, "takes 1 to 1"},
		{[]Share{{0, 1}, {0, 1}}, "two shares"},
		{[]Share{{2, 1}}, "host 2 of 2"},
	} {
		if _, err := Allocate(Job{Ranks: 2, Copies: 1}, hostsOf(1, 1), fixed(c.shares)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.shares, err, c.want)
		}
	}
}

type fixed []Share

func (fixed) Name() string                    { return "fixed" }
func (f fixed) Place(Demand) ([]Share, error) { return f, nil }
func (fixed) Settled(Demand) bool             { return false }
