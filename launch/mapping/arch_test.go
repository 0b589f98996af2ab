package mapping

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// archs are like the paper's architectures: as many nodes and cores, in clusters of nodes with 2, 4 and 8
// cores, whose sizes it does not say. Its heterogeneity degrees are of powers that it does not say either.
var archs = []struct {
	name         string
	nodes, cores int
	clusters     [][2]int // nodes, cores of each
	degree       float64
	graph        *Graph
	paper        [4]float64 // seconds: none, sma, aiacqm, fec
}{
	{"Arc1.1", 113, 440, [][2]int{{23, 2}, {23, 2}, {24, 4}, {23, 4}, {20, 8}}, 6.43, Band(64, 550_000, 35_000), [4]float64{150, 110, 101, 90}},
	{"Arc1.2", 213, 840, [][2]int{{41, 2}, {41, 2}, {47, 4}, {46, 4}, {38, 8}}, 6.49, Band(128, 5_000_000, 35_000), [4]float64{403, 265, 250, 218}},
	{"Arc2.1", 112, 394, [][2]int{{23, 2}, {22, 2}, {22, 2}, {25, 4}, {20, 8}}, 8.41, Band(64, 550_000, 35_000), [4]float64{498, 341, 273, 385}},
	{"Arc2.2", 212, 754, [][2]int{{41, 2}, {41, 2}, {41, 2}, {51, 4}, {38, 8}}, 8.44, Band(128, 5_000_000, 35_000), [4]float64{943, 594, 453, 660}},
}

// archProblem makes the nodes of an architecture, in an order that the seed shuffles: that in which they
// came. Nodes of a cluster are 0.1 ms apart, those of two 5 to 20 ms; an iteration takes a core 1 s.
func archProblem(at int, seed uint64) Problem {
	rng := rand.New(rand.NewPCG(seed, 11))
	clusters := archs[at].clusters
	sizes := make([]int, len(clusters))
	for c := range clusters {
		sizes[c] = clusters[c][0]
	}
	a := grid(1, sizes...)
	for node, c := range a.Cluster {
		a.Power[node] = float64(clusters[c][1])
	}
	for i := range a.Latency {
		a.Latency[i][i] = 1e-4
		for j := range i {
			l := (5 + 15*rng.Float64()) * 1e-3
			a.Latency[i][j], a.Latency[j][i] = l, l
		}
	}
	rng.Shuffle(len(a.Power), func(i, j int) {
		a.Power[i], a.Power[j] = a.Power[j], a.Power[i]
		a.Cluster[i], a.Cluster[j] = a.Cluster[j], a.Cluster[i]
	})
	return Problem{archs[at].graph, a}
}

func percent(ratio float64) string { return fmt.Sprintf("%.0f %%", 100*ratio) }

func median(all []float64) float64 {
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// The order of the algorithms by the medians of the model's time, beside the paper's measurements. The model
// does not say what the paper found for fec, which is only printed, as the degrees are.
func TestOrderOfTheAlgorithms(t *testing.T) {
	for at, arch := range archs {
		times, cuts := map[string][]float64{}, map[string][]float64{}
		for seed := range uint64(20) {
			p := archProblem(at, seed)
			cores := 0.0
			for _, power := range p.Nodes.Power {
				cores += power
			}
			if len(p.Nodes.Power) != arch.nodes || cores != float64(arch.cores) {
				t.Fatalf("%s: %d nodes, %g cores", arch.name, len(p.Nodes.Power), cores)
			}
			for name, m := range map[string]Map{
				"none": InOrder(p), "sma": Simple(p), "aiacqm": QuickMap(p, QuickMapOptions{Search: .5, Seed: seed}),
				"fec": EdgeCut(p, .5), "auto": Search(p, seed),
			} {
				times[name], cuts[name] = append(times[name], p.Time(m)), append(cuts[name], p.Cut(m))
			}
		}
		t.Logf("%s heterogeneity degree of the cores %.2f (paper: %.2f)", arch.name, archProblem(at, 0).Nodes.Degree(), arch.degree)
		row := map[string]float64{}
		for i, name := range []string{"none", "sma", "aiacqm", "fec", "auto"} {
			row[name] = median(times[name])
			paper := "-"
			if i < 4 {
				paper = percent(arch.paper[i] / arch.paper[0])
			}
			t.Logf("%s %-6s time %.4f, %s of none (paper: %s), cut %g", arch.name, name, row[name], percent(row[name]/row["none"]), paper, median(cuts[name]))
		}
		if row["auto"] > row["aiacqm"] || row["aiacqm"] > row["sma"] || row["sma"] > row["none"] {
			t.Errorf("%s: the order is not auto, aiacqm, sma, none", arch.name)
		}
	}
}
