package coll

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/collectives/operation"
)

func usual() Options {
	return Options{Ranks: 4, Nodes: 1, Repeat: 1, Longest: time.Second, Err: io.Discard}
}

func TestCheck(t *testing.T) {
	if err := usual().Check(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Options){
		"--collectives": func(o *Options) { o.Collectives = []operation.Operation{operation.Count} },
		"--peers":       func(o *Options) { o.Peers = []string{"mpich", "mpich"} },
		"--order":       func(o *Options) { o.Orders = []string{"any"} },
		"--sites":       func(o *Options) { o.Sites = []int{1} },
		"--ranks":       func(o *Options) { o.Ranks = 0 },
		"--nodes":       func(o *Options) { o.Nodes = 3 },
		"--root":        func(o *Options) { o.Root = 8 },
		"--rtt":         func(o *Options) { o.RTT = []time.Duration{-1} },
		"--sizes":       func(o *Options) { o.Sizes = []int{7} },
		"--flits":       func(o *Options) { o.Flits = []int{0} },
		"--repeat":      func(o *Options) { o.Repeat = 0 },
		"--longest":     func(o *Options) { o.Longest = 0 },
	} {
		o := usual()
		change(&o)
		if err := o.Check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func names(all []scenario) string {
	var names []string
	for _, s := range all {
		names = append(names, s.name)
	}
	return strings.Join(names, " ")
}

func TestScenarios(t *testing.T) {
	o := usual()
	standard := o.scenarios()
	if len(standard) != 2*2*2*2+2+2 {
		t.Errorf("%d standard scenarios: %s", len(standard), names(standard))
	}
	for i := 1; i < 18; i += 2 {
		if !standard[i].sameLab(&standard[i-1]) || i > 2 && standard[i-1].sameLab(&standard[i-2]) {
			t.Errorf("scenarios %d and before: %s", i, names(standard[i-2:i+1]))
		}
	}
	for _, tc := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Local = true }, "node site"},
		{func(o *Options) { o.RTT, o.Rate, o.Sites = []time.Duration{0}, []int64{0, 1500}, []int{3} }, "3x4/0s/unlimited/blocked 3x4/0s/unlimited/round-robin 3x4/0s/1500bit/blocked 3x4/0s/1500bit/round-robin"},
		{func(o *Options) {
			o.Sites, o.RTT, o.Rate, o.Orders, o.Nodes, o.Local = []int{8}, []time.Duration{5 * time.Millisecond}, []int64{2e9}, []string{roundRobin}, 2, true
		}, "8x2x2/5ms/2gbit/round-robin node site"},
	} {
		o := usual()
		tc.change(&o)
		if got := names(o.scenarios()); got != tc.want {
			t.Errorf("%s, want %s", got, tc.want)
		}
	}
}

func TestFigures(t *testing.T) {
	o := usual()
	o.Collectives, o.Sizes = []operation.Operation{operation.Barrier, operation.Bcast, operation.Alltoall}, []int{8, 4 * mib}
	s := &scenario{sites: 4, ranks: 4, rtt: 20 * time.Millisecond, rate: 136e6}
	all, tooLong, err := o.figures(s)
	want := []figure{{operation.Barrier, 0}, {operation.Bcast, 8}, {operation.Bcast, 4 * mib}, {operation.Alltoall, 8}}
	if err != nil || !slices.Equal(all, want) || !slices.Equal(tooLong, []figure{{operation.Alltoall, 4 * mib}}) {
		t.Error(all, tooLong, err)
	}
	if got := (figure{operation.Bcast, 8}).order(s, 3, 5); got != "time bcast 8 3 1 5 25000000" {
		t.Error(got)
	}
	if got := (figure{operation.Bcast, 8}).order(&localScenarios()[0], 0, 7); got != "time bcast 8 0 20 7 0" {
		t.Error(got)
	}
	for d, want := range map[time.Duration]int{0: 5, time.Millisecond: 5, 70 * time.Millisecond: 2, time.Hour: 1} {
		if got := s.count(d); got != want {
			t.Errorf("%v: %d times, want %d", d, got, want)
		}
	}
}

// Every algorithm is in some variant, and in each variant one of a collective at most.
func TestVariants(t *testing.T) {
	o := usual()
	o.Collectives, o.Algorithms, o.Flits = []operation.Operation{operation.Barrier, operation.Gather}, true, []int{1, 8}
	var told []string
	for _, v := range o.variants() {
		told = append(told, strings.Join(v.environment(), " "))
	}
	want := []string{
		"", "ISTHMUS_COLL=barrier=shared-buffer,gather=shared-buffer", "ISTHMUS_COLL=barrier=dissemination,gather=binomial", "ISTHMUS_COLL=barrier=two-level,gather=linear", "ISTHMUS_COLL=barrier=two-level-star,gather=two-level",
		"ISTHMUS_COLL=gather=two-level:1", "ISTHMUS_COLL=gather=two-level:8",
	}
	for _, w := range want {
		if !slices.Contains(told, w) {
			t.Errorf("no variant %q in %q", w, told)
		}
	}
}

