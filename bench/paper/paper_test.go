package paper

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/bench"
)

func TestCheck(t *testing.T) {
	if err := (Options{Repeat: 1}).Check(); err != nil {
		t.Error(err)
	}
	if err := (Options{}).Check(); err == nil {
		t.Error("no repetition is taken")
	}
	err := Options{Repeat: 1, Only: regexp.MustCompile("figure-99")}.Check()
	if err == nil || !strings.Contains(err.Error(), "qcg-table-1, ") {
		t.Errorf("nothing matches, and the error is %v", err)
	}
	if some := (Options{Only: regexp.MustCompile("qcg-table")}).asked(); len(some) != 2 {
		t.Errorf("%d experiments are tables of QCG-OMPI's article", len(some))
	}
}

// A claim holds within its bounds; if it does not, the row says why, and so does the table for people.
func TestVerdicts(t *testing.T) {
	e := experiment{name: "figure", claims: []claim{
		{"a", "one", "1.5", "times", 1, 3, "known"}, {"b", "two", "7", "us", 1, inf, ""}, {"c", "three", "", "", 0, 2, "known"},
	}}
	rows, err := e.judge(figures{"a": 2, "b": .5, "c": 2.1})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		holds bool
		why   any
	}{{true, nil}, {false, "no reason is known; it holds from 1"}, {false, "known"}} {
		if rows[i].Params["why"] != want.why || *rows[i].Met != want.holds {
			t.Errorf("%+v", rows[i])
		}
	}
	if _, err := e.judge(figures{"a": 2, "b": 5}); err == nil {
		t.Error("a claim is judged that nothing was measured for")
	}
	var b bytes.Buffer
	if err := writeTable(&b, rows); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	if !strings.HasSuffix(lines[1], "2 times  yes") || !strings.HasSuffix(lines[2], "0.5 us   no") || !strings.HasSuffix(b.String(), "\nfigure: that three does not hold: known\n") {
		t.Errorf("wrote\n%s", b.String())
	}
}

// Names of experiments and, of each one, of figures are unique, and bounds allow something.
func TestTable(t *testing.T) {
	names := map[string]bool{}
	for _, e := range table {
		if names[e.name] || e.paper == "" || e.item == "" || e.measure == nil || len(e.claims) == 0 {
			t.Errorf("%s: there twice, or something is missing", e.name)
		}
		names[e.name] = true
		if !(e.minutes > 0) {
			t.Errorf("%s: takes %g minutes", e.name, e.minutes)
		}
		of := map[string]bool{}
		for _, c := range e.claims {
			if of[c.figure] || c.text == "" || c.theirs == "" || !(c.low <= c.high) {
				t.Errorf("%s: %+v", e.name, c)
			}
			of[c.figure] = true
		}
	}
}

func TestMinutes(t *testing.T) {
	if all := Minutes(); !(all <= 25) {
		t.Errorf("all take %d minutes, want at most 25", all)
	}
}

// Each group of curves is a picture, named by its experiment.
func TestDraw(t *testing.T) {
	var curves []bench.Row
	for _, ranks := range []int{8, 16} {
		for _, strategy := range strategies {
			curves = append(curves, bench.Row{Figure: "is", Params: map[string]any{"algorithm": strategy, "ranks": ranks}, Value: 2, Unit: "s"})
		}
	}
	folder := filepath.Join(t.TempDir(), "pictures")
	if err := (experiment{name: "some-figure"}).draw(curves, folder); err != nil {
		t.Fatal(err)
	}
	if found, err := filepath.Glob(folder + "/*"); err != nil || len(found) != 1 || filepath.Base(found[0]) != "some-figure-is-by-ranks.png" {
		t.Errorf("drew %q, %v", found, err)
	}
	if curves[0].Bench != "" {
		t.Error("it changed its argument")
	}
}

// holds returns the verdicts of an experiment's claims.
func holds(t *testing.T, name string, of figures) (all []bool) {
	t.Helper()
	for _, e := range table {
		if e.name != name {
			continue
		}
		rows, err := e.judge(of)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			all = append(all, *r.Met)
		}
	}
	return all
}

