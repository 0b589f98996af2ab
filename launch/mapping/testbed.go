package mapping

import "math/rand/v2"

// A Testbed is nodes and a program like those of the article's measurements: as many nodes and cores, in clusters of
// nodes with 2, 4 and 8 cores, whose sizes the article does not say.
type Testbed struct {
	Name        string
	Clusters    [][2]int // nodes, and cores of each
	Tasks, Rows int
}

// Testbeds are those of tables 2 to 6, in this order, and of table 1.
var Testbeds = []Testbed{
	{"Arc1.1", [][2]int{{23, 2}, {23, 2}, {24, 4}, {23, 4}, {20, 8}}, 64, 550_000},
	{"Arc1.2", [][2]int{{41, 2}, {41, 2}, {47, 4}, {46, 4}, {38, 8}}, 128, 5_000_000},
	{"Arc2.1", [][2]int{{23, 2}, {22, 2}, {22, 2}, {25, 4}, {20, 8}}, 64, 550_000},
	{"Arc2.2", [][2]int{{41, 2}, {41, 2}, {41, 2}, {51, 4}, {38, 8}}, 128, 5_000_000},
	{"parameters", [][2]int{{19, 2}, {18, 2}, {31, 4}, {31, 4}, {23, 8}}, 64, 550_000},
	{"sizes", [][2]int{{22, 2}, {21, 2}, {21, 2}, {28, 4}, {10, 8}}, 64, 550_000},
}

// Problem returns the program's tasks and the nodes in an order that the seed shuffles: that in which they came. Nodes of
// a cluster are 0.1 ms apart, those of two 5 to 20 ms; an iteration takes a core 1 s.
func (b Testbed) Problem(seed uint64) Problem {
	rng := rand.New(rand.NewPCG(seed, 11))
	a := &Architecture{Latency: make([][]float64, len(b.Clusters))}
	for c, nodes := range b.Clusters {
		for range nodes[0] {
			a.Power, a.Cluster = append(a.Power, float64(nodes[1])), append(a.Cluster, c)
		}
		a.Latency[c] = make([]float64, len(b.Clusters))
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
	return Problem{Band(b.Tasks, b.Rows, 35_000), a}
}
