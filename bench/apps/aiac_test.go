package apps

import (
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/examples/multisplit/split"
)

func TestAIACRows(t *testing.T) {
	s := AIAC{Sites: 2, NodesPerSite: 1, RanksPerSite: 2}
	var results []split.Result
	for i, seconds := range []float64{4, 3, 2, 1, 6, 5} {
		results = append(results, split.Result{Mode: []string{"sync", "async"}[i%2], Seconds: seconds, Put: uint64(i)})
	}
	rows, err := s.rows(20*time.Millisecond, results)
	if err != nil || len(rows) != 12 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	if r := rows[6]; r.Value != 3 || r.Ratio != .75 || r.Against != "sync" || r.Params["rtt_ms"] != 20.0 {
		t.Errorf("%+v", r)
	}
	if _, err := s.rows(0, results[:1]); err == nil {
		t.Error("of one mode there are rows")
	}
}

func TestAIACCheck(t *testing.T) {
	good := AIAC{RTTs: make([]time.Duration, 1), Sites: 2, NodesPerSite: 2, RanksPerSite: 4, Rows: 8, Band: 1, Shift: 1, Tolerance: 1, Repeat: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	if got, want := good.hosts(), []string{"s1/n1", "s1/n1", "s1/n2", "s1/n2", "s2/n1", "s2/n1", "s2/n2", "s2/n2"}; len(got) != len(want) || got[2] != want[2] || got[7] != want[7] {
		t.Errorf("ranks run on %v, want %v", got, want)
	}
	for _, change := range []func(*AIAC){
		func(s *AIAC) { s.RTTs = nil }, func(s *AIAC) { s.NodesPerSite = 3 }, func(s *AIAC) { s.NodesPerSite = 0 }, func(s *AIAC) { s.Rows = 7 },
		func(s *AIAC) { s.PETSc, s.Preset = true, "stateful" }, func(s *AIAC) { s.Shift = 0 }, func(s *AIAC) { s.Loss = 1 }, func(s *AIAC) { s.Repeat = 0 },
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
	rows, err := s.petscRows(50*time.Millisecond, "cg", runs, ours)
	if err != nil || len(rows) != 3 || rows[0].Value != 3 || rows[1].Value != 9 || rows[2].Ratio != .5 || rows[2].Against != "petsc cg" {
		t.Errorf("%+v, %v", rows, err)
	}
	runs[1].Residual = 2e-6
	if _, err := s.petscRows(0, "cg", runs, ours); err == nil {
		t.Error("a run that has not converged has figures")
	}
	if _, err := s.petscRows(0, "cg", nil, ours); err == nil {
		t.Error("no run has figures")
	}
}
