package apps

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/examples/ray2mesh/farm"
	"github.com/isthmus-grid/isthmus/examples/tally"
	"github.com/isthmus-grid/isthmus/examples/tsqr/factor"
	"github.com/isthmus-grid/isthmus/launch/profile"
)

// value returns the row with a figure, a line and, unless it is 0, an x.
func value(t *testing.T, rows []bench.Row, figure, line, axis string, x int) bench.Row {
	t.Helper()
	var found []bench.Row
	for _, r := range rows {
		if r.Figure == figure && r.Params["algorithm"] == line && (x == 0 || r.Params[axis] == x) {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d rows for %s of %s at %d", len(found), figure, line, x)
	}
	return found[0]
}

// The method that pays from 200 rows on, and the one that never does.
func TestTSQRRows(t *testing.T) {
	s := TSQR{Sites: []int{1, 4}, Cols: 8, RanksPerSite: 1, Least: 100, Most: 400}
	var results []factor.Result
	add := func(method string, sites, rows int, seconds float64) {
		results = append(results, factor.Result{Method: method, Sites: sites, Rows: rows, Seconds: seconds, Mflops: float64(rows) / seconds,
			Traffic: tally.Traffic{WANMessages: int64(sites - 1)}})
	}
	for i, rows := range []int{100, 200, 400} {
		add("tsqr", 1, rows, []float64{1, 2, 4}[i])
		add("columns", 1, rows, []float64{1, 2, 4}[i])
		add("tsqr", 4, rows, []float64{1.5, 1.8, 2}[i])
		add("columns", 4, rows, []float64{0.9, 9, 9}[i])
	}
	rows := s.rows(results)
	const four = "tsqr, sites: 4"
	if r := value(t, rows, "fastest_on_all_sites_from", four, "", 0); r.Value != 200 {
		t.Errorf("tsqr pays from %g rows on", r.Value)
	}
	if r := value(t, rows, "fastest_on_all_sites_from", "columns, sites: 4", "", 0); r.Value != 0 {
		t.Errorf("columns pays from %g rows on", r.Value)
	}
	if r := value(t, rows, "speed_up_at_most_rows", four, "", 0); r.Value != 2 {
		t.Errorf("speed-up %g", r.Value)
	}
	if r := value(t, rows, "speed", four, "rows", 400); r.Value != 200 || r.Ratio != 4.5 || r.Against != "columns" {
		t.Errorf("%+v", r)
	}
	if r := value(t, rows, "wan_messages", four, "rows", 100); r.Value != 3 {
		t.Errorf("%+v", r)
	}
}

func points(seconds map[int][3]float64) (all []point) {
	for _, processes := range []int{12, 24, 48} {
		for i, line := range []string{lineVanilla, lineBosses, lineUncount} {
			all = append(all, point{line, processes, farm.Result{Seconds: seconds[processes][i], Times: "t", Mesh: "m", Verified: true}})
		}
	}
	return all
}

func TestRay2meshRows(t *testing.T) {
	all := points(map[int][3]float64{12: {10, 12, 10}, 24: {6, 5, 4}, 48: {4, 2, 1}})
	all[1].Phases.Trace = 8
	rows := Ray2mesh{Sites: 3}.rows(all)
	if r := value(t, rows, "trace_phase", lineBosses, "processes", 12); r.Value != 8 {
		t.Errorf("%+v", r)
	}
	if r := value(t, rows, "bosses_pay_from", lineBosses, "", 0); r.Value != 24 {
		t.Errorf("bosses pay from %g on", r.Value)
	}
	if r := value(t, rows, "acceleration", lineUncount, "processes", 48); r.Value != 4 {
		t.Errorf("%+v", r)
	}
	if r := value(t, rows, "time", lineBosses, "processes", 12); r.Ratio != 1.2 || r.Against != lineVanilla {
		t.Errorf("%+v", r)
	}
	for _, tt := range []struct {
		at48 float64
		want int
	}{{2, 12}, {5, 0}} {
		all := points(map[int][3]float64{12: {10, 9, 9}, 24: {6, 5, 4}, 48: {4, tt.at48, 1}})
		if got := payFrom(all); got != tt.want {
			t.Errorf("with %g s on 48, bosses pay from %d on", tt.at48, got)
		}
	}
}

// A brief sweep has all lines at its end.
func TestFull(t *testing.T) {
	for brief, want := range map[bool][]bool{false: {true, true}, true: {false, true}} {
		s := Ray2mesh{Processes: []int{12, 24}, Brief: brief}
		if got := []bool{s.full(12), s.full(24)}; !slices.Equal(got, want) {
			t.Errorf("brief %v: %v", brief, got)
		}
	}
}

// A result that differs from the one that was checked is an error, and so is one
// that nobody checked.
func TestAgree(t *testing.T) {
	all := points(nil)
	if err := agree(all); err != nil {
		t.Error(err)
	}
	all[5].Mesh = "n"
	if err := agree(all); err == nil || !strings.HasPrefix(err.Error(), "hierarchical, bosses not counted on 24 processes") {
		t.Errorf("error %v", err)
	}
	all = points(nil)
	all[0].Verified = false
	if agree(all) == nil {
		t.Error("results were taken that nobody checked")
	}
}

func TestSpread(t *testing.T) {
	if got, want := spread(5, 2), []string{"s1/n1", "s1/n1", "s1/n1", "s2/n1", "s2/n1"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// The job profile has a group for each site, as large as the part of the ranks there, whose processes are
// near each other.
func TestProfile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "job.xml")
	if err := os.WriteFile(file, []byte(Ray2mesh{Sites: 3}.profile(14)), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := profile.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var counts []int
	for _, g := range p.Groups {
		counts = append(counts, g.Processes)
		if g.Inside.Latency != 5*time.Millisecond {
			t.Errorf("group %s: %+v", g.Name, g.Inside)
		}
	}
	if len(p.Ignored) > 0 || !slices.Equal(counts, []int{4, 5, 5}) {
		t.Errorf("groups of %v, ignored: %v", counts, p.Ignored)
	}
}

func TestCheck(t *testing.T) {
	good := TSQR{Sites: []int{1, 2}, RanksPerSite: 1, Cols: 8, Least: 16, Most: 16, Repeat: 1}
	for name, change := range map[string]func(*TSQR){
		"": func(*TSQR) {}, "sites": func(s *TSQR) { s.Sites = []int{2, 1} }, "none": func(s *TSQR) { s.Sites = nil }, "short": func(s *TSQR) { s.Least = 15 },
		"most": func(s *TSQR) { s.Most = 15 }, "repeat": func(s *TSQR) { s.Repeat = 0 }, "speed": func(s *TSQR) { s.Mflops = -1 },
		"cores": func(s *TSQR) { s.CPU = -1 }, "both": func(s *TSQR) { s.CPU, s.Mflops = 1, 1 },
	} {
		s := good
		if change(&s); (s.Check() == nil) != (name == "") {
			t.Errorf("%q: %v", name, s.Check())
		}
	}
	fine := Ray2mesh{Sites: 2, Processes: []int{2, 4}, Rays: 5, Chunk: 5, Credit: 1, Repeat: 1}
	for name, change := range map[string]func(*Ray2mesh){
		"": func(*Ray2mesh) {}, "sites": func(s *Ray2mesh) { s.Sites = 3 }, "one": func(s *Ray2mesh) { s.Processes = []int{1} }, "chunk": func(s *Ray2mesh) { s.Chunk = 6 },
		"order": func(s *Ray2mesh) { s.Processes = []int{4, 2} }, "speed": func(s *Ray2mesh) { s.Speed = -1 },
		"groups": func(s *Ray2mesh) { s.Profile, s.Processes = true, []int{4, 5} },
	} {
		s := fine
		if change(&s); (s.Check() == nil) != (name == "") {
			t.Errorf("%q: %v", name, s.Check())
		}
	}
}
