package mapping

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/internal/testload"
)

// grid makes clusters of the given sizes: all nodes of one power, within a cluster 0.1 apart, else 10.
func grid(power float64, sizes ...int) *Architecture {
	a := &Architecture{}
	for c, size := range sizes {
		row := make([]float64, len(sizes))
		for d := range row {
			row[d] = 10
		}
		row[c] = .1
		a.Latency = append(a.Latency, row)
		for range size {
			a.Power, a.Cluster = append(a.Power, power), append(a.Cluster, c)
		}
	}
	return a
}

// The model: a task of cost 10 and three neighbours with c = 2, on a node of power 5.
func TestTimeOfATask(t *testing.T) {
	g := &Graph{[]float64{10, 0, 0, 0}, [][]Edge{{{1, 2}, {2, 2}, {3, 2}}, {{0, 2}}, {{0, 2}}, {{0, 2}}}}
	for _, c := range []struct {
		latency []float64
		want    float64
	}{{[]float64{1, 1, 1}, 8}, {[]float64{.5, 1, 2}, 9}} {
		a := &Architecture{Power: []float64{5, 1, 1, 1}, Cluster: []int{0, 1, 2, 3}, Latency: make([][]float64, 4)}
		for i := range a.Latency {
			a.Latency[i] = make([]float64, 4)
		}
		for i, l := range c.latency {
			a.Latency[0][i+1], a.Latency[i+1][0] = l, l
		}
		p := Problem{g, a}
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		m := InOrder(p)
		if got := p.TaskTime(m, 0); got != c.want {
			t.Errorf("latencies %v: %g, want %g", c.latency, got, c.want)
		}
		if got := p.Time(m); got != c.want {
			t.Errorf("latencies %v: ET of the application is %g, want %g", c.latency, got, c.want)
		}
	}
}

// Nine tasks, clusters A of 3 nodes, B of 5, C of 4: tasks 0 to 4 on B, the others on C.
func TestSimple(t *testing.T) {
	p := Problem{Band(9, 9, 1), grid(1, 3, 5, 4)}
	if got := Simple(p); !slices.Equal(got, Map{3, 4, 5, 6, 7, 8, 9, 10, 11}) {
		t.Errorf("%v", got)
	}
}

// Of clusters of the same size the one with the lower number comes first, here B of A 3, B 5, C 5.
func TestSimpleBreaksTies(t *testing.T) {
	p := Problem{Band(9, 9, 1), grid(1, 3, 5, 5)}
	if got := Simple(p); !slices.Equal(got, Map{3, 4, 5, 6, 7, 8, 9, 10, 11}) {
		t.Errorf("%v", got)
	}
}

// 64 tasks that talk to the five before and after, clusters of 30, 25, 20, 20 and 18 nodes.
func TestCuts(t *testing.T) {
	p := Problem{Band(64, 64, 5), grid(1, 30, 25, 20, 20, 18)}
	if n := p.Graph.EdgeCount(); n != 305 {
		t.Fatalf("%d edges, want 305", n)
	}
	for _, c := range []struct {
		name string
		m    Map
		want float64
	}{
		{"sma", Simple(p), 30},
		{"fec .1", EdgeCut(p, .1), 30},
		{"fec .5", EdgeCut(p, .5), 42},
		{"fec .9", EdgeCut(p, .9), 60},
	} {
		if err := p.CheckMap(c.m); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := p.Cut(c.m); got != c.want {
			t.Errorf("%s: cut %g, want %g", c.name, got, c.want)
		}
	}
}

// The paper's bandwidth of 35,000: 10 neighbours and 5 at the ends with 64 tasks of 550,000 rows; 2 with
// 128 of 5,000,000, although the paper says 10 to 25 of both.
func TestNeighbours(t *testing.T) {
	for _, c := range []struct{ tasks, rows, inside, end int }{{64, 550_000, 10, 5}, {128, 5_000_000, 2, 1}} {
		g := Band(c.tasks, c.rows, 35_000)
		if got, end := len(g.Edges[c.tasks/2]), len(g.Edges[0]); got != c.inside || end != c.end || len(g.Edges[c.tasks-1]) != end {
			t.Errorf("%d tasks of %d rows: %d neighbours, %d at the ends; want %d, %d", c.tasks, c.rows, got, end, c.inside, c.end)
		}
	}
}

