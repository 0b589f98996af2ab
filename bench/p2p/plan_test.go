package p2p

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/runner"
)

func TestParsePeers(t *testing.T) {
	for text, want := range map[string][]string{
		"none": {}, "mpich": {nameMPICH}, "mpich,openmpi": {nameMPICH, nameOpenMPI},
	} {
		if got, err := ParsePeers(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "mpich,", "lam", "mpich,mpich", "none,mpich"} {
		if got, err := ParsePeers(text); err == nil {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestValues(t *testing.T) {
	s := &messages.scenarios[len(messages.scenarios)-1] // four ranks
	for _, c := range []struct {
		f    figure
		ns   float64
		want string
	}{
		{figure{halfRoundTrip, 1}, 9000, "4.5 us"},
		{figure{bandwidth, 1000}, 32_000, "2 GB/s"},
		{figure{messageRate, 16}, 32_000, "2 M/s"},
		{figure{ringHop, 1}, 8000, "2 us"},
		{figure{barrier, 0}, 8000, "8 us"},
		{figure{afterComputing, 1}, 8000, "8 us"},
		{figure{threadHop, 1}, 9000, "4.5 us"},
		{figure{initTime, 0}, 20e6, "20 ms"},
		{figure{initMemory, 0}, 15625, "16 MB"},
	} {
		if got := fmt.Sprint(c.f.value(s, c.ns), " ", c.f.unit()); got != c.want {
			t.Errorf("%s: %s, want %s", c.f.kind, got, c.want)
		}
	}
}

// Every order of a plan is one that all ranks understand that get it: those in C, and those in Go.
func TestOrders(t *testing.T) {
	source, err := os.ReadFile("c/p2p.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, suite := range suites {
		for _, s := range suite.scenarios {
			for _, f := range s.figures {
				word, _, _ := strings.Cut(f.order(1), " ")
				if !bytes.Contains(source, []byte(`"`+word+`"`)) || !bytes.Contains(source, []byte(`"`+s.mode+`"`)) {
					t.Errorf("%s: ranks in C do not know %q, or mode %q", key(&s, f, nameC), word, s.mode)
				}
				for _, count := range []int{1, maxCount} {
					order := f.order(count)
					_, size, n, err := parseOrder(order)
					if suite.has(&s, nameOurs) && (err != nil || size != f.size || n != count || len(order) > runner.MaxOrder) {
						t.Errorf("%s: %d, %d, %v", order, size, n, err)
					}
				}
			}
		}
	}
	for _, order := range []string{"", "trips", "trips 1", "trips 1 1 1", "dance 1 1", "trips -1 1", "trips 1 0", "ring 99999999999 1", "ring a 1", "ring 1 99999999"} {
		if _, _, _, err := parseOrder(order); err == nil {
			t.Errorf("%q is an order", order)
		}
	}
}

var suites = []*suite{&messages, &programs}

// Every goal is one of some figure's: one that is hidden by a wider one before it, or matches none, would never be judged.
func TestEveryGoalCounts(t *testing.T) {
	for _, suite := range suites {
		for _, s := range suite.scenarios {
			used := make(map[*goal]bool)
			for _, f := range s.figures {
				for _, against := range []string{theBetter, nothing, nameOurs, nameOpenMPI} {
					used[s.goal(f, against)] = true
				}
			}
			for i := range s.goals {
				if !used[&s.goals[i]] {
					t.Errorf("%s: %+v is of no figure", s.name, s.goals[i])
				}
			}
		}
	}
}

func TestCountFor(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		ns   float64
		want int
	}{
		{time.Millisecond, 1000, 1000}, {time.Millisecond, 5e6, 1}, {time.Hour, 1, maxCount}, {0, 0, 1},
	} {
		if got := countFor(c.d, c.ns); got != c.want {
			t.Errorf("%v of %v ns: %d, want %d", c.d, c.ns, got, c.want)
		}
	}
}

// What a turn does between what it measures counts, too: with computing of 1 ms, a turn of 100 ms has 99 round trips of 10 us.
func TestBetween(t *testing.T) {
	for _, f := range []figure{{afterComputing, 1}, {halfRoundTrip, 1}} {
		want := map[kind]int{afterComputing: 99, halfRoundTrip: 10_000}[f.kind]
		if got := countFor(100*time.Millisecond, 10_000+float64(f.between())); got != want {
			t.Errorf("%v: %d, want %d", f, got, want)
		}
	}
}

// every has each implementation reach the given value.
func every(values map[string]float64) map[string]*series {
	runs := make(map[string]*series)
	for name, v := range values {
		runs[name] = &series{values: []float64{v - 1, v, v + 1}}
	}
	return runs
}

// judged returns every target of a suite, and what it is compared with. Its subject, and ours for Go, are exactly as good
// as MPICH, and Open MPI is half as good (half the value where more is better, else twice).
func judged(t *testing.T, suite *suite) string {
	t.Helper()
	var got []string
	for i := range suite.scenarios {
		s := &suite.scenarios[i]
		for _, f := range s.figures {
			values := map[string]float64{suite.subject: 4, nameOurs: 4, nameMPICH: 4, nameOpenMPI: 8}
			if f.moreIsBetter() {
				values[nameOpenMPI] = 2
			}
			maps.DeleteFunc(values, func(name string, _ float64) bool { return !suite.has(s, name) })
			runs := every(values)
			all := suite.rows(s, f, runs, []string{nameOpenMPI, suite.subject}, "reno")
			if all[0].Against != "" || all[0].Met != nil {
				t.Errorf("%+v: the peers are compared with nothing", all[0])
			}
			for _, row := range all[1:] {
				if row.Bench != suite.name || row.Value != 4 || row.Params["repeat"] != 3 || row.Params["spread"] != 0.25 {
					t.Errorf("%+v", row)
				}
				if _, has := row.Params["against_spread"]; has != (row.Against != "") {
					t.Errorf("%+v", row)
				}
				if row.Against != "" && row.Ratio != 4/bench.Median(runs[row.Against].values) {
					t.Errorf("%+v", row)
				}
				if row.Met != nil {
					against := ""
					if row.Against != "" {
						against = " vs " + row.Against
					}
					got = append(got, fmt.Sprintf("%s/%s/%d%s: %v %v", s.name, row.Figure, f.size, against, row.Target, *row.Met))
				}
			}
		}
	}
	return strings.Join(got, "\n")
}

func TestTargets(t *testing.T) {
	want := `
two-nodes/half_round_trip/0 vs mpich: 0.9 false
two-nodes/half_round_trip/1 vs mpich: 0.9 false
two-nodes/half_round_trip/8 vs mpich: 0.9 false
two-nodes/half_round_trip/64 vs mpich: 0.9 false
two-nodes/half_round_trip/1024 vs mpich: 0.9 false
two-nodes/half_round_trip/8192 vs mpich: 0.9 false
two-nodes/half_round_trip/65536 vs mpich: 0.5 false
two-nodes/half_round_trip/262144 vs mpich: 0.9 false
two-nodes/half_round_trip/1048576 vs mpich: 0.9 false
two-nodes/half_round_trip/4194304 vs mpich: 0.9 false
two-nodes/bandwidth/16 vs mpich: 1 true
two-nodes/bandwidth/64 vs mpich: 1 true
two-nodes/bandwidth/1024 vs mpich: 1 true
two-nodes/bandwidth/8192 vs mpich: 1 true
two-nodes/bandwidth/65536 vs mpich: 1.4 false
two-nodes/bandwidth/262144 vs mpich: 1 true
two-nodes/bandwidth/1048576 vs mpich: 1 true
two-nodes/bandwidth/4194304 vs mpich: 1 true
two-nodes/message_rate/16 vs mpich: 5 false
same-node/half_round_trip/1 vs mpich: 1 true
same-node/half_round_trip/65536 vs mpich: 0.5 false
same-node/half_round_trip/262144 vs mpich: 0.5 false
same-node/half_round_trip/1048576 vs mpich: 0.5 false
same-node/half_round_trip/4194304 vs mpich: 0.5 false
same-node/bandwidth/16 vs mpich: 1 true
same-node/bandwidth/64 vs mpich: 1 true
same-node/bandwidth/1024 vs mpich: 1 true
same-node/bandwidth/8192 vs mpich: 1 true
same-node/bandwidth/65536 vs mpich: 1 true
same-node/bandwidth/262144 vs mpich: 1 true
same-node/bandwidth/1048576 vs mpich: 1 true
same-node/bandwidth/4194304 vs mpich: 1 true
oversubscribed/ring_hop/1 vs openmpi: 1 true
oversubscribed/barrier/0 vs openmpi: 1 true
`
	if got := judged(t, &messages); got != strings.TrimSpace(want) {
		t.Errorf("targets:\n%s\nwant:%s", got, want)
	}
}

func TestTargetsOfPrograms(t *testing.T) {
	want := `
two-nodes/half_round_trip_beside_go/0 vs isthmus: 1.03 true
two-nodes/half_round_trip_beside_go/1 vs isthmus: 1.03 true
two-nodes/half_round_trip_beside_go/8 vs isthmus: 1.03 true
two-nodes/half_round_trip_beside_go/64 vs isthmus: 1.03 true
two-nodes/half_round_trip_beside_go/1024 vs isthmus: 1.03 true
two-nodes/half_round_trip_beside_go/8192 vs isthmus: 1.03 true
two-nodes/half_round_trip_beside_go/65536 vs isthmus: 1.03 true
two-nodes/half_round_trip_beside_go/262144 vs isthmus: 1.03 true
two-nodes/half_round_trip_beside_go/1048576 vs isthmus: 1.03 true
two-nodes/half_round_trip_beside_go/4194304 vs isthmus: 1.03 true
two-nodes/bandwidth_beside_go/16 vs isthmus: 0.97 true
two-nodes/bandwidth_beside_go/64 vs isthmus: 0.97 true
two-nodes/bandwidth_beside_go/1024 vs isthmus: 0.97 true
two-nodes/bandwidth_beside_go/8192 vs isthmus: 0.97 true
two-nodes/bandwidth_beside_go/65536 vs isthmus: 0.97 true
two-nodes/bandwidth_beside_go/262144 vs isthmus: 0.97 true
two-nodes/bandwidth_beside_go/1048576 vs isthmus: 0.97 true
two-nodes/bandwidth_beside_go/4194304 vs isthmus: 0.97 true
two-nodes/message_rate_beside_go/16 vs isthmus: 0.97 true
same-node/half_round_trip/1 vs mpich: 0.8 false
same-node/half_round_trip/1024 vs mpich: 1 true
same-node/half_round_trip/8192 vs mpich: 1 true
same-node/half_round_trip/65536 vs mpich: 1 true
same-node/half_round_trip/262144 vs mpich: 1 true
same-node/half_round_trip/1048576 vs mpich: 1 true
same-node/half_round_trip/4194304 vs mpich: 1 true
same-node/message_rate/16 vs mpich: 0.9 true
same-node/message_rate_absolute/16: 4 true
same-node/round_trip_after_computing/1 vs mpich: 2 true
two-threads/thread_hop/1 vs openmpi: 1 true
oversubscribed/ring_hop/1 vs openmpi: 1 true
singleton/init_time_absolute/0: 20 true
singleton/init_memory_absolute/0: 20 true
`
	if got := judged(t, &programs); got != strings.TrimSpace(want) {
		t.Errorf("targets:\n%s\nwant:%s", got, want)
	}
}

// A target against the better of two needs both, one against another implementation needs that, and one of a value none.
func TestTargetsNeedThePeers(t *testing.T) {
	for _, suite := range suites {
		for _, s := range suite.scenarios {
			for _, f := range s.figures {
				for _, name := range PeerNames() {
					if !suite.has(&s, name) {
						continue
					}
					row := suite.rows(&s, f, every(map[string]float64{suite.subject: 4, name: 4}), []string{suite.subject}, "reno")[0]
					if row.Against != name || (row.Met != nil) != (s.against != "" && name == s.against) {
						t.Errorf("%s with %s only: %+v", key(&s, f, suite.subject), name, row)
					}
				}
				alone := suite.rows(&s, f, every(map[string]float64{suite.subject: 4}), []string{suite.subject}, "reno")
				for _, row := range alone {
					if row.Against != "" || (row.Met != nil) != strings.HasSuffix(row.Figure, "_absolute") {
						t.Errorf("%s alone: %+v", key(&s, f, suite.subject), row)
					}
				}
			}
		}
	}
}

func TestPayload(t *testing.T) {
	for _, c := range []struct {
		f    figure
		want uint64
	}{
		{figure{halfRoundTrip, 10}, 60}, {figure{bandwidth, 10}, 1920}, {figure{barrier, 0}, 0}, {figure{halfRoundTrip, 0}, 0},
	} {
		if got := c.f.payload(3); got != c.want {
			t.Errorf("%v: %d, want %d", c.f, got, c.want)
		}
	}
}
