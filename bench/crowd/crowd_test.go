package crowd

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/broker"
	"github.com/isthmus-grid/isthmus/overlay"
)

func TestCheck(t *testing.T) {
	good := Options{From: "stateful", To: "no-route/nat", Ranks: 100, Nodes: 4}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Options){
		`unknown preset "moat"`: func(o *Options) { o.To = "moat" },
		"0 nodes":               func(o *Options) { o.Nodes = 0 },
		"3 ranks at a site":     func(o *Options) { o.Ranks = 3 },
		"9999 ranks":            func(o *Options) { o.Ranks = 9999 },
	} {
		o := good
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

// The rows count what came between the two ledgers, and judge a storm.
func TestRows(t *testing.T) {
	counts := func(open, relay uint64) map[overlay.Technique]broker.SignallingByResult {
		return map[overlay.Technique]broker.SignallingByResult{
			overlay.SimultaneousOpen: {Asked: open}, overlay.Relay: {Asked: relay},
		}
	}
	c := &crowd{
		allUp: 250 * time.Millisecond, setups: []float64{10, 20, 240},
		links:  map[overlay.Technique]int{overlay.SimultaneousOpen: 3},
		before: ledger{CounterStatus: broker.CounterStatus{Resolves: 5, Questions: 7, Signalling: counts(10, 2)}},
		after:  ledger{CounterStatus: broker.CounterStatus{Resolves: 6, Questions: 10, Signalling: counts(13, 3)}, decisions: 1},
	}
	find := func(figure, technique string) bench.Row {
		t.Helper()
		for _, r := range c.rows(Options{From: "stateful", To: "nat", Ranks: 3, Nodes: 1}, "cold") {
			if by, _ := r.Params["technique"].(string); r.Figure == figure && by == technique {
				return r
			}
		}
		t.Fatalf("no row %s %s", figure, technique)
		return bench.Row{}
	}
	for _, tc := range []struct {
		figure, technique string
		want              float64
	}{
		{"all_up", "", 250},
		{"setup_p50", "", 20},
		{"setup_max", "", 240},
		{"decisions", "", 1},
		{"resolve_calls", "", 1},
		{"resolve_questions", "", 3},
		{"signalling", "", 4},
		{"signalling_by", "simultaneous-open", 3},
		{"signalling_by", "relay", 1},
		{"links_by", "simultaneous-open", 3},
	} {
		if r := find(tc.figure, tc.technique); r.Value != tc.want || r.Met != nil && !*r.Met {
			t.Errorf("%s %s: %v (met %v), want %v", tc.figure, tc.technique, r.Value, r.Met, tc.want)
		}
	}
	c.after.Signalling = counts(13, 100)
	c.after.decisions = 2
	for _, figure := range []string{"signalling", "decisions"} {
		if r := find(figure, ""); r.Met == nil || *r.Met {
			t.Errorf("%s: a storm of %v passes", figure, r.Value)
		}
	}
}
