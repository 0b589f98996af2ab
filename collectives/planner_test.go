package collectives_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/collectives"
	"github.com/isthmus-grid/isthmus/collectives/operation"
	"github.com/isthmus-grid/isthmus/collectives/schedule"
)

func planner(t *testing.T, rank, size int, l collectives.Layout) *collectives.Planner {
	t.Helper()
	p, err := collectives.NewPlanner(rank, size, l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sites places n ranks at each of s sites, consecutively or dealt round robin.
func sites(s, n int, dealt bool) collectives.Layout {
	return places(s*n, func(r int) (site, node int) {
		if dealt {
			return r % s, r % s
		}
		return r / n, r / n
	})
}

// Between sites the choice agrees with the model's arithmetic, wherever the ranks are.
func TestChooseApart(t *testing.T) {
	model := collectives.DefaultModel()
	model.InterSite = schedule.Path{Latency: 10 * time.Millisecond, Rate: 125e6, Each: 5 * time.Microsecond}
	for _, tt := range []struct {
		collective operation.Operation
		bytes      int
		want       []string // without flits
	}{
		{operation.Barrier, 0, []string{"two-level"}},
		{operation.Bcast, 8, []string{"two-level"}},
		{operation.Bcast, 4 << 20, []string{"two-hop"}},
		{operation.Reduce, 4 << 20, []string{"two-hop"}},
		{operation.Allreduce, 8, []string{"two-level"}},
		{operation.Allreduce, 16 << 20, []string{"two-step", "mixed"}},
		{operation.Allgather, 64 << 10, []string{"full-lane", "two-level"}},
		{operation.Alltoall, 8, []string{"two-level", "pairwise"}},
		{operation.Alltoall, 1 << 20, []string{"pairwise", "two-level"}},
		{operation.Gather, 4 << 20, []string{"linear", "two-level"}},
		{operation.Scatter, 4 << 20, []string{"linear", "two-level", "binomial"}},
		{operation.ReduceScatterBlock, 8, []string{"two-level"}},
	} {
		for _, dealt := range []bool{false, true} {
			if !*every && (dealt || tt.bytes > 4<<20) {
				continue // as long vectors as these take long to predict
			}
			p := planner(t, 3, 16, sites(4, 4, dealt))
			p.SetModel(model)
			c, err := p.Choose(tt.collective, collectives.Shape{Bytes: tt.bytes, Commutative: true, Elem: 8})
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(c.Algorithm.Name, ":")
			if !slices.Contains(tt.want, name) {
				t.Errorf("%s of %d bytes, dealt %v: %s, want one of %v", tt.collective, tt.bytes, dealt, c.Algorithm.Name, tt.want)
			}
		}
	}
}

// Vectors longer than a connection's window go over several connections, and among algorithms
// predicted to take as long the one that sends less between sites is chosen.
func TestChooseConnections(t *testing.T) {
	model := collectives.DefaultModel()
	model.InterSite.Latency = 4 * time.Millisecond
	for _, tt := range []struct {
		collective operation.Operation
		bytes      int
		window     int
		want       string // prefix
	}{
		{operation.Bcast, 64 << 10, model.InterSite.Window, "full-lane"},
		{operation.Reduce, 64 << 10, model.InterSite.Window, "full-lane"},
		{operation.Allreduce, 64 << 10, model.InterSite.Window, "full-lane"},
		{operation.Scan, 64 << 10, model.InterSite.Window, "full-lane"},
		{operation.Bcast, 4 << 10, model.InterSite.Window, "binomial"},
		{operation.Bcast, 64 << 10, 0, "binomial"},
		{operation.Scan, 64 << 10, 0, "chain"},
		{operation.ReduceScatterBlock, 64 << 10, model.InterSite.Window, "full-lane"}, // pairwise takes as long, and sends four times as much
	} {
		p := planner(t, 0, 8, sites(2, 4, false))
		m := *model
		m.InterSite.Window = tt.window
		p.SetModel(&m)
		c, err := p.Choose(tt.collective, collectives.Shape{Bytes: tt.bytes, Commutative: true, Elem: 8})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(c.Algorithm.Name, tt.want) {
			t.Errorf("%s of %d bytes, window %d: %s, want %s", tt.collective, tt.bytes, tt.window, c.Algorithm.Name, tt.want)
		}
	}
}

// The choice is near the minimum time given by the formulas of the algorithms' comments.
func TestPredictions(t *testing.T) {
	const latency, rate = 10e-3, 125e6
	model := collectives.DefaultModel()
	model.InterSite = schedule.Path{Latency: 10 * time.Millisecond, Rate: rate}
	for _, tt := range []struct {
		collective operation.Operation
		bytes      int
		bound      float64 // seconds, 4 sites of 4
	}{
		{operation.Barrier, 0, latency},
		{operation.Bcast, 1 << 20, latency + (1<<20)/rate},
		{operation.Bcast, 64 << 20, latency + (64<<20)/rate},
		{operation.Reduce, 64 << 20, latency + (64<<20)/rate},
		{operation.Allreduce, 8, latency},
		{operation.Allreduce, 1 << 20, max(latency, 1.5*(1<<20)/rate)},
		{operation.Allreduce, 64 << 20, 1.5 * (64 << 20) / rate},
		{operation.Allgather, 64 << 10, latency + 12*(64<<10)/rate},
		{operation.Alltoall, 4 << 10, latency + 48*(4<<10)/rate},
		{operation.Gather, 1 << 20, latency + 12*(1<<20)/rate},
		{operation.Scatter, 1 << 20, latency + 12*(1<<20)/rate},
		{operation.ReduceScatter, 16 << 20, latency + 0.75*(16<<20)/rate},
		{operation.Scan, 8, latency},
	} {
		for _, dealt := range []bool{false, true} {
			if !*every && (dealt || tt.bytes > 1<<20) {
				continue // as long vectors as these take long to predict
			}
			p := planner(t, 0, 16, sites(4, 4, dealt))
			p.SetModel(model)
			c, err := p.Choose(tt.collective, collectives.Shape{Bytes: tt.bytes, Commutative: true, Elem: 8})
			if err != nil {
				t.Fatal(err)
			}
			got := c.Predicted.Seconds() / tt.bound
			t.Logf("%s of %d bytes, dealt %v: %s, %.2f times the bound", tt.collective, tt.bytes, dealt, c.Algorithm.Name, got)
			if got < 0.99 || got > 2.2 {
				t.Errorf("%s of %d bytes, dealt %v: %s is thought to take %.2f times the bound", tt.collective, tt.bytes, dealt, c.Algorithm.Name, got)
			}
		}
	}
}

// All ranks choose alike, and forcing and corrections take effect.
func TestPlanner(t *testing.T) {
	const size = 17
	l := layouts["random"](size)
	shape := collectives.Shape{Bytes: 100_000, Commutative: true, Elem: 4, Root: 5}
	var first string
	for _, collective := range collectives.Operations() {
		for rank := range size {
			c, err := planner(t, rank, size, l).Choose(collective, shape)
			if err != nil {
				t.Fatal(err)
			}
			if rank == 0 {
				first = c.Algorithm.Name
			}
			if c.Algorithm.Name != first {
				t.Fatalf("%s: rank %d chooses %s, rank 0 %s", collective, rank, c.Algorithm.Name, first)
			}
			if rank == 2 {
				break // the first ones suffice, and the last
			}
		}
	}
	p := planner(t, 0, size, l)
	best, err := p.Choose(operation.Bcast, shape)
	if err != nil || best.Predicted == 0 {
		t.Fatal(best, err)
	}
	model := *p.Model()
	model.Learned = map[string]float64{collectives.LearnedKey(operation.Bcast, best.Algorithm.Name, shape.Bytes): 1000}
	p.SetModel(&model)
	if c, _ := p.Choose(operation.Bcast, shape); c.Algorithm.Name == best.Algorithm.Name {
		t.Errorf("%s is chosen though it takes a thousand times as long", c.Algorithm.Name)
	}
	if err := p.ForceAll("bcast=two-level:8, scan=two-level"); err != nil {
		t.Fatal(err)
	}
	if c, _ := p.Choose(operation.Bcast, shape); c.Algorithm.Name != "two-level:8" || c.Algorithm.Flits != 8 {
		t.Errorf("forced, yet %+v", c)
	}
	if c, _ := p.Choose(operation.Scan, shape); c.Algorithm.Name == "two-level" {
		t.Error("a scan by places though the ranks of these do not follow one another")
	}
	for list, want := range map[string]string{
		"bcast":                "not of the form",
		"bcast=ring":           "have shared-buffer, scatter-allgather, binomial",
		"bcats=ring":           "no collective",
		"bcast=two-level:x":    "flits",
		"bcast=two-level:0":    "flits",
		"bcast=binomial:2":     "flits",
		"alltoall=two-level:4": "flits",
	} {
		if err := p.ForceAll(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("forced %q: %v", list, err)
		}
	}
}

// The function passed to OnChoice is called once for every choice, even where there was only one.
func TestOnChoice(t *testing.T) {
	for _, tt := range []struct {
		layout     collectives.Layout
		force      string
		algorithms string
		predicted  bool
	}{
		{nil, "", "bcast binomial, bcast scatter-allgather", false},
		{sites(2, 4, false), "bcast=chain", "bcast chain, bcast chain", false},
		{sites(2, 4, false), "", "bcast two-level, bcast full-lane", true},
	} {
		p := planner(t, 0, 8, tt.layout)
		if err := p.ForceAll(tt.force); err != nil {
			t.Fatal(err)
		}
		var told []string
		p.OnChoice(func(collective operation.Operation, _ collectives.Shape, choices []collectives.Choice) {
			name, _, _ := strings.Cut(choices[0].Algorithm.Name, ":")
			told = append(told, collective.String()+" "+name)
			if (choices[0].Predicted > 0) != tt.predicted {
				t.Errorf("%s is thought to take %v", name, choices[0].Predicted)
			}
		})
		for range 3 {
			for _, n := range []int{8, 1 << 20} {
				if _, err := p.Choose(operation.Bcast, collectives.Shape{Bytes: n}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := strings.Join(told, ", "); len(told) != 2 || !tt.predicted && got != tt.algorithms {
			t.Errorf("forced %q: told of %s, want %s", tt.force, got, tt.algorithms)
		}
	}
}

// A call like an earlier one has its schedule, others do not, and not all are kept.
func TestKeptSchedules(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	w := newWorld(4)
	w.layout = sites(2, 2, true)
	comms := w.comms()
	for range 40 {
		collective := collectives.Operations()[rng.IntN(len(collectives.Operations()))]
		alg := ways(collective)[rng.IntN(len(ways(collective)))]
		e := oracles[collective](rng, 4, rng.IntN(3)*50, rng.IntN(4), sum32)
		if possible(alg, sum32, w.layout) {
			checkIn(t, alg.Name, collective, w, comms, e, alg.Run)
		}
	}
}