func TestConnections(t *testing.T) {
	for _, cities := range [][]string{{"orsay", "bordeaux"}, {"orsay", "bordeaux", "rennes"}} {
		spec := connectionSites(wideRate, cities...)
		if err := spec.Check(); err != nil && !strings.Contains(err.Error(), proxyHost) { // the grid adds that
			t.Error(err)
		}
		if len(spec.Sites) != 3*len(cities) {
			t.Errorf("%d sites", len(spec.Sites))
		}
	}
	near, far := map[string]float64{"direct": 7850, "relayed": 8000}, map[string]float64{"direct": 8050, "traversing": 8060, "relayed": 18200}
	rennes := map[string]float64{"direct": 10400, "relayed": 10600}
	if got := holds(t, "qcg-table-1", compareLatencies(near, far, rennes)); !slices.Equal(got, []bool{true, true, true, true, true, true}) {
		t.Errorf("as by geometry: %v", got)
	}
	near["relayed"], far["traversing"], far["relayed"] = 16000, 16000, 8100
	rennes["direct"], rennes["relayed"] = 7800, 18100
	if got := holds(t, "qcg-table-1", compareLatencies(near, far, rennes)); !slices.Equal(got, []bool{true, false, false, false, false, false}) {
		t.Errorf("otherwise: %v", got)
	}
	rates := func(direct, traversing, relayed float64) map[string]float64 {
		return map[string]float64{"direct": direct, "traversing": traversing, "relayed": relayed}
	}
	for _, tc := range []struct {
		wide, near, far map[string]float64
		want            []bool
	}{
		{rates(16.5e6, 16.4e6, 16e6), rates(16e6, 16e6, 15.9e6), rates(16e6, 16e6, 7.1e6), []bool{true, true, true, true, true, true, true}},
		{rates(12e6, 16e6, 16e6), rates(5e6, 6e6, 6e6), rates(16e6, 16e6, 12e6), []bool{false, false, false, false, false, false, false}},
	} {
		of := compareRates(tc.wide)
		maps.Copy(of, compareWindows(tc.near, tc.far))
		if got := holds(t, "qcg-table-2", of); !slices.Equal(got, tc.want) {
			t.Errorf("%v: %v", of, got)
		}
	}
}

// A time by another technique is an error, and no figure of the one that was to be measured.
func TestTechniques(t *testing.T) {
	for by, want := range map[string]bool{"traversing": true, "relay": false, "relay+traversing": false, "": false} {
		rows := []bench.Row{
			{Figure: "rate", Params: map[string]any{"bytes": 1.0, "technique": "direct"}, Value: 3},
			{Figure: "rate", Params: map[string]any{"bytes": 4.0, "technique": by}, Value: 5},
		}
		v, err := firewalls[1].find(rows, "rate", 4)
		if (err == nil) != want || want && v != 5 {
			t.Errorf("by %q: %g, %v", by, v, err)
		}
	}
}