// Shared memory is forced where all ranks are on one node, and nowhere else.
func TestAllowed(t *testing.T) {
	v := variant{forced: map[operation.Operation]string{operation.Barrier: "shared-buffer", operation.Bcast: "binomial"}}
	for name, tc := range map[string]struct {
		s    scenario
		want string
	}{
		"node":  {localScenarios()[0], "ISTHMUS_COLL=barrier=shared-buffer,bcast=binomial"},
		"site":  {localScenarios()[1], "ISTHMUS_COLL=bcast=binomial"},
		"sites": {scenario{sites: 2, ranks: 2, nodes: 1, order: blocked}, "ISTHMUS_COLL=bcast=binomial"},
	} {
		if got := strings.Join(tc.s.allowed(v).environment(), " "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		if tc.s.right(v, operation.Barrier) != (name == "node") || !tc.s.right(v, operation.Bcast) {
			t.Errorf("%s: a barrier over shared memory is right: %v", name, tc.s.right(v, operation.Barrier))
		}
	}
	if v.forced[operation.Barrier] == "" {
		t.Error("the variant itself has changed")
	}
}

// A scan on two levels needs ranks in the order of their sites.
func TestRight(t *testing.T) {
	v := variant{forced: map[operation.Operation]string{operation.Scan: "two-level", operation.Bcast: "two-level"}}
	for _, tc := range []struct {
		collective operation.Operation
		order      string
		want       bool
	}{{operation.Scan, blocked, true}, {operation.Scan, roundRobin, false}, {operation.Bcast, roundRobin, true}, {operation.Barrier, roundRobin, true}} {
		s := &scenario{sites: 2, ranks: 2, nodes: 1, order: tc.order}
		if s.right(v, tc.collective) != tc.want {
			t.Errorf("%+v", tc)
		}
	}
}

func ran(name, algorithm string, ms float64) *series {
	m := &series{name: name, took: []float64{ms * 1e6, ms * 1e6, ms * 1.4e6}, late: []float64{0.1}}
	if algorithm != "" {
		m.forced = map[operation.Operation]string{operation.Allgather: algorithm}
	}
	return m
}

func TestRows(t *testing.T) {
	s := &scenario{name: "x", sites: 4, ranks: 4, rtt: 20 * time.Millisecond, rate: 1e9}
	f := figure{operation.Allgather, 64 * kib} // 16.3 ms at least
	rows, err := s.rows(f, 0, []*series{ran(nameOurs, "", 20), ran(nameOurs, "ring", 19), ran(nameOurs, "bruck", 40), ran(nameHAN, "", 30), ran(nameMPICH, "", 25)})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, r := range rows {
		verdict := "-"
		if r.Met != nil {
			verdict = fmt.Sprint(*r.Met)
		}
		told = append(told, fmt.Sprintf("%s %v %v %.1f%s %s %.2f %s", r.Figure, r.Params["implementation"], r.Params["algorithm"], r.Value, r.Unit, r.Against, r.Ratio, verdict))
	}
	want := []string{
		"time isthmus <nil> 20.0ms bound 1.23 true", "time isthmus ring 19.0ms bound 1.17 -", "time isthmus bruck 40.0ms bound 2.46 -",
		"time openmpi-han <nil> 30.0ms bound 1.84 -", "time mpich <nil> 25.0ms bound 1.53 -",
		"time_beside_best_algorithm isthmus <nil> 20.0ms isthmus:ring 1.05 true", "time_beside_han isthmus <nil> 20.0ms openmpi-han 0.67 true",
		"time_beside_best_peer isthmus <nil> 20.0ms mpich 0.80 false",
	}
	if !slices.Equal(told, want) {
		t.Errorf("rows\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
}

// What is small may be 2 ms behind the bound; within a site the best peer counts.
func TestTargets(t *testing.T) {
	far, here := &scenario{sites: 2, ranks: 4, rtt: 20 * time.Millisecond}, &localScenarios()[0]
	for _, tc := range []struct {
		s    *scenario
		runs []*series
		row  int
		met  bool
	}{
		{far, []*series{ran(nameOurs, "", 11.9)}, 0, true},
		{far, []*series{ran(nameOurs, "", 12.1)}, 0, false},
		{here, []*series{ran(nameOurs, "", 1.1), ran(nameTuned, "", 1)}, 2, true},
		{here, []*series{ran(nameOurs, "", 1.3), ran(nameTuned, "", 1)}, 2, false},
	} {
		rows, err := tc.s.rows(figure{operation.Allgather, 8}, 0, tc.runs)
		if err != nil || len(rows) <= tc.row || rows[tc.row].Met == nil || *rows[tc.row].Met != tc.met {
			t.Errorf("%+v, %v; want row %d met: %v", rows, err, tc.row, tc.met)
		}
	}
	if rows, err := (&scenario{sites: 2, ranks: 1}).rows(figure{operation.Barrier, 0}, 0, []*series{ran(nameOurs, "", 1)}); err != nil || rows[0].Against != "" || rows[0].Met != nil {
		t.Errorf("without delay and bytes there is no bound: %+v, %v", rows, err)
	}
}

// Of several numbers of flits the one of which the model expects most is marked.
func TestChosenFlits(t *testing.T) {
	s := &scenario{name: "x", sites: 2, ranks: 4, nodes: 1, rtt: 8 * time.Millisecond, rate: 136e6, order: blocked}
	f := figure{operation.Bcast, mib}
	var runs []*series
	for _, flits := range []int{1, 2, 4, 8, 16, 32} {
		runs = append(runs, &series{name: nameOurs, variant: variant{flits, map[operation.Operation]string{operation.Bcast: "two-level"}}, took: []float64{1e6}})
	}
	rows, err := s.rows(f, 0, runs)
	if err != nil {
		t.Fatal(err)
	}
	least, chosen, marked := 0.0, 0.0, 0
	for i, r := range rows {
		ms, ok := r.Params["predicted_ms"].(float64)
		if !ok || r.Params["algorithm"] != "two-level" || r.Params["flits"] != runs[i].flits {
			t.Errorf("%+v", r)
		}
		if least == 0 || ms < least {
			least = ms
		}
		if r.Params["chosen"] == true {
			chosen, marked = ms, marked+1
		}
	}
	if marked != 1 || chosen > least*33/32 || least < 65 {
		t.Errorf("%d marked, with %v ms, the least is %v", marked, chosen, least)
	}
}
