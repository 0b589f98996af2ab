package mapping

import (
	"flag"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var scale = flag.Bool("scale", false, "map 10,000 tasks to 20,000 nodes")

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

// large is a problem of so many tasks, on twice as many nodes of powers 2, 4 and 8 in 20 clusters.
func large(tasks int) Problem {
	rng := rand.New(rand.NewPCG(1, 6))
	sizes := make([]int, 20)
	for i := range sizes {
		sizes[i] = tasks / 10
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

// The size at which the paper's QM was measured: 6.35 s for 10,000 tasks on 2992 nodes, without
// searching for the least greatest time.
func TestScale(t *testing.T) {
	tasks := 1000
	if *scale {
		tasks = 10_000
	}
	p := large(tasks)
	for _, c := range []struct {
		name string
		run  func(Problem, uint64) Map
	}{
		{"sma", algorithms["sma"]}, {"fec .1", algorithms["fec .1"]}, {"aiacqm", algorithms["aiacqm"]}, {"auto", algorithms["auto"]},
	} {
		start := time.Now()
		m := c.run(p, 1)
		t.Logf("%d tasks on %d nodes, %s: %.2f s; time %.4f, cut %g", tasks, 2*tasks, c.name, time.Since(start).Seconds(), p.Time(m), p.Cut(m))
		if err := p.CheckMap(m); err != nil {
			t.Error(err)
		}
	}
}