// Numbers of flits are compared at each size; one that was not measured is an error.
func TestCut(t *testing.T) {
	of := map[int]map[string]float64{256 * kib: {}, mib: {}}
	for i, n := range flitCounts {
		of[mib][fmt.Sprintf("chain:%d", n)], of[256*kib][fmt.Sprintf("chain:%d", n)] = []float64{400, 300, 250, 200, 200, 210}[i], 100
	}
	got := figures{}
	if err := cut(of, "chain", "bcast", got); err != nil {
		t.Fatal(err)
	}
	if want := (figures{"bcast of 256 KiB, 8 over 1": 1, "bcast of 256 KiB, best": 1, "bcast of 1024 KiB, 8 over 1": .5, "bcast of 1024 KiB, best": 8}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	delete(of[256*kib], "chain:32")
	if err := cut(of, "chain", "bcast", got); err == nil {
		t.Error("a number of flits that was not measured is compared")
	}
}

func TestGainEnds(t *testing.T) {
	for _, tc := range []struct {
		of   map[int]float64
		want int
	}{
		{map[int]float64{1: 100, 2: 99, 4: 92}, 1},
		{map[int]float64{1: 100, 2: 80, 4: 70, 8: 60, 16: 59, 32: 61}, 8},
		{map[int]float64{1: 100, 2: 80, 4: 90, 8: 50}, 8},
	} {
		if got := gainEnds(tc.of); got != tc.want {
			t.Errorf("%v: the gain ends at %d, want %d", tc.of, got, tc.want)
		}
	}
}

// A tree that does not know of sites crosses between them often if ranks alternate, and else as often as there are sites.
func TestCrossings(t *testing.T) {
	for _, tc := range []struct {
		algorithm           string
		alternate           bool
		messages, latencies int
	}{{bySites, false, 2, 1}, {bySites, true, 2, 1}, {flatTree, false, 4, 2}, {flatTree, true, 179, 7}} {
		if messages, latencies, err := crossings(tc.algorithm, tc.alternate); err != nil || messages != tc.messages || latencies != tc.latencies {
			t.Errorf("%+v: %d messages, %d one after another, %v", tc, messages, latencies, err)
		}
	}
	if _, _, err := crossings("none", false); err == nil {
		t.Error("messages of an unknown algorithm were counted")
	}
}

// What links count is by collective and algorithm; of what the emulator saw the extremes count.
func TestCrossed(t *testing.T) {
	row := func(figure, collective string, algorithm any, value, ratio float64) bench.Row {
		p := map[string]any{"collective": collective}
		if algorithm != nil {
			p["algorithm"] = algorithm
		}
		return bench.Row{Figure: figure, Params: p, Value: value, Ratio: ratio}
	}
	got := crossed([]bench.Row{
		row("wan_messages", "bcast", "two-level", 3, 1), row("wan_messages", "barrier", nil, 12, 1), row("wan_bytes", "bcast", "two-level", 9, 1),
		row("emulator_bytes", "bcast", "two-level", 9, 1.04), row("emulator_bytes", "reduce", "two-level", 9, 1.08), row("emulator_bytes", "barrier", nil, 9, 0),
	})
	if want := (figures{"bcast by two-level": 3, "barrier by choice": 12, "least": 1.04, "most": 1.08}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func row(algorithm any, flits any, size int, ms float64) bench.Row {
	p := map[string]any{"size": size}
	if algorithm != nil {
		p["algorithm"] = algorithm
	}
	if flits != nil {
		p["flits"] = flits
	}
	return bench.Row{Figure: "time", Params: p, Value: ms}
}

func TestLines(t *testing.T) {
	of := times([]bench.Row{
		row(nil, nil, 8, 1), row("chain", nil, 8, 9), row("two-level", nil, 8, 5), row("chain", nil, 64, 6), row("two-level", nil, 64, 6.5),
		row("chain", nil, 512, 7), row("two-level", nil, 512, 9), row("chain", 4, 512, 3),
	})
	if of[512]["chain:4"] != 3 || len(of[8]) != 2 {
		t.Fatalf("%v", of)
	}
	if worst, err := worstRatio(of, "chain", "two-level"); err != nil || worst != 1.8 {
		t.Errorf("at worst %v, %v", worst, err)
	}
	if _, err := worstRatio(of, "chain", "binomial"); err == nil {
		t.Error("what was not measured is compared")
	}
}

// As in the article; and with a pipeline that is good at short vectors.
func TestReductions(t *testing.T) {
	for _, tc := range []struct {
		chain, bySites [2]float64 // of 8 bytes and 1 MiB
		want           []bool
	}{
		{[2]float64{9, 80}, [2]float64{5, 70}, []bool{true, true}},
		{[2]float64{9, 80}, [2]float64{8, 70}, []bool{true, false}},
		{[2]float64{9, 80}, [2]float64{10, 90}, []bool{false, false}},
	} {
		of := map[int]map[string]float64{8: {"chain": tc.chain[0], "two-level": tc.bySites[0]}, mib: {"chain": tc.chain[1], "two-level": tc.bySites[1]}}
		got, err := reductions(of)
		if err != nil || !slices.Equal(holds(t, "qcg-figure-5b", got), tc.want) {
			t.Errorf("%v: %v, %v", of, got, err)
		}
	}
	for _, size := range []int{8, mib} {
		of := map[int]map[string]float64{8: {"chain": 9, "two-level": 5}, mib: {"chain": 9, "two-level": 5}}
		delete(of, size)
		if _, err := reductions(of); err == nil {
			t.Errorf("without %d bytes there are figures", size)
		}
	}
}

// As the algorithms have it; and with a host of rennes in place of one of lyon, and all processes in three sites.
func TestAllocated(t *testing.T) {
	var rows []bench.Row
	add := func(strategy string, n int, site string, hosts, processes float64, met bool) {
		for figure, v := range map[string]float64{"hosts": hosts, "processes": processes} {
			rows = append(rows, bench.Row{Figure: figure, Value: v, Params: map[string]any{"strategy": strategy, "n": n, "site": site}, Met: &met})
		}
	}
	rows = append(rows, bench.Row{Figure: "job", Value: 12, Params: map[string]any{"strategy": "spread", "n": 250}})
	add("concentrate", 200, "nancy", 50, 200, true)
	add("concentrate", 200, "lyon", 0, 0, true)
	add("concentrate", 250, "lyon", 5, 10, true)
	for _, site := range []string{"nancy", "lyon", "rennes", "bordeaux"} {
		add("spread", 250, site, 60, 60, true)
		add("spread", 300, site, 60, 60, true)
	}
	add("spread", 250, "sophia", 0, 0, true)
	add("spread", 300, "grenoble", 20, 20, true)
	add("spread", 300, "sophia", 20, 20, true)
	add("spread", 400, "nancy", 60, 110, true)
	if got, all := holds(t, "p2p-alloc-figures-2-3", allocated(rows)), []bool{true, true, true, true, true, true}; !slices.Equal(got, all) {
		t.Errorf("%v: %v", allocated(rows), got)
	}
	rows = nil
	add("concentrate", 200, "nancy", 40, 160, false)
	add("concentrate", 200, "lyon", 20, 40, false)
	add("concentrate", 250, "lyon", 4, 8, false)
	add("spread", 250, "nancy", 60, 60, true)
	add("spread", 300, "nancy", 60, 60, true)
	add("spread", 400, "nancy", 60, 60, true)
	if got, none := holds(t, "p2p-alloc-figures-2-3", allocated(rows)), []bool{false, false, false, false, false, false}; !slices.Equal(got, none) {
		t.Errorf("%v: %v", allocated(rows), got)
	}
}

// Few ranks stay in nancy by either strategy, more do by one.
func TestKernelHosts(t *testing.T) {
	all, err := jobs()
	if err != nil {
		t.Fatal(err)
	}
	away := func(strategy string, n int) (away int) {
		for _, node := range all[strategy][n] {
			if !strings.HasPrefix(node, "nancy/") {
				away++
			}
		}
		return away
	}
	if away("spread", fewRanks)+away("concentrate", fewRanks)+away("concentrate", manyRanks)+away("concentrate", mostRanks) > 0 || away("spread", manyRanks) == 0 || away("spread", mostRanks) == 0 {
		t.Errorf("ranks are on %v", all)
	}
	if err := kernelSites(all).Check(); err != nil {
		t.Error(err)
	}
}

// Each number of ranks has its own verdict.
func TestKernelRows(t *testing.T) {
	seconds := map[string]map[int][]float64{
		"is": {fewRanks: {1, 1}, manyRanks: {1, 2}, mostRanks: {1.2, 3}}, "ep": {fewRanks: {1, 1}, manyRanks: {2, 2.1}, mostRanks: {3, 2.9}},
	}
	if got := holds(t, "p2p-alloc-figure-4", compareKernels(seconds)); !slices.Equal(got, []bool{true, true, true, true, true, true, true}) {
		t.Errorf("%v", got)
	}
	seconds["is"][mostRanks], seconds["ep"][mostRanks] = []float64{1, 1}, []float64{1, 2}
	if got := holds(t, "p2p-alloc-figure-4", compareKernels(seconds)); !slices.Equal(got, []bool{true, true, false, true, true, true, false}) {
		t.Errorf("%v", got)
	}
	seconds["is"], seconds["ep"] = map[int][]float64{fewRanks: {1, 2}, manyRanks: {2, 1}, mostRanks: {3, 3}}, map[int][]float64{fewRanks: {1, 2}, manyRanks: {2, 1}, mostRanks: {1, 2}}
	if got := holds(t, "p2p-alloc-figure-4", compareKernels(seconds)); !slices.Equal(got, []bool{false, false, false, false, false, false, false}) {
		t.Errorf("%v", got)
	}
}

// As in the article; and with bosses and collectives that cost more than they gain.
func TestTraced(t *testing.T) {
	type lines map[string]float64
	for _, tc := range []struct {
		from             float64
		seconds, tracing lines
		want             []bool
	}{
		{
			24, lines{"vanilla": 9, "vanilla, flat collectives": 10, "vanilla, collectives by sites": 9, "hierarchical": 9, "hierarchical, by sites": 18, "hierarchical, bosses not counted": 9},
			lines{"vanilla": 3, "vanilla, flat collectives": 3, "vanilla, collectives by sites": 6, "hierarchical": 3, "hierarchical, by sites": 3.1, "hierarchical, bosses not counted": 2}, []bool{true, true, true, true},
		},
		{
			0, lines{"vanilla": 3, "vanilla, flat collectives": 9, "vanilla, collectives by sites": 10, "hierarchical": 3, "hierarchical, by sites": 3, "hierarchical, bosses not counted": 2},
			lines{"vanilla": 3, "vanilla, flat collectives": 6, "vanilla, collectives by sites": 3, "hierarchical": 3, "hierarchical, by sites": 6, "hierarchical, bosses not counted": 2.9}, []bool{false, false, false, false},
		},
	} {
		rows := []bench.Row{{Figure: "bosses_pay_from", Value: tc.from}}
		for figure, of := range map[string]lines{"time": tc.seconds, "trace_phase": tc.tracing} {
			for line, seconds := range of {
				rows = append(rows, bench.Row{Figure: figure, Params: map[string]any{"algorithm": line, "processes": mostProcesses}, Value: seconds},
					bench.Row{Figure: figure, Params: map[string]any{"algorithm": line, "processes": 12}, Value: 1})
			}
		}
		of, err := traced(rows)
		if err != nil {
			t.Fatal(err)
		}
		if got := holds(t, "qcg-figure-7", of); !slices.Equal(got, tc.want) {
			t.Errorf("%v: %v, want %v", of, got, tc.want)
		}
		if _, err := traced(rows[:len(rows)-2]); err == nil {
			t.Error("a line that was not measured has a figure")
		}
	}
}

// As in the article; and with a tree that never pays, after columns that do.
func TestFactored(t *testing.T) {
	rows := func(from, columns, gain, columnsGain float64) (all []bench.Row) {
		for _, r := range []struct {
			figure, method string
			value          float64
		}{
			{"fastest_on_all_sites_from", "tsqr", from}, {"fastest_on_all_sites_from", "columns", columns},
			{"speed_up_at_most_rows", "tsqr", gain}, {"speed_up_at_most_rows", "columns", columnsGain},
		} {
			all = append(all, bench.Row{Figure: r.figure, Params: map[string]any{"algorithm": r.method + ", sites: 4"}, Value: r.value})
		}
		return all
	}
	for _, tc := range []struct {
		rows []bench.Row
		want []bool
	}{
		{rows(1<<19, 0, 3.9, 1.9), []bool{true, true, true, true}},
		{rows(1<<19, 1<<21, 3.9, 1.9), []bool{true, true, true, true}},
		{rows(0, 1<<20, 1.1, 1.9), []bool{false, false, false, false}},
	} {
		of, err := factored(tc.rows)
		if err != nil {
			t.Fatal(err)
		}
		if got := holds(t, "qcg-figure-9", of); !slices.Equal(got, tc.want) {
			t.Errorf("%v: %v, want %v", of, got, tc.want)
		}
	}
	if _, err := factored(nil); err == nil {
		t.Error("what was not measured has figures")
	}
}

// Beside a peer that is not installed there is no figure, and the row says so.
func TestBesidePeer(t *testing.T) {
	row := func(implementation string, ms float64) bench.Row {
		return bench.Row{Figure: "time", Params: map[string]any{"implementation": implementation}, Value: ms}
	}
	for _, tc := range []struct {
		rows  []bench.Row
		want  float64
		holds bool
	}{
		{[]bench.Row{row("isthmus", 66), row("openmpi-tuned", 60)}, 1.1, true},
		{[]bench.Row{row("isthmus", 90), row("openmpi-tuned", 60)}, 1.5, false},
		{[]bench.Row{row("isthmus", 66)}, 0, false},
	} {
		got, err := besidePeer(tc.rows, "openmpi-tuned")
		if err != nil || math.Abs(got-tc.want) > 1e-9 || !slices.Equal(holds(t, "p2p-robust-figure-4", figures{"exchange": got}), []bool{tc.holds}) {
			t.Errorf("%v: %v, %v", tc.rows, got, err)
		}
	}
	if _, err := besidePeer([]bench.Row{row("openmpi-tuned", 60)}, "openmpi-tuned"); err == nil {
		t.Error("what was not measured is compared")
	}
}
