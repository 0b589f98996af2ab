package mapping

import (
	"flag"
	"math"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

var scale = flag.Bool("scale", false, "map 10,000 tasks to 10,000 and to 20,000 nodes, within the paper's time")

// On small problems Search is compared with all maps: never better than possible, nearly always the
// best.
func TestSearchAgainstAllMaps(t *testing.T) {
	best, worst := 0, 1.0
	const cases = 400
	for seed := range uint64(cases) {
		p := randomProblem(rand.New(rand.NewPCG(seed, 2)), 6)
		least := rankedMap{nil, math.Inf(1), math.Inf(1)}
		everyMap(p, func(m Map) {
			if r := p.rank(m); r.compare(least) < 0 {
				least = r
			}
		})
		got := p.rank(Search(p, seed))
		switch ratio := got.time / least.time; {
		case ratio < 1-1e-9:
			t.Fatalf("seed %d: %v times the optimum: one of the two is wrong", seed, ratio)
		case ratio < 1+1e-9:
			best++
		default:
			worst = max(worst, ratio)
		}
	}
	t.Logf("optimal in %d of %d cases, at worst %.4f times the optimum", best, cases, worst)
	if best < cases*95/100 || worst > 1.5 {
		t.Errorf("optimal in %d of %d cases only, at worst %.4f times the optimum", best, cases, worst)
	}
}

func TestSearchOnAChain(t *testing.T) {
	for _, c := range []struct{ weight, want float64 }{{.01, 2.501}, {.1, 2.51}} {
		p := fastPair(c.weight)
		for seed := range uint64(10) {
			if got := p.Time(Search(p, seed)); math.Abs(got-c.want) > 1e-9 {
				t.Errorf("c=%g, seed %d: %g, want %g", c.weight, seed, got, c.want)
			}
		}
	}
}

// Search is never worse than what it starts from, and with alike nodes it finds the cut of SMa, which
// is small for a band.
func TestSearchIsNeverWorse(t *testing.T) {
	for seed := range uint64(40) {
		p := randomProblem(rand.New(rand.NewPCG(seed, 4)), 60)
		got := p.rank(Search(p, seed))
		for name, algorithm := range algorithms {
			if r := p.rank(algorithm(p, seed)); name != "aiacqm" && r.compare(got) < 0 {
				t.Errorf("seed %d: time %g, cut %g; %s has %g, %g", seed, got.time, got.cut, name, r.time, r.cut)
			}
		}
	}
	for seed := range uint64(40) {
		p := randomProblem(rand.New(rand.NewPCG(seed, 12)), 60)
		got := p.rank(Search(p, seed))
		for _, m := range growths(p) {
			if r := p.rank(m); r.compare(got) < 0 {
				t.Errorf("seed %d: time %g, cut %g; a growth has %g, %g", seed, got.time, got.cut, r.time, r.cut)
			}
		}
	}
	p := Problem{Band(64, 64, 5), grid(1, 30, 25, 20, 20, 18)}
	got := p.rank(Search(p, 1))
	t.Logf("64 tasks on 113 nodes: time %g, cut %g", got.time, got.cut)
	if r := p.rank(Simple(p)); got.compare(r) > 0 {
		t.Errorf("time %g, cut %g; sma has %g, %g", got.time, got.cut, r.time, r.cut)
	}
}

// large is a problem of so many tasks and nodes, which have powers 2, 4 and 8 and are in 20 clusters.
func large(tasks, nodes int) Problem {
	rng := rand.New(rand.NewPCG(1, 6))
	sizes := make([]int, 20)
	for i := range sizes {
		sizes[i] = nodes / 20
	}
	p := Problem{Band(tasks, tasks, 5), grid(1, sizes...)}
	for i := range p.Nodes.Power {
		p.Nodes.Power[i] = []float64{2, 4, 8}[rng.IntN(3)]
	}
	for i := range p.Nodes.Latency {
		for j := range i {
			l := 1e-3 * (5 + 20*rng.Float64())
			p.Nodes.Latency[i][j], p.Nodes.Latency[j][i] = l, l
		}
		p.Nodes.Latency[i][i] = 1e-4
	}
	return p
}

// cpuTime returns the processor time that this process has used: other programs make it longer than it needs to be, but
// not as much as the time of day.
func cpuTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// With -scale, as many tasks as the paper's QM was measured with: 6.35 s for 10,000 tasks on 2992 nodes. A node
// has one task here, so there are as many nodes as that takes, and twice as many. Only then are there limits, for the
// best of three runs: that time, and 10 s for auto, which looks for the least greatest time as QM does not. The
// parameters are those of the strategies.
func TestScale(t *testing.T) {
	const paper, search = 6350 * time.Millisecond, 10 * time.Second
	tasks := 1000
	if *scale {
		tasks = 10_000
	}
	for _, nodes := range []int{tasks, 2 * tasks} {
		p := large(tasks, nodes)
		for _, c := range []struct {
			name string
			most time.Duration
			run  func() Map
		}{
			{"sma", paper, func() Map { return Simple(p) }},
			{"fec", paper, func() Map { return EdgeCut(p, .5) }},
			{"aiacqm", paper, func() Map { return QuickMap(p, QuickMapOptions{Search: .5, Seed: 1}) }},
			{"auto", search, func() Map { return Search(p, 1) }},
		} {
			took := time.Duration(math.MaxInt64)
			for run := 0; run < 3 && (run == 0 || *scale && took > c.most); run++ {
				start := cpuTime(t)
				m := c.run()
				took = min(took, cpuTime(t)-start)
				t.Logf("%d tasks on %d nodes, %s: at best %.2f s; time %.4f, cut %g", tasks, nodes, c.name, took.Seconds(), p.Time(m), p.Cut(m))
				if err := p.CheckMap(m); err != nil {
					t.Error(err)
				}
			}
			if *scale && took > c.most {
				t.Errorf("%d tasks on %d nodes: %s takes %v at best, want at most %v", tasks, nodes, c.name, took, c.most)
			}
		}
	}
}
