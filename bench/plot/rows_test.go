package plot

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/bench"
)

// output returns the output of a benchmark: implementations over sizes, and over flits.
func output(t *testing.T) string {
	t.Helper()
	var rows []bench.Row
	for i, who := range []string{"isthmus", "mpich"} {
		for _, size := range []int{1024, 8, 65536} { // in any order
			rows = append(rows, bench.Row{Bench: "coll", Figure: "time", Unit: "ms", Value: float64(size + i), Params: map[string]any{
				"scenario": "2x4/8ms", "collective": "bcast", "implementation": who, "algorithm": "", "size": size, "spread": 0.01 * float64(size), "bound_ms": float64(size) / 2,
			}})
		}
	}
	for _, size := range []int{1024, 8} {
		for _, flits := range []int{1, 2, 4} {
			rows = append(rows, bench.Row{Bench: "coll", Figure: "time", Unit: "ms", Value: float64(flits), Params: map[string]any{
				"scenario": "2x4/8ms", "collective": "gather", "implementation": "isthmus", "algorithm": "two-level", "size": size, "flits": flits, "chosen": flits == 2,
			}})
		}
	}
	for _, size := range []int{8, 16} {
		rows = append(rows, bench.Row{Bench: "coll", Figure: "time_beside_best", Unit: "ms", Value: 1, Params: map[string]any{"size": size}})
	}
	rows = append(rows, bench.Row{Bench: "coll", Figure: "alone", Unit: "ms", Value: 1, Params: map[string]any{"size": 8}})
	var b bytes.Buffer
	if err := bench.WriteJSON(&b, rows...); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFigures(t *testing.T) {
	rows, err := bench.Read("test", strings.NewReader(output(t)))
	if err != nil {
		t.Fatal(err)
	}
	figures := Figures(rows)
	const bySize, byFlits = "coll-time-bcast-2x4-8ms-by-size", "coll-time-two-level-gather-2x4-8ms-by-flits"
	names := slices.Sorted(maps.Keys(figures))
	if !slices.Equal(names, []string{bySize, bySize + "-over-bound", byFlits}) {
		t.Fatalf("figures %q", names)
	}
	var lines []string
	for _, name := range names {
		for _, l := range figures[name].Lines {
			lines = append(lines, fmt.Sprint(l.Name, l.X, l.Y))
		}
	}
	want := []string{
		"isthmus[8 1024 65536] [8 1024 65536]", "mpich[8 1024 65536] [9 1025 65537]", "lower bound[8 1024 65536] [4 512 32768]",
		"isthmus[8 1024 65536] [2 2 2]", "mpich[8 1024 65536] [2.25 2.001953125 2.000030517578125]", "lower bound[8 1024 65536] [1 1 1]",
		"isthmus 1 KiB[1 2 4] [1 2 4]", "isthmus 8 B[1 2 4] [1 2 4]",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("lines\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if f := figures[bySize]; f.Title != "coll: time, bcast, 2x4/8ms" || f.Y.Label != "time (ms)" || f.X.Label != "size (bytes)" || len(f.Marks) != 0 {
		t.Errorf("%q, %+v, %+v, %v", f.Title, f.X, f.Y, f.Marks)
	}
	if m := figures[byFlits].Marks; len(m) != 2 || m[0].X != 2 || m[0].Text != "chosen" {
		t.Errorf("marks %v", m)
	}
}

// Both modes of iterations share a figure over the distance, for each loss.
func TestModesByDistance(t *testing.T) {
	var rows []bench.Row
	for _, loss := range []float64{0, 0.1} {
		for i, rtt := range []float64{50, 10, 20} {
			for _, mode := range []string{"sync", "async"} {
				rows = append(rows, bench.Row{Bench: "aiac", Figure: "time", Unit: "s", Value: float64(i + len(mode)), Params: map[string]any{
					"mode": mode, "rtt_ms": rtt, "loss": loss, "rows": 4000, "repeat": 3,
				}})
			}
		}
	}
	figures := Figures(rows)
	for _, name := range []string{"aiac-time-loss-0-rows-4000-by-rtt_ms", "aiac-time-loss-0.1-rows-4000-by-rtt_ms"} {
		f := figures[name]
		if len(f.Lines) != 2 || fmt.Sprint(f.Lines) != "[{async [10 20 50] [6 7 5] false} {sync [10 20 50] [5 6 4] false}]" || f.X.Label != "rtt ms" || f.Y.Label != "time (s)" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if len(figures) != 2 {
		t.Errorf("figures %q", slices.Sorted(maps.Keys(figures)))
	}
}

// A count of which some or all are 0 has a figure with a linear axis, which shows them.
func TestZeros(t *testing.T) {
	for _, most := range []float64{0, 5} {
		var rows []bench.Row
		for rtt := range 2 {
			rows = append(rows, bench.Row{Bench: "aiac", Figure: "values_overwritten", Unit: "values", Value: most * float64(rtt), Params: map[string]any{"rtt_ms": rtt}})
		}
		f := Figures(rows)["aiac-values_overwritten-by-rtt_ms"]
		if err := f.WritePNG(io.Discard); err != nil || f.Y.Log {
			t.Errorf("at most %g: %v, %+v", most, err, f.Y)
		}
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	in, to := filepath.Join(dir, "in.json"), filepath.Join(dir, "to")
	if err := os.WriteFile(in, []byte(output(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	if err := Run([]string{in}, to, &said); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(to + "/*.png")
	if told := slices.Sorted(strings.Lines(said.String())); !slices.Equal(told, slices.Sorted(strings.Lines(strings.Join(files, "\n")+"\n"))) || len(files) != 3 {
		t.Errorf("told %q, there are %q", told, files)
	}
	for text, want := range map[string]string{
		"":                     "nothing to draw",
		"hello":                "in.json: row 1: ",
		`{"bench":"x"}`:        "names no benchmark",
		`{"bench":1}`:          "in.json: row 1: ",
		output(t) + `{"bench"`: "row 16: ",
	} {
		if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Run([]string{in}, to, &said); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
	if err := Run([]string{filepath.Join(dir, "absent")}, to, &said); err == nil {
		t.Error("a file that is not there was read")
	}
}
