package stripebench

import (
	"testing"
)

// TestRows: figures are held against one carrier, and the target is that of the
// count it is meant for.
func TestRows(t *testing.T) {
	s := &scene{name: "path", counts: []int{1, 8, own}, target: 3, of: 8, params: map[string]any{"loss": 0.5}}
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