// The percentages of tables 1 to 5 are those of their times, rounded or cut off.
func TestGainsOfThePaper(t *testing.T) {
	for _, c := range []struct{ table, none, with, percent int }{
		{1, 141, 97, 31}, {1, 129, 81, 37},
		{2, 150, 110, 27}, {2, 150, 101, 33}, {2, 150, 90, 40},
		{3, 403, 265, 34}, {3, 403, 250, 38}, {3, 403, 218, 46},
		{4, 498, 341, 32}, {4, 498, 273, 45}, {4, 498, 385, 23},
		{5, 943, 594, 37}, {5, 943, 453, 52}, {5, 943, 660, 30},
	} {
		if got := 100 * (1 - float64(c.with)/float64(c.none)); math.Abs(got-float64(c.percent)) > 1 {
			t.Errorf("table %d: %d s in place of %d s is %.2f %%, the table says %d", c.table, c.with, c.none, got, c.percent)
		}
	}
}

// randomProblem makes a problem with up to so many nodes.
func randomProblem(rng *rand.Rand, nodes int) Problem {
	sizes := []int{}
	left := 1 + rng.IntN(nodes)
	for left > 0 {
		n := 1 + rng.IntN(left)
		sizes, left = append(sizes, n), left-n
	}
	a := grid(1, sizes...)
	for i := range a.Power {
		a.Power[i] = float64(1 + rng.IntN(4))
	}
	for i := range a.Latency {
		for j := range i {
			l := 1 + 20*rng.Float64()
			a.Latency[i][j], a.Latency[j][i] = l, l
		}
	}
	tasks := 1 + rng.IntN(len(a.Power))
	g := &Graph{make([]float64, tasks), make([][]Edge, tasks)}
	for t := range tasks {
		g.Cost[t] = float64(1 + rng.IntN(10))
		for u := range t {
			if rng.IntN(3) == 0 {
				w := rng.Float64() / 2
				g.Edges[t], g.Edges[u] = append(g.Edges[t], Edge{u, w}), append(g.Edges[u], Edge{t, w})
			}
		}
	}
	return Problem{g, a}
}

// algorithms are all, with the parameters of the paper.
var algorithms = map[string]func(Problem, uint64) Map{
	"none":   func(p Problem, _ uint64) Map { return InOrder(p) },
	"sma":    func(p Problem, _ uint64) Map { return Simple(p) },
	"fec .1": func(p Problem, _ uint64) Map { return EdgeCut(p, .1) },
	"aiacqm": func(p Problem, seed uint64) Map {
		return QuickMap(p, QuickMapOptions{Search: .5, Distance: 5, Seed: seed})
	},
	"auto":  Search,
	"fec 1": func(p Problem, _ uint64) Map { return EdgeCut(p, 1) },
}

// Whatever the problem: no node gets two tasks, every task gets one, and the same seed gives
// the same map.
func TestMapsAreValid(t *testing.T) {
	seeds := uint64(60)
	if testload.Full() {
		seeds = 500
	}
	for seed := range seeds {
		p := randomProblem(rand.New(rand.NewPCG(seed, 3)), 30)
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		for name, algorithm := range algorithms {
			m := algorithm(p, seed)
			if err := p.CheckMap(m); err != nil {
				t.Fatalf("%s, seed %d: %v", name, seed, err)
			}
			if again := algorithm(p, seed); !slices.Equal(m, again) {
				t.Fatalf("%s, seed %d: %v, and then %v", name, seed, m, again)
			}
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for name, change := range map[string]func(p *Problem){
		"too few nodes":     func(p *Problem) { p.Graph = Band(5, 5, 1) },
		"no power":          func(p *Problem) { p.Nodes.Power[1] = 0 },
		"power of NaN":      func(p *Problem) { p.Nodes.Power[1] = math.NaN() },
		"no such cluster":   func(p *Problem) { p.Nodes.Cluster[1] = 2 },
		"powers missing":    func(p *Problem) { p.Nodes.Power = p.Nodes.Power[1:] },
		"latencies missing": func(p *Problem) { p.Nodes.Latency[1] = p.Nodes.Latency[1][1:] },
		"one way":           func(p *Problem) { p.Nodes.Latency[1][0]++ },
		"negative":          func(p *Problem) { p.Nodes.Latency[1][1] = -1 },
	} {
		p := Problem{Band(4, 4, 1), grid(1, 2, 2)}
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		if change(&p); p.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	p := Problem{Band(3, 3, 1), grid(1, 2, 2)}
	for _, m := range []Map{{0, 1}, {0, 1, 1}, {0, 1, 4}, {0, 1, -1}} {
		if p.CheckMap(m) == nil {
			t.Errorf("%s is a map of 3 tasks", fmt.Sprint(m))
		}
	}
}
