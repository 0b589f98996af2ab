package p2p

import (
	"fmt"
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
	s := &scenarios[len(scenarios)-1] // four ranks
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
	} {
		if got := fmt.Sprint(c.f.value(s, c.ns), " ", c.f.unit()); got != c.want {
			t.Errorf("%s: %s, want %s", c.f.kind, got, c.want)
		}
	}
}

// Every order of the plan is one that ranks understand.
func TestOrders(t *testing.T) {
	for i := range scenarios {
		for _, f := range scenarios[i].figures {
			for _, count := range []int{1, maxCount} {
				order := f.order(count)
				_, size, n, err := parseOrder(order)
				if err != nil || size != f.size || n != count || len(order) > runner.MaxOrder {
					t.Errorf("%s: %d, %d, %v", order, size, n, err)
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

// every has each implementation reach the given value.
func every(values map[string]float64) map[string]*series {
	runs := make(map[string]*series)
	for name, v := range values {
		runs[name] = &series{values: []float64{v - 1, v, v + 1}}
	}
	return runs
}

// Every target, and what it is compared with. Ours is exactly as good as MPICH, and Open MPI is
// half as good (half the value where more is better, else twice).
func TestTargets(t *testing.T) {
	var got []string
	for i := range scenarios {
		s := &scenarios[i]
		for _, f := range s.figures {
			runs := every(map[string]float64{nameOurs: 4, nameMPICH: 4, nameOpenMPI: 8})
			if f.moreIsBetter() {
				runs = every(map[string]float64{nameOurs: 4, nameMPICH: 4, nameOpenMPI: 2})
			}
			all := rows(s, f, runs, []string{nameOurs, nameMPICH}, "reno")
			if all[1].Against != "" || all[1].Met != nil {
				t.Errorf("%+v: the peers are compared with nothing", all[1])
			}
			row := all[0]
			if row.Ratio != 4/bench.Median(runs[row.Against].values) || row.Params["repeat"] != 3 || row.Params["spread"] != 0.25 {
				t.Errorf("%+v", row)
			}
			if row.Met != nil {
				got = append(got, fmt.Sprintf("%s vs %s: %v %v", key(s, f, nameOurs), row.Against, row.Target, *row.Met))
			}
		}
	}
	want := `
two-nodes/half_round_trip/0/isthmus vs mpich: 0.9 false
two-nodes/half_round_trip/1/isthmus vs mpich: 0.9 false
two-nodes/half_round_trip/8/isthmus vs mpich: 0.9 false
two-nodes/half_round_trip/64/isthmus vs mpich: 0.9 false
two-nodes/half_round_trip/1024/isthmus vs mpich: 0.9 false
two-nodes/half_round_trip/8192/isthmus vs mpich: 0.9 false
two-nodes/half_round_trip/65536/isthmus vs mpich: 0.5 false
two-nodes/half_round_trip/262144/isthmus vs mpich: 0.9 false
two-nodes/half_round_trip/1048576/isthmus vs mpich: 0.9 false
two-nodes/half_round_trip/4194304/isthmus vs mpich: 0.9 false
two-nodes/bandwidth/16/isthmus vs mpich: 1 true
two-nodes/bandwidth/64/isthmus vs mpich: 1 true
two-nodes/bandwidth/1024/isthmus vs mpich: 1 true
two-nodes/bandwidth/8192/isthmus vs mpich: 1 true
two-nodes/bandwidth/65536/isthmus vs mpich: 1.4 false
two-nodes/bandwidth/262144/isthmus vs mpich: 1 true
two-nodes/bandwidth/1048576/isthmus vs mpich: 1 true
two-nodes/bandwidth/4194304/isthmus vs mpich: 1 true
two-nodes/message_rate/16/isthmus vs mpich: 5 false
same-node/half_round_trip/1/isthmus vs mpich: 1 true
same-node/half_round_trip/65536/isthmus vs mpich: 0.5 false
same-node/half_round_trip/262144/isthmus vs mpich: 0.5 false
same-node/half_round_trip/1048576/isthmus vs mpich: 0.5 false
same-node/half_round_trip/4194304/isthmus vs mpich: 0.5 false
same-node/bandwidth/16/isthmus vs mpich: 1 true
same-node/bandwidth/64/isthmus vs mpich: 1 true
same-node/bandwidth/1024/isthmus vs mpich: 1 true
same-node/bandwidth/8192/isthmus vs mpich: 1 true
same-node/bandwidth/65536/isthmus vs mpich: 1 true
same-node/bandwidth/262144/isthmus vs mpich: 1 true
same-node/bandwidth/1048576/isthmus vs mpich: 1 true
same-node/bandwidth/4194304/isthmus vs mpich: 1 true
oversubscribed/ring_hop/1/isthmus vs openmpi: 1 true
oversubscribed/barrier/0/isthmus vs openmpi: 1 true
`
	if strings.Join(got, "\n") != strings.TrimSpace(want) {
		t.Errorf("targets:\n%s\nwant:%s", strings.Join(got, "\n"), want)
	}
}

// A target against the better of two needs both.
func TestTargetsNeedThePeers(t *testing.T) {
	for _, s := range scenarios {
		for _, f := range s.figures {
			for _, name := range PeerNames() {
				row := rows(&s, f, every(map[string]float64{nameOurs: 4, name: 4}), []string{nameOurs}, "reno")[0]
				if row.Against != name || (row.Met != nil) != (s.oneCPU && name == nameOpenMPI) {
					t.Errorf("%s with %s only: %+v", key(&s, f, nameOurs), name, row)
				}
			}
			if row := rows(&s, f, every(map[string]float64{nameOurs: 4}), []string{nameOurs}, "reno")[0]; row.Against != "" || row.Met != nil {
				t.Errorf("%s alone: %+v", key(&s, f, nameOurs), row)
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
