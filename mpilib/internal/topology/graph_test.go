package topology

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// 8.5.3, the standard's example: four processes and their adjacency lists.
func TestGraph(t *testing.T) {
	lists := [][]int{{1, 3}, {0}, {3}, {0, 2}}
	g := must(NewGraph(6, []int{2, 3, 4, 6}, []int{1, 3, 0, 3, 0, 2}))
	if g.Size() != 4 || !slices.Equal(g.Index(), []int{2, 3, 4, 6}) || !slices.Equal(g.Edges(), []int{1, 3, 0, 3, 0, 2}) {
		t.Errorf("a graph of %d nodes, %v %v", g.Size(), g.Index(), g.Edges())
	}
	for rank, want := range lists {
		if got := must(g.Neighbours(rank)); !slices.Equal(got, want) {
			t.Errorf("neighbours of %d: %v, want %v", rank, got, want)
		}
	}
	if g := must(NewGraph(3, nil, nil)); g.Size() != 0 {
		t.Errorf("a graph without nodes has %d", g.Size())
	}
}

// 8.5.3: loops, parallel edges and edges of one direction are allowed, and neighbours keep the
// multiplicity and order in which they were given.
func TestGraphLoopsAndParallels(t *testing.T) {
	g := must(NewGraph(3, []int{4, 6, 6}, []int{1, 0, 1, 0, 0, 0}))
	if got := must(g.Neighbours(0)); !slices.Equal(got, []int{1, 0, 1, 0}) {
		t.Errorf("neighbours of 0: %v", got)
	}
	n := must(g.Neighbourhood(0))
	if want := []Neighbour{{1, 0}, {0, 0}, {1, 1}, {0, 1}}; !slices.Equal(n.Out, want) || !slices.Equal(n.In, want) {
		t.Errorf("neighbourhood %v, want both ways %v", n, want)
	}
}

func TestGraphRefuses(t *testing.T) {
	for _, c := range []struct {
		procs        int
		index, edges []int
		kind         error
		says         string
	}{
		{1, []int{1, 2}, []int{1, 0}, ErrArg, "a graph of 2 nodes needs more than the 1 processes"},
		{3, []int{2, 1, 2}, []int{1, 0}, ErrArg, "index[1] = 1"},
		{3, []int{-1, 2}, []int{1, 0}, ErrArg, "index[0] = -1"},
		{3, []int{1, 3}, []int{1, 0}, ErrArg, "index counts 3 edges, and there are 2"},
		{3, nil, []int{0}, ErrArg, "index counts 0 edges, and there are 1"},
		{3, []int{math.MaxInt}, []int{0}, ErrArg, "edges, and there are 1"},
		{3, []int{1, 2}, []int{1, 2}, ErrRank, "edges[1] = 2: no such rank: the graph has 2 nodes"},
		{3, []int{1, 2}, []int{-1, 0}, ErrRank, "edges[0] = -1"},
	} {
		_, err := NewGraph(c.procs, c.index, c.edges)
		refused(t, err, c.kind, "topology: NewGraph: ", c.says)
	}
	g := must(NewGraph(3, []int{1, 2}, []int{1, 0}))
	for _, rank := range []int{-1, 2} {
		_, err := g.Neighbours(rank)
		refused(t, err, ErrRank, "the graph has 2 nodes")
		_, err = g.Neighbourhood(rank)
		refused(t, err, ErrRank, "the graph has 2 nodes")
	}
}

// contribution is what one process gives to MPI_Dist_graph_create.
type contribution struct{ sources, degrees, dests, weights []int }

