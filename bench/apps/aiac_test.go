package apps

import (
	"fmt"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/examples/multisplit/split"
	"github.com/isthmus-grid/isthmus/lab/wan"
)

func TestAIACRows(t *testing.T) {
	s := AIAC{Sites: 2, NodesPerSite: 1, RanksPerSite: 2}
	shape := wan.Shape{Delay: 10 * time.Millisecond, Loss: .01}
	var results []split.Result
	for i, seconds := range []float64{4, 3, 2, 1, 6, 5} {
		results = append(results, split.Result{Mode: []string{"sync", "async"}[i%2], Seconds: seconds,
			Least: uint64(10 + i), Most: uint64(20 + i), Put: uint64(30 + i), Overwritten: uint64(40 + i), Received: uint64(50 + i)})
	}
	rows, err := s.rows(shape, results)
	if err != nil || len(rows) != 12 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, want := range []string{
		"time sync 4 s", "least_iterations sync 12 iterations", "most_iterations sync 22 iterations", "values_put sync 32 values",
		"values_overwritten sync 42 values", "values_received sync 52 values",
		"time async 3 s", "least_iterations async 13 iterations", "most_iterations async 23 iterations", "values_put async 33 values",
		"values_overwritten async 43 values", "values_received async 53 values",
	} {
		r := rows[i]
		if got := fmt.Sprint(r.Figure, " ", r.Params["mode"], " ", r.Value, " ", r.Unit); got != want || r.Params["rtt_ms"] != 20.0 || r.Params["loss"] != .01 {
			t.Errorf("%s, %v; want %s", got, r.Params, want)
		}
		if isJudged := r.Met != nil; isJudged != (i == 6) {
			t.Errorf("%s has the target %v, %v", want, r.Target, r.Met)
		}
	}
	if r := rows[6]; r.Ratio != .75 || r.Against != "sync" || r.Target != 1 || !*r.Met {
		t.Errorf("%+v", r)
	}
	results[1].Seconds, results[3].Seconds = 5, 5
	if rows, err := s.rows(shape, results); err != nil || *rows[6].Met {
		t.Errorf("%+v, %v: want a target that is not met", rows, err)
	}
	if _, err := s.rows(shape, results[:1]); err == nil {
		t.Error("of one mode there are rows")
	}
}

func TestAIACCheck(t *testing.T) {
	good := AIAC{RTTs: []time.Duration{10 * time.Millisecond, 20 * time.Millisecond}, Losses: []float64{0, .1}, Sites: 2, NodesPerSite: 2, RanksPerSite: 4, Rows: 8, Band: 1, Shift: 1, Tolerance: 1, Repeat: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	if got, want := good.hosts(), []string{"s1/n1", "s1/n1", "s1/n2", "s1/n2", "s2/n1", "s2/n1", "s2/n2", "s2/n2"}; len(got) != len(want) || got[2] != want[2] || got[7] != want[7] {
		t.Errorf("ranks run on %v, want %v", got, want)
	}
	if got, want := fmt.Sprint(good.shapes()), fmt.Sprint([]wan.Shape{
		{Delay: 5 * time.Millisecond}, {Delay: 10 * time.Millisecond}, {Delay: 5 * time.Millisecond, Loss: .1}, {Delay: 10 * time.Millisecond, Loss: .1},
	}); got != want {
		t.Errorf("paths are %s, want %s", got, want)
	}
	for _, change := range []func(*AIAC){
		func(s *AIAC) { s.RTTs = nil }, func(s *AIAC) { s.NodesPerSite = 3 }, func(s *AIAC) { s.NodesPerSite = 0 }, func(s *AIAC) { s.Rows = 7 },
		func(s *AIAC) { s.PETSc, s.Preset = true, "stateful" }, func(s *AIAC) { s.Shift = 0 }, func(s *AIAC) { s.Losses = []float64{0, 1} }, func(s *AIAC) { s.Losses = nil }, func(s *AIAC) { s.Repeat = 0 },
	} {
		bad := good
		if change(&bad); bad.Check() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

func TestPETScRows(t *testing.T) {
	s := AIAC{Tolerance: 1e-6}
	runs := []petscRun{{Seconds: 2, Iterations: 9, Residual: 1e-7}, {Seconds: 4, Iterations: 9, Residual: 1e-6}}
	ours := []split.Result{{Mode: "sync", Seconds: 9}, {Mode: "async", Seconds: 1.5}}
	rows, err := s.petscRows(wan.Shape{}, "cg", runs, ours)
	if err != nil || len(rows) != 3 || rows[0].Value != 3 || rows[1].Value != 9 || rows[2].Ratio != .5 || rows[2].Against != "petsc cg" {
		t.Errorf("%+v, %v", rows, err)
	}
	runs[1].Residual = 2e-6
	if _, err := s.petscRows(wan.Shape{}, "cg", runs, ours); err == nil {
		t.Error("a run that has not converged has figures")
	}
	if _, err := s.petscRows(wan.Shape{}, "cg", nil, ours); err == nil {
		t.Error("no run has figures")
	}
}
