package replicas

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/mpilib"
)

func TestCheck(t *testing.T) {
	good := Options{Class: "S", Ranks: []int{4, 8}, Most: 4, Repeat: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Options){
		"--class D":                func(o *Options) { o.Class = "D" },
		"--repeat 0":               func(o *Options) { o.Repeat = 0 },
		"--replicas 1":             func(o *Options) { o.Most = 1 },
		"--ranks: want":            func(o *Options) { o.Ranks = nil },
		"--ranks 6 with":           func(o *Options) { o.Ranks = []int{4, 6} },
		"--ranks 32 with 4 replic": func(o *Options) { o.Ranks = []int{32} },
	} {
		o := good
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

func TestRole(t *testing.T) {
	r := role{port: 7700, ranks: 2, replicas: 2, primary: true, number: 3}
	for i := range 4 {
		r.addr = append(r.addr, netip.AddrFrom4([4]byte{10, 9, byte(i), 2}))
	}
	if got, err := parseRole(r.String()); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("%q is parsed to %+v, %v", r, got, err)
	}
	for _, text := range []string{"", "7700 2 2 true", "7700 2 2 true 3 10.9.0.2", strings.Replace(r.String(), "10.9.1.2", "host", 1), strings.Replace(r.String(), "true 3", "true 4", 1)} {
		if got, err := parseRole(text); err == nil {
			t.Errorf("%q is parsed to %+v", text, got)
		}
	}
}

// Processes with replicas carry out orders, and count what they send.
func TestObey(t *testing.T) {
	mpilib.TestWorld(t, 2, func(ctx context.Context, c *mpilib.Comm) error {
		var out bytes.Buffer
		if err := obey(ctx, c, strings.NewReader("trips 100 20\nkernel is S\n"), &out); err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		var first, last traffic
		if len(lines) != 3 || lines[0] != "ready" || !first.scan(lines[1]) || !last.scan(lines[2]) {
			return fmt.Errorf("answers %q", lines)
		}
		if first.dataBytes < 2000 || last.sends <= first.sends || last.data > last.sends || last.data <= first.data {
			return fmt.Errorf("it has sent %+v, %+v", first, last)
		}
		return nil
	}, mpilib.WithReplicas(2))
}

// scan reads a process's answer.
func (t *traffic) scan(line string) bool {
	_, err := fmt.Sscanf(line, "ok %d %d %d %d %d", &t.sends, &t.data, &t.acks, &t.dataBytes, &t.acrossBytes)
	return err == nil
}

func TestRefusesOrders(t *testing.T) {
	mpilib.TestWorld(t, 2, func(ctx context.Context, c *mpilib.Comm) error {
		for _, order := range []string{"", "trips", "trips -1 5", "trips 99999999 1", "kernel", "kernel lu S", "walk is S", "kernel is Q"} {
			if err := carryOut(ctx, c, order); err == nil {
				return fmt.Errorf("%q was carried out", order)
			}
		}
		return nil
	})
}

func find(t *testing.T, rows []bench.Row, figure string) bench.Row {
	t.Helper()
	for _, r := range rows {
		if r.Figure == figure {
			return r
		}
	}
	t.Fatalf("no row %s", figure)
	return bench.Row{}
}

// Each turn is compared with its own jobs, and messages are counted per message of the program.
func TestOverhead(t *testing.T) {
	c := comparison{place: "site", what: "trips 65536", ranks: 2, size: 64 << 10, most: 1.1}
	good := traffic{sends: 2000, data: 2000, acks: 100, dataBytes: 100 * 2000, acrossBytes: 4000}
	rows := overhead(c, []float64{2.1, 3, 1.1}, []float64{2, 2, 1}, good)
	if r := find(t, rows, "overhead"); math.Abs(r.Ratio-1.1) > 1e-9 || r.Value != 2.1 || r.Against != sideBySide || r.Met == nil {
		t.Errorf("%+v", r)
	}
	for _, figure := range []string{"data_per_message", "acks_per_data", "across_per_byte"} {
		if r := find(t, rows, figure); r.Met == nil || !*r.Met {
			t.Errorf("%+v", r)
		}
	}
	rows = overhead(c, []float64{1}, []float64{1}, traffic{sends: 2000, data: 2030, acks: 102, dataBytes: 100 * 2030, acrossBytes: 4100})
	for _, figure := range []string{"data_per_message", "acks_per_data", "across_per_byte"} {
		if r := find(t, rows, figure); r.Met == nil || *r.Met {
			t.Errorf("%+v is good enough", r)
		}
	}
	if r := find(t, overhead(c, []float64{1}, []float64{1}, traffic{sends: 1, data: 1, dataBytes: 1, acrossBytes: 1}), "across_per_byte"); r.Met != nil {
		t.Errorf("messages of 1 byte have a target: %+v", r)
	}
	if r := find(t, overhead(c, []float64{1}, []float64{1}, traffic{sends: 1, data: 1, acks: 1, dataBytes: 1 << 20}), "acks_per_data"); r.Met != nil {
		t.Errorf("messages of 1 MiB have a target: %+v", r)
	}
}

func TestGrowth(t *testing.T) {
	of := map[string]series{wayPrimary: {1, 3, 5, 7}, wayParallel: {1, 2, 3, 4}, sideBySide: {1, 1.8, 2.6, 3.4}}
	spreads := map[string][]float64{wayPrimary: make([]float64, 4), wayParallel: make([]float64, 4), sideBySide: make([]float64, 4)}
	rows := growth("A", 4, 5, of, spreads)
	if n := len(rows); n != 12+3 {
		t.Errorf("%d rows", n)
	}
	if r := find(t, rows, "is_slope_primary"); math.Abs(r.Value-2) > 1e-9 {
		t.Errorf("%+v", r)
	}
	if r := find(t, rows, "is_linear_primary"); math.Abs(r.Value-1) > 1e-9 || !*r.Met {
		t.Errorf("%+v", r)
	}
	if r := find(t, rows, "is_slope_parallel_beyond_jobs"); math.Abs(r.Ratio-0.1) > 1e-9 || !*r.Met || r.Against != wayPrimary {
		t.Errorf("%+v", r)
	}
	of[wayPrimary], of[wayParallel] = series{1, 3, 3, 4}, series{1, 2.4, 3.8, 5.2}
	rows = growth("A", 4, 5, of, spreads)
	for _, figure := range []string{"is_linear_primary", "is_slope_parallel_beyond_jobs"} {
		if r := find(t, rows, figure); *r.Met {
			t.Errorf("%+v is good enough", r)
		}
	}
}

func TestOrders(t *testing.T) {
	for _, c := range comparisons("W") {
		switch want := map[bool]string{true: "kernel ", false: "trips "}[c.size < 0]; {
		case !strings.HasPrefix(c.order(7), want), c.size < 0 && !strings.HasSuffix(c.order(7), " W"), c.size >= 0 && !strings.HasSuffix(c.order(7), " 7"):
			t.Errorf("%s: order %q", c.key(), c.order(7))
		case c.delay > time.Second:
			t.Errorf("%+v", c)
		}
	}
}
