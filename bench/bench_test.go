package bench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestWriteJSON(t *testing.T) {
	var b strings.Builder
	rows := []Row{
		Row{Bench: "lab", Figure: "goodput", Params: map[string]any{"streams": 1}, Value: 900, Unit: "Mbit/s", Against: "plain", Ratio: 0.9}.AtLeast(0.95),
		{Bench: "lab", Figure: "rtt", Value: 20, Unit: "ms"},
	}
	if err := Write(&b, true, rows...); err != nil {
		t.Fatal(err)
	}
	want := `{"bench":"lab","figure":"goodput","params":{"streams":1},"value":900,"unit":"Mbit/s","against":"plain","ratio":0.9,"target":0.95,"met":false}
{"bench":"lab","figure":"rtt","params":null,"value":20,"unit":"ms","against":"","ratio":0,"target":0,"met":null}
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestWriteTable(t *testing.T) {
	var b strings.Builder
	row := Row{Figure: "rtt", Params: map[string]any{"b": 2, "a": 1}, Value: 20.5, Unit: "ms"}.AtMost(21)
	if err := Write(&b, false, row); err != nil {
		t.Fatal(err)
	}
	want := "FIGURE  CONDITIONS  VALUE     AGAINST  RATIO  TARGET  MET\n" +
		"rtt     a=1 b=2     20.50 ms                  21.00   yes\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestTargets(t *testing.T) {
	plain, compared := Row{Value: 5}, Row{Value: 5, Against: "x", Ratio: 0.5}
	for _, c := range []struct {
		row  Row
		want bool
	}{
		{plain.AtLeast(5), true}, {plain.AtLeast(5.1), false},
		{plain.AtMost(5), true}, {plain.AtMost(4.9), false},
		{plain.Within(6, 1), true}, {plain.Within(4, 1), true}, {plain.Within(6, 0.9), false}, {plain.Within(4, 0.9), false},
		{compared.AtLeast(0.5), true}, {compared.AtLeast(0.6), false}, {compared.AtMost(0.4), false},
	} {
		if *c.row.Met != c.want {
			t.Errorf("%+v: met %v", c.row, *c.row.Met)
		}
	}
}

// Where repetitions disagree, a target is neither met nor missed.
func TestUnsteady(t *testing.T) {
	for _, c := range []struct {
		params map[string]any
		judged bool
	}{
		{map[string]any{"spread": MaxSpread, "against_spread": MaxSpread}, true},
		{map[string]any{"spread": MaxSpread + 0.01}, false},
		{map[string]any{"spread": 0.1, "against_spread": MaxSpread + 0.01}, false},
	} {
		row := Row{Figure: "rtt", Params: c.params, Value: 2, Unit: "ms"}.AtMost(3)
		var b strings.Builder
		if err := Write(&b, false, row); err != nil {
			t.Fatal(err)
		}
		if row.Target != 3 || (row.Met != nil) != c.judged || strings.Contains(b.String(), "unsteady") == c.judged {
			t.Errorf("%+v\n%s", row, b.String())
		}
	}
}

func TestQuantile(t *testing.T) {
	v := []float64{4, 1, 3, 2}
	for _, c := range []struct{ q, want float64 }{{0, 1}, {1, 4}, {0.5, 2.5}, {1.0 / 3, 2}, {-1, 1}, {2, 4}} {
		if got := Quantile(v, c.q); got != c.want {
			t.Errorf("quantile %v: %v, want %v", c.q, got, c.want)
		}
	}
	if !slices.Equal(v, []float64{4, 1, 3, 2}) {
		t.Error("the values were sorted in place")
	}
	if Median(nil) != 0 || Spread(nil) != 0 || Median([]float64{7}) != 7 {
		t.Error("few values")
	}
	if got := Spread([]float64{1, 2, 3, 4, 5}); got != 2.0/3 {
		t.Errorf("spread %v", got)
	}
}

func TestInterleave(t *testing.T) {
	var order []string
	note := func(name string, err error) func(context.Context) (float64, error) {
		return func(context.Context) (float64, error) {
			order = append(order, name)
			return float64(len(order)), err
		}
	}
	got, err := Interleave(t.Context(), 2, note("a", nil), note("b", nil))
	if err != nil || strings.Join(order, "") != "abab" || !slices.Equal(got[0], []float64{1, 3}) || !slices.Equal(got[1], []float64{2, 4}) {
		t.Errorf("%v %v %v", order, got, err)
	}
	bad := errors.New("bad")
	if _, err := Interleave(t.Context(), 2, note("c", bad), note("d", nil)); err != bad || order[len(order)-1] != "c" {
		t.Errorf("%v after %v", err, order)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Interleave(ctx, 1, note("e", nil)); err == nil {
		t.Error("ran although ended")
	}
}

// With JSON rows are written when they come, else in the end.
func TestReport(t *testing.T) {
	for asJSON, want := range map[bool][]int{true: {1, 2, 2}, false: {0, 0, 3}} {
		var out strings.Builder
		r := Report{W: &out, JSON: asJSON}
		var got []int
		for _, step := range []func() error{
			func() error { return r.Add(Row{Bench: "x", Figure: "a"}) },
			func() error { return r.Add(Row{Bench: "x", Figure: "b"}) },
			r.End,
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
			got = append(got, strings.Count(out.String(), "\n"))
		}
		if !slices.Equal(got, want) || len(r.Rows) != 2 {
			t.Errorf("JSON %v: %d lines after each step, want %d; %d rows", asJSON, got, want, len(r.Rows))
		}
	}
}
