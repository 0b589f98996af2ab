//go:build system

package mpi

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// collRow is the part of a row of `isthmus-lab bench coll` that these tests check.
type collRow struct {
	Bench, Figure, Unit, Against string
	Params                       struct {
		Scenario, Collective, Implementation, Algorithm string
		Size, Repetitions                               int
		Bound                                           float64 `json:"bound_ms"`
	}
	Value, Ratio float64
	Met          *bool
}

// collRows runs the benchmark without another MPI.
func collRows(t *testing.T, args ...string) (rows []collRow) {
	t.Helper()
	stdout, stderr, status := labtest.Run(t, exec.Command(labtest.Program(t, "-lab"), append([]string{"bench", "coll", "--json", "--peers", "none"}, args...)...))
	if status != 0 {
		t.Fatalf("status %d:\n%s", status, stderr)
	}
	for d := json.NewDecoder(strings.NewReader(stdout)); d.More(); {
		var row collRow
		if err := d.Decode(&row); err != nil {
			t.Fatalf("%v in:\n%s", err, stdout)
		}
		rows = append(rows, row)
	}
	return rows
}

// What ranks report as sent to other sites equals the schedules of an algorithm, however ranks are
// assigned to sites.
func TestCollCrossings(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	seen := map[string]bool{}
	for _, r := range collRows(t, "--counts", "--algorithms", "--sites", "3", "--ranks", "2", "--rtt", "4ms", "--rate", "1gbit", "--sizes", "8B,64KiB") {
		seen[r.Params.Scenario+" "+r.Params.Collective+" "+r.Figure] = true
		if r.Met == nil || !*r.Met {
			t.Errorf("%+v", r)
		}
	}
	if want := 2 * 10 * 2; len(seen) != want { // orders, collectives, figures
		t.Errorf("%d kinds of rows, want %d: %v", len(seen), want, seen)
	}
}

// The bytes that the emulator forwards are those that ranks report, and headers.
func TestCollPackets(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	judged := 0
	for _, r := range collRows(t, "--packets", "--sites", "2", "--ranks", "2", "--rtt", "4ms", "--rate", "1gbit", "--order", "blocked", "--collectives", "bcast,allgather", "--sizes", "64KiB") {
		if r.Figure != "emulator_bytes" {
			continue
		}
		if judged++; r.Met == nil || !*r.Met {
			t.Errorf("%+v", r)
		}
	}
	if judged != 2 {
		t.Errorf("%d rows compare bytes, want 2", judged)
	}
}

// Calls between sites are timed and compared with their lower bound. The benchmark judges the
// difference.
func TestBenchColl(t *testing.T) {
	labtest.NeedLab(t)
	seen := map[string]int{}
	for _, r := range collRows(t, "--sites", "2", "--ranks", "2", "--rtt", "4ms", "--rate", "100mbit", "--repeat", "1", "--collectives", "barrier,allgather", "--sizes", "8B,64KiB") {
		seen[r.Params.Scenario]++
		if r.Bench != "coll" || r.Figure != "time" || r.Unit != "ms" || r.Against != "bound" || r.Params.Implementation != "isthmus" {
			t.Errorf("%+v", r)
		}
		least := 2.0 // ms of one way
		if r.Params.Size == 64<<10 {
			least += 2 * 64 << 10 * 8 / 100e6 * 1e3
		}
		if d := r.Params.Bound - least; d > 0.001 || d < -0.001 || r.Value < 0.85*least || r.Params.Repetitions < 1 {
			t.Errorf("%+v: want a bound of %v ms, and no time much below", r, least)
		}
	}
	if seen["2x2/4ms/100mbit/blocked"] != 3 || seen["2x2/4ms/100mbit/round-robin"] != 3 || len(seen) != 2 {
		t.Errorf("rows by scenario: %v", seen)
	}
}