// 8.5.4 at random: the general form gives every process the edges that any process contributed,
// with weights, and parallel edges pair up in order.
func TestDistGraphGeneral(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(8, seed))
		procs, weighted := 1+rng.IntN(6), seed%3 > 0
		var all, oracle []Edge
		for range procs {
			c, edges := contribute(rng, procs, weighted)
			got, err := EdgesOf(procs, c.sources, c.degrees, c.dests, c.weights)
			if err != nil || !slices.Equal(got, edges) {
				t.Fatalf("seed %d: %v gives %v, %v, want %v", seed, c, got, err, edges)
			}
			all, oracle = append(all, got...), append(oracle, edges...)
		}
		var parts []*DistGraph
		for rank := range procs {
			parts = append(parts, Collect(rank, all, weighted))
		}
		// Every edge of the oracle appears at both ends, and nothing else.
		var in, out []Edge
		for rank, g := range parts {
			sources, weights := g.Sources()
			for i, s := range sources {
				in = append(in, Edge{s, rank, weight(weights, i)})
			}
			dests, weights := g.Dests()
			for i, d := range dests {
				out = append(out, Edge{rank, d, weight(weights, i)})
			}
			if g.Rank() != rank {
				t.Fatalf("seed %d: rank %d says %d", seed, rank, g.Rank())
			}
		}
		for _, list := range [][]Edge{oracle, in, out} {
			slices.SortFunc(list, compareEdges)
		}
		if !slices.Equal(in, oracle) || !slices.Equal(out, oracle) {
			t.Fatalf("seed %d: in %v, out %v, want %v", seed, in, out, oracle)
		}
		checkPaired(t, parts)
	}
}

// checkPaired follows every message of a neighbourhood exchange: it can arrive in exactly one
// block, and both ends of the edge have one weight (8.6).
func checkPaired(t *testing.T, parts []*DistGraph) {
	t.Helper()
	arrivals := 0
	for _, g := range parts {
		_, sent := g.Dests()
		for i, to := range g.Neighbourhood().Out {
			theirs := parts[to.Rank].Neighbourhood().In
			at := slices.Index(theirs, Neighbour{g.Rank(), to.Slot})
			if at < 0 {
				t.Fatalf("nobody expects what %d sends to %v", g.Rank(), to)
			}
			if _, expected := parts[to.Rank].Sources(); weight(expected, at) != weight(sent, i) {
				t.Fatalf("an edge from %d to %d weighs %d and %d", g.Rank(), to.Rank, weight(sent, i), weight(expected, at))
			}
			arrivals++
		}
	}
	for _, g := range parts {
		arrivals -= len(g.sources)
	}
	if arrivals != 0 {
		t.Fatalf("%d messages more are sent than expected", arrivals)
	}
}

func contribute(rng *rand.Rand, procs int, weighted bool) (c contribution, edges []Edge) {
	edges = []Edge{}
	if weighted {
		c.weights = []int{}
	}
	for range rng.IntN(4) {
		source, degree := rng.IntN(procs), rng.IntN(4)
		c.sources, c.degrees = append(c.sources, source), append(c.degrees, degree)
		for range degree {
			e := Edge{Source: source, Dest: rng.IntN(procs)}
			if weighted {
				e.Weight = rng.IntN(3)
				c.weights = append(c.weights, e.Weight)
			}
			c.dests = append(c.dests, e.Dest)
			edges = append(edges, e)
		}
	}
	return c, edges
}

func compareEdges(a, b Edge) int {
	return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Dest, b.Dest), cmp.Compare(a.Weight, b.Weight))
}

// 8.5.5: the adjacent form keeps the order of the call.
func TestAdjacent(t *testing.T) {
	sources, dests := []int{3, 1, 1, 2}, []int{2, 0, 2}
	g := must(Adjacent(4, 2, sources, []int{5, 6, 7, 8}, dests, []int{8, 0, 9}))
	gotSources, gotWeights := g.Sources()
	if !slices.Equal(gotSources, sources) || !slices.Equal(gotWeights, []int{5, 6, 7, 8}) {
		t.Errorf("sources %v weigh %v", gotSources, gotWeights)
	}
	gotDests, gotWeights := g.Dests()
	if !slices.Equal(gotDests, dests) || !slices.Equal(gotWeights, []int{8, 0, 9}) {
		t.Errorf("dests %v weigh %v", gotDests, gotWeights)
	}
	n := g.Neighbourhood()
	if want := []Neighbour{{3, 0}, {1, 0}, {1, 1}, {2, 0}}; !slices.Equal(n.In, want) {
		t.Errorf("in %v, want %v", n.In, want)
	}
	if want := []Neighbour{{2, 0}, {0, 0}, {2, 1}}; !slices.Equal(n.Out, want) {
		t.Errorf("out %v, want %v", n.Out, want)
	}
	gotDests[0] = 99
	if again, _ := g.Dests(); again[0] != 2 {
		t.Error("the caller's copy is the graph's own")
	}
}

