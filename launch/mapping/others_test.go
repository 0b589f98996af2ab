package mapping

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var (
	gmap    = flag.String("gmap", "", "path of Scotch's gmap, to compare with")
	gpmetis = flag.String("gpmetis", "", "path of METIS' gpmetis, to compare with")
	seeds   = flag.Uint64("seeds", 20, "seeds for the comparison with them")
)

// A partitioner divides a graph into parts with the given weights, and returns the part of each task.
type partitioner func(t *testing.T, g *Graph, weights []int, seed uint64) []int

// byMETIS is gpmetis -tpwgts.
func byMETIS(t *testing.T, g *Graph, weights []int, seed uint64) []int {
	total := 0
	for _, w := range weights {
		total += w
	}
	var graph, target strings.Builder
	fmt.Fprintln(&graph, g.Tasks(), g.EdgeCount())
	for _, edges := range g.Edges {
		for _, e := range edges {
			fmt.Fprint(&graph, e.Task+1, " ")
		}
		graph.WriteByte('\n')
	}
	for part, w := range weights {
		fmt.Fprintf(&target, "%d = %g\n", part, float64(w)/float64(total))
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "g")
	write(t, file, graph.String())
	write(t, filepath.Join(dir, "t"), target.String())
	run(t, *gpmetis, "-tpwgts="+filepath.Join(dir, "t"), fmt.Sprint("-seed=", seed), "-ufactor=1", file, fmt.Sprint(len(weights)))
	return numbers(t, fmt.Sprint(file, ".part.", len(weights)))
}

// byScotch is gmap, to a complete target with weights. It takes no seed.
func byScotch(t *testing.T, g *Graph, weights []int, _ uint64) []int {
	var graph strings.Builder
	fmt.Fprintf(&graph, "0\n%d %d\n0 000\n", g.Tasks(), 2*g.EdgeCount())
	for _, edges := range g.Edges {
		fmt.Fprint(&graph, len(edges))
		for _, e := range edges {
			fmt.Fprint(&graph, " ", e.Task)
		}
		graph.WriteByte('\n')
	}
	dir := t.TempDir()
	in, target, out := filepath.Join(dir, "g"), filepath.Join(dir, "t"), filepath.Join(dir, "o")
	write(t, in, graph.String())
	write(t, target, fmt.Sprintf("cmpltw %d %s\n", len(weights), strings.Trim(fmt.Sprint(weights), "[]")))
	run(t, *gmap, in, target, out, "-B0.001")
	lines := numbers(t, out)[1:]
	parts := make([]int, g.Tasks())
	for i := 0; i < len(lines); i += 2 {
		parts[lines[i]] = lines[i+1]
	}
	return parts
}

func write(t *testing.T, file, text string) {
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, program string, args ...string) {
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
}

// numbers reads all numbers of a file.
func numbers(t *testing.T, file string) (all []int) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	words := bufio.NewScanner(bytes.NewReader(text))
	words.Split(bufio.ScanWords)
	for words.Scan() {
		n := 0
		if _, err := fmt.Sscan(words.Text(), &n); err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	return all
}

// bestOf returns the best map by a partitioner that knows clusters by their weights: the number or the power of
// their nodes of some least power. Tasks for which a cluster has no node go where there is one, and
// within the clusters the nodes are chosen as for Search.
func bestOf(t *testing.T, p Problem, by partitioner, seed uint64) rankedMap {
	best := p.rank(polish(p, InOrder(p)))
	for _, least := range leastPowers(p) {
		for _, usePower := range []bool{false, true} {
			weights := make([]int, len(p.Nodes.Latency))
			for node, c := range p.Nodes.Cluster {
				switch {
				case p.Nodes.Power[node] < least:
				case usePower:
					weights[c] += int(p.Nodes.Power[node])
				default:
					weights[c]++
				}
			}
			used := usedClusters(weights)
			ordered := make([]int, len(used))
			for i, c := range used {
				ordered[i] = weights[c]
			}
			parts := by(t, p.Graph, ordered, seed)
			for i := range parts {
				parts[i] = used[parts[i]]
			}
			if r := p.rank(polish(p, seat(p, parts))); r.compare(best) < 0 {
				best = r
			}
		}
	}
	return best
}

// usedClusters returns the clusters that have a weight.
func usedClusters(weights []int) (used []int) {
	for c, w := range weights {
		if w > 0 {
			used = append(used, c)
		}
	}
	return used
}

// seat gives each task a node of its cluster while there is one.
func seat(p Problem, parts []int) Map {
	free := p.Nodes.clusters()
	for _, nodes := range free {
		slices.SortStableFunc(nodes, func(a, b int) int { return int(p.Nodes.Power[b] - p.Nodes.Power[a]) })
	}
	m := make(Map, len(parts))
	var left []int
	for task, c := range parts {
		if len(free[c]) == 0 {
			left = append(left, task)
			continue
		}
		m[task], free[c] = free[c][0], free[c][1:]
	}
	for _, task := range left {
		best := -1
		for c := range free {
			if len(free[c]) > 0 && (best < 0 || p.Nodes.Power[free[c][0]] > p.Nodes.Power[free[best][0]]) {
				best = c
			}
		}
		m[task], free[best] = free[best][0], free[best][1:]
	}
	return m
}

// The medians of auto are not above the better ones of Scotch and METIS. Both know weights of clusters, but
// neither powers of nodes nor latencies.
func TestScotchAndMETIS(t *testing.T) {
	if *gmap == "" || *gpmetis == "" {
		t.Skip("needs -gmap and -gpmetis")
	}
	for _, b := range Testbeds {
		times, cuts := map[string][]float64{}, map[string][]float64{}
		for seed := range *seeds {
			p := b.Problem(seed)
			for name, r := range map[string]rankedMap{"auto": p.rank(Search(p, seed)), "gmap": bestOf(t, p, byScotch, seed), "gpmetis": bestOf(t, p, byMETIS, seed)} {
				times[name], cuts[name] = append(times[name], r.time), append(cuts[name], r.cut)
			}
		}
		auto := median(times["auto"])
		others := min(median(times["gmap"]), median(times["gpmetis"]))
		for _, name := range []string{"auto", "gmap", "gpmetis"} {
			t.Logf("%s %-7s time %.4f, cut %g", b.Name, name, median(times[name]), median(cuts[name]))
		}
		if auto > others {
			t.Errorf("%s: auto's time is %.4f, the better of the others %.4f", b.Name, auto, others)
		}
	}
}
