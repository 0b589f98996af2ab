package stripe

import (
	"testing"
	"time"
)

// TestRows: figures are compared with one carrier, and the target is that of the intended count.
func TestRows(t *testing.T) {
	s := &scenario{name: "path", counts: []int{1, 8, own}, target: 3, of: 8, params: map[string]any{"loss": 0.5}}
	rows := s.rows([][]result{
		{{10, 1, 0}, {30, 1, 0}, {20, 1, 0}},
		{{90, 8, 0}, {100, 8, 0}, {80, 8, 0}},
		{{40, 5, 2}, {40, 6, 2}, {40, 7, 2}},
	})
	if len(rows) != 3 {
		t.Fatalf("%d rows", len(rows))
	}
	if r := rows[0]; r.Value != 20 || r.Against != "" || r.Met != nil || r.Params["carriers"] != 1.0 {
		t.Errorf("one carrier: %+v", r)
	}
	if r := rows[1]; r.Value != 90 || r.Ratio != 4.5 || r.Met == nil || !*r.Met || r.Target != 3 || r.Params["asked"] != 8 {
		t.Errorf("eight: %+v", r)
	}
	if r := rows[2]; r.Ratio != 2 || r.Met != nil || r.Params["carriers"] != 6.0 || r.Params["proxies"] != 2.0 || r.Params["loss"] != 0.5 {
		t.Errorf("its own choice: %+v", r)
	}
}

// TestSettled: a link that stalls for a second after its move has lost that second.
func TestSettled(t *testing.T) {
	var seen []arrived
	bytes := uint64(0)
	moved := time.Unix(3, 0)
	for at := time.Unix(0, 0); at.Before(time.Unix(20, 0)); at = at.Add(step) {
		seen = append(seen, arrived{at, bytes})
		if at.Before(moved) || at.Sub(moved) >= time.Second {
			bytes += 250_000 // 100 Mb/s
		}
	}
	full, cost := settled(seen, moved)
	if full < 99.9 || full > 100.1 || cost < 990*time.Millisecond || cost > 1010*time.Millisecond {
		t.Errorf("%v Mbit/s and a cost of %v", full, cost)
	}
	if _, cost := settled(seen, time.Unix(5, 0)); cost > step {
		t.Errorf("a move without a pause costs %v", cost)
	}
}

// TestLossyRows: figures are compared with TCP, and each target is judged.
func TestLossyRows(t *testing.T) {
	rows := lossyRows([]cell{
		{name: "raw", results: []result{{rate: 100}, {rate: 300}, {rate: 200}}},
		{name: "relay", target: 0.8, results: []result{{rate: 150, carriers: 1}}},
	}, []float64{11, 7, 9}, map[string]any{"loss": 0.01})
	if len(rows) != 3 || rows[0].Value != 200 || rows[0].Met != nil {
		t.Fatalf("%+v", rows)
	}
	if r := rows[1]; r.Ratio != 0.75 || r.Met == nil || *r.Met || r.Params["loss"] != 0.01 {
		t.Errorf("relay: %+v", r)
	}
	if r := rows[2]; r.Value != 9 || r.Met == nil || !*r.Met {
		t.Errorf("the move: %+v", r)
	}
}