func TestDistGraphRefuses(t *testing.T) {
	for _, c := range []struct {
		procs, rank            int
		sources, sw, dests, dw []int
		kind                   error
		says                   string
	}{
		{4, 4, nil, nil, nil, nil, ErrRank, "rank 4"},
		{4, -1, nil, nil, nil, nil, ErrRank, "rank -1"},
		{0, 0, nil, nil, nil, nil, ErrRank, "there are 0 processes"},
		{4, 0, []int{1, 4}, nil, nil, nil, ErrRank, "sources[1] = 4"},
		{4, 0, nil, nil, []int{ProcNull}, nil, ErrRank, "dests[0] = -2"},
		{4, 0, []int{1}, []int{1}, []int{1}, nil, ErrArg, "0 weights for 1 dests"},
		{4, 0, []int{1}, nil, []int{1}, []int{1}, ErrArg, "0 weights for 1 sources"},
		{4, 0, []int{1}, []int{1, 2}, nil, nil, ErrArg, "2 weights for 1 sources"},
		{4, 0, nil, nil, []int{1, 2}, []int{3, -1}, ErrArg, "weight 1 of dests: invalid argument: -1 is negative"},
	} {
		_, err := Adjacent(c.procs, c.rank, c.sources, c.sw, c.dests, c.dw)
		refused(t, err, c.kind, "topology: Adjacent: ", c.says)
	}
	for _, c := range []struct {
		contribution
		kind error
		says string
	}{
		{contribution{[]int{0}, nil, nil, nil}, ErrArg, "0 degrees for 1 sources"},
		{contribution{[]int{0}, []int{-1}, nil, nil}, ErrArg, "degrees[0] = -1"},
		{contribution{[]int{0, 1}, []int{1, 2}, []int{2, 3}, nil}, ErrArg, "degrees[1] = 2: invalid argument: 1 of 2 dests are left"},
		{contribution{[]int{0, 1}, []int{1, math.MaxInt}, []int{2, 3}, nil}, ErrArg, "degrees[1]"},
		{contribution{[]int{0}, []int{1}, []int{2, 3}, nil}, ErrArg, "the degrees count 1 edges, and there are 2 dests"},
		{contribution{[]int{9}, []int{1}, []int{2}, nil}, ErrRank, "sources[0] = 9"},
		{contribution{[]int{0}, []int{1}, []int{-3}, nil}, ErrRank, "dests[0] = -3"},
		{contribution{[]int{0}, []int{1}, []int{2}, []int{}}, ErrArg, "0 weights for 1 dests"},
		{contribution{[]int{0}, []int{1}, []int{2}, []int{-7}}, ErrArg, "-7 is negative"},
	} {
		_, err := EdgesOf(4, c.sources, c.degrees, c.dests, c.weights)
		refused(t, err, c.kind, "topology: EdgesOf: ", c.says)
	}
}

// No argument makes a graph's constructor panic.
func FuzzGraphs(f *testing.F) {
	f.Add(4, 1, []byte{1, 2, 3}, []byte{1, 0, 2}, []byte{0, 1})
	f.Fuzz(func(t *testing.T, procs, rank int, a, b, c []byte) {
		signed := func(bytes []byte) []int {
			var list []int
			for _, x := range bytes {
				list = append(list, int(int8(x)))
			}
			return list
		}
		if g, err := NewGraph(procs, signed(a), signed(b)); err == nil {
			g.Neighbourhood(rank)
			if sites := signed(c); len(sites) >= g.Size() {
				checkMapping(t, fmt.Sprint(a, b), must(g.Reorder(sites)), sites, g.Size(), g.neighbours)
			}
		}
		Adjacent(procs, rank, signed(a), signed(b), signed(c), signed(b))
		EdgesOf(procs, signed(a), signed(b), signed(c), nil)
	})
}

func weight(weights []int, i int) int {
	if weights == nil {
		return 0
	}
	return weights[i]
}
