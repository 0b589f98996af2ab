package paper

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/launch/mapping"
)

// Two tasks, and the two fast nodes are the smaller cluster: SMa has at best what there is without a mapping, and AIAC-QM
// twice the power or more.
func TestMapped(t *testing.T) {
	small := mapping.Testbed{Clusters: [][2]int{{3, 2}, {2, 8}}, Tasks: 2, Rows: 100_000}
	e := mapped(9, small, [3]float64{1, 2, 3}, "AIAC-QM", "SMa")
	m, err := e.measure(Options{}, context.Background())
	if err != nil {
		t.Fatal(err)
	}
	rows, err := e.judge(m.figures)
	if err != nil || len(rows) != 4*len(coreSeconds) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, seconds := range coreSeconds {
		of := rows[3*i:]
		order := rows[3*len(coreSeconds)+i]
		if of[0].Value > 0 || *of[0].Met || of[1].Value < 50 || !*of[1].Met || order.Value != of[1].Value-of[0].Value || !*order.Met {
			t.Errorf("%g s: %v %v", seconds, of[:3], order)
		}
	}
	ended, end := context.WithCancel(context.Background())
	end()
	if _, err := e.measure(Options{}, ended); err == nil {
		t.Error("it goes on after its context")
	}
}

// Table 1 is two systems on the same nodes: with ten times the rows SMa cuts fewer edges and gains more.
func TestSizes(t *testing.T) {
	e := sizes(mapping.Testbeds[5])
	m, err := e.measure(Options{}, context.Background())
	if err != nil {
		t.Fatal(err)
	}
	rows, err := e.judge(m.figures)
	if err != nil || len(rows) != 3*len(coreSeconds) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, seconds := range coreSeconds {
		of := rows[3*i:]
		if of[2].Value != of[1].Value-of[0].Value || of[0].Value == of[1].Value || !*of[2].Met {
			t.Errorf("%g s: %v", seconds, of[:3])
		}
	}
}

// Each task has a node of its own, of the cluster that the mapping means, whatever the order of the nodes.
func TestHostsOf(t *testing.T) {
	spec := liveSites()
	if err := spec.Check(); err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, site := range spec.Sites {
		for _, node := range site.Nodes {
			there[site.Name+"/"+node] = true
		}
	}
	for seed := range uint64(5) {
		p := liveProblem(seed)
		if p.Nodes.Latency[1][0] != liveProblem(0).Nodes.Latency[1][0] {
			t.Error("distances differ by seed")
		}
		for _, mapper := range liveMappers {
			m := mapper.of(p, seed)
			taken := map[string]bool{}
			for task, host := range hostsOf(p, m) {
				if want := fmt.Sprintf("s%d/", p.Nodes.Cluster[m[task]]+1); !there[host] || taken[host] || !strings.HasPrefix(host, want) {
					t.Errorf("%s: task %d at %s, want an unused node of %s", mapper.name, task, host, want)
				}
				taken[host] = true
			}
		}
	}
}

func TestLiveGains(t *testing.T) {
	of := liveGains([][]float64{{1, 1, 1}, {.9, .7, .8}, {.6, .5, .7}, {1.2, 1.1, 1.3}})
	if got := holds(t, "jace-live", of); !slices.Equal(got, []bool{true, true, false}) || math.Abs(of["AIAC-QM"]-40) > 1e-9 {
		t.Errorf("%v: %v", of, got)
	}
}

func TestParameters(t *testing.T) {
	names := []string{"AIAC-QM with f 0.1", "AIAC-QM with f 0.5", "AIAC-QM with f 0.9", "F-EC with delta 0.1", "F-EC with delta 0.5", "F-EC with delta 0.9"}
	table6 := parameters(mapping.Testbeds[4])
	for _, tc := range []struct {
		gains []float64
		want  []float64 // f, best, worst
		holds []bool
	}{
		{[]float64{30, 32, 30, 40, 37, 45}, []float64{2, 5, 3}, []bool{true, true, true}},
		{[]float64{30, 35, 30, 40, 41, 40}, []float64{5, -1, -1}, []bool{false, false, false}},
	} {
		of := figures{}
		for _, seconds := range coreSeconds {
			of[at(seconds)+"SMa"] = 30
			for i, name := range names {
				of[at(seconds)+name] = tc.gains[i]
			}
			ofParameters(of, at(seconds))
		}
		rows, err := table6.judge(of)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range rows[len(rows)-3:] {
			if r.Value != tc.want[i] || *r.Met != tc.holds[i] {
				t.Errorf("%v: %v", tc.gains, r)
			}
		}
	}
}
