// Package plot is `isthmus-lab bench plot`: figures from the output of benchmarks with --json. It
// reads only rows of package bench, so it can draw those of every benchmark; only some parameter
// names, such as "bound_ms", have an agreed meaning. A Figure, which is drawn as lines over two
// axes with their units, a legend and marks, is independent of benchmarks, and other packages draw
// some of their own. The package keeps no state.
//
// # Figures
//
// Rows that differ only in x, the parameter that a curve runs over, and in who, the implementation
// and algorithm, share a figure. x is the first of axes that is a number and differs among them.
// Each value of who is a line; over flits each algorithm has a figure and each size a line. Rows
// without x are omitted. A parameter "bound_ms" adds a dashed line if all implementations share it,
// and a second figure with each value over its bound. A row whose parameter "chosen" is true is
// marked. Figures named "this_beside_that" only judge other rows, and are omitted.
package plot

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/isthmus-grid/isthmus/bench"
)

// axes are the parameters that a curve can run over, the likeliest first.
var axes = []string{"flits", "replicas", "size", "rows", "processes", "ranks", "streams", "carriers", "size_mb", "delay_ms", "rtt_ms"}

// who lists the parameters that distinguish a figure's lines.
var who = []string{"implementation", "algorithm", "technique", "mode"}

// remarks are parameters that say how a row was obtained, not what it measures.
var remarks = []string{
	"repeat", "repetitions", "spread", "against_spread", "version", "congestion", "cipher", paramBound, paramChosen, "late_ms", "predicted_ms",
	"rays_per_second", "handling", "mflops_per_rank",
}

// Parameters with a meaning of their own.
const (
	paramBound  = "bound_ms" // lower bound of the value, in ms
	paramChosen = "chosen"   // true: the row is marked
)

// Run reads the files, draws their figures into folder, and prints the name of each file to out.
func Run(files []string, folder string, out io.Writer) error {
	rows, err := bench.ReadFiles(files)
	if err != nil {
		return err
	}
	figures := Figures(rows)
	if len(figures) == 0 {
		return fmt.Errorf("nothing to draw: no two of %d rows differ in one of %s", len(rows), strings.Join(axes, ", "))
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		path := filepath.Join(folder, name+".png")
		if err := figures[name].WriteFile(path); err != nil {
			return err
		}
		fmt.Fprintln(out, path)
	}
	return nil
}

// Figures returns the figures of rows by file name, without extension.
func Figures(rows []bench.Row) map[string]Figure {
	figures := map[string]Figure{}
	for _, g := range groups(rows) {
		name := fileName(g.words())
		figures[name] = g.figure()
		if f, ok := g.overBound(); ok {
			figures[name+"-over-bound"] = f
		}
	}
	return figures
}

// A group is the rows of one figure.
type group struct {
	x     string
	key   string
	what  bench.Row // Bench, Figure, Unit
	same  []string  // values of its parameters, without those that distinguish lines
	lines map[string][]bench.Row
}

// groups groups rows by figure.
func groups(rows []bench.Row) []*group {
	byKey := map[string]*group{}
	for _, x := range axes {
		var rest []bench.Row
		found := map[string]*group{}
		for _, r := range rows {
			if _, ok := number(r, x); !ok || strings.Contains(r.Figure, "_beside_") {
				rest = append(rest, r)
				continue
			}
			g := newGroup(r, x)
			if found[g.key] == nil {
				found[g.key] = g
			}
			g = found[g.key]
			line := g.line(r)
			g.lines[line] = append(g.lines[line], r)
		}
		for key, g := range found {
			if g.varies() {
				byKey[key] = g
				continue
			}
			for _, l := range g.lines {
				rest = append(rest, l...)
			}
		}
		rows = rest
	}
	return slices.SortedFunc(maps.Values(byKey), func(a, b *group) int { return cmp.Compare(a.key, b.key) })
}

func newGroup(r bench.Row, x string) *group {
	g := &group{x: x, what: bench.Row{Bench: r.Bench, Figure: r.Figure, Unit: r.Unit}, lines: map[string][]bench.Row{}}
	for _, k := range slices.Sorted(maps.Keys(r.Params)) {
		if k != x && !slices.Contains(remarks, k) && !g.distinguishes(k) {
			g.same = append(g.same, say(k, r.Params[k]))
		}
	}
	g.key = strings.Join(append([]string{r.Bench, r.Figure, r.Unit, x}, g.same...), "\x00")
	return g
}

// distinguishes reports whether a parameter distinguishes the figure's lines.
func (g *group) distinguishes(key string) bool {
	if g.x == "flits" { // each algorithm has a figure
		return key == "implementation" || key == "size"
	}
	return slices.Contains(who, key)
}

// say describes a parameter in a few words.
func say(key string, value any) string {
	switch v := value.(type) {
	case string:
		return v // names need no key
	case float64:
		if key == "size" {
			return FormatBytes(v)
		}
	}
	return fmt.Sprintf("%s %v", strings.ReplaceAll(key, "_", " "), value)
}

// varies reports whether some line has two values of x.
func (g *group) varies() bool {
	for _, l := range g.lines {
		for _, r := range l[1:] {
			if r.Params[g.x] != l[0].Params[g.x] {
				return true
			}
		}
	}
	return false
}

func (g *group) words() []string {
	return append([]string{g.what.Bench, g.what.Figure}, append(slices.Clone(g.same), "by "+g.x)...)
}

// fileName joins words into one.
func fileName(words []string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '-'
	}, strings.Join(words, "-"))
}

// number returns the value of a numeric parameter.
func number(r bench.Row, key string) (float64, bool) {
	switch v := r.Params[key].(type) {
	case float64:
		return v, true
	case int:
		return float64(v), true
	}
	return 0, false
}

// line returns the name of the line that a row belongs to.
func (g *group) line(r bench.Row) string {
	var parts []string
	for _, k := range append(slices.Clone(who), "size") {
		if v := r.Params[k]; g.distinguishes(k) && v != "" && v != nil {
			parts = append(parts, say(k, v))
		}
	}
	if len(parts) == 0 {
		return g.what.Figure
	}
	return strings.Join(parts, " ")
}

func (g *group) title(more ...string) string {
	return strings.Join(slices.Concat([]string{g.what.Bench + ": " + strings.ReplaceAll(g.what.Figure, "_", " ")}, more, g.same), ", ")
}

func (g *group) axis() Axis {
	switch g.x {
	case "size":
		return Axis{Label: "size (bytes)", Log: true, Bytes: true}
	case "rows":
		return Axis{Label: g.x, Log: true}
	case "flits", "processes", "ranks", "streams", "carriers":
		return Axis{Label: g.x, Log: true, Whole: true}
	}
	return Axis{Label: strings.ReplaceAll(g.x, "_", " ")}
}

// hasZero reports whether a value is not above 0, as counts may be: a logarithmic axis would not show it.
func (g *group) hasZero() bool {
	for _, l := range g.lines {
		if slices.ContainsFunc(l, func(r bench.Row) bool { return r.Value <= 0 }) {
			return true
		}
	}
	return false
}

// figure returns the figure of the values.
func (g *group) figure() Figure {
	f := Figure{Title: g.title(), X: g.axis(), Y: Axis{Label: g.what.Figure + " (" + g.what.Unit + ")", Log: !g.hasZero()}}
	f.Y.Label = strings.ReplaceAll(f.Y.Label, "_", " ")
	f.Lines, f.Marks = g.curves(func(r bench.Row) (float64, bool) { return r.Value, true })
	bounds := map[float64]float64{}
	for _, l := range g.lines {
		for _, r := range l {
			x, _ := number(r, g.x)
			b, ok := number(r, paramBound)
			if known, seen := bounds[x]; !ok || seen && known != b {
				return f // not shared by all
			}
			bounds[x] = b
		}
	}
	bound := Line{Name: "lower bound", Dashed: true}
	for _, x := range slices.Sorted(maps.Keys(bounds)) {
		bound.X, bound.Y = append(bound.X, x), append(bound.Y, bounds[x])
	}
	f.Lines = append(f.Lines, bound)
	return f
}

// overBound returns the figure of the values over their bounds, if there are any.
func (g *group) overBound() (Figure, bool) {
	f := Figure{Title: g.title("over the lower bound"), X: g.axis(), Y: Axis{Label: "times the lower bound", Log: true}}
	f.Lines, f.Marks = g.curves(func(r bench.Row) (float64, bool) {
		b, ok := number(r, paramBound)
		return r.Value / b, ok && b > 0
	})
	var some bool
	one := Line{Name: "lower bound", Dashed: true}
	for _, l := range f.Lines {
		if len(l.X) > 0 {
			some = true
			one.X = append(one.X, l.X...)
		}
	}
	if !some {
		return f, false
	}
	slices.Sort(one.X)
	one.X = slices.Compact(one.X)
	for range one.X {
		one.Y = append(one.Y, 1)
	}
	f.Lines = append(f.Lines, one)
	return f, true
}

// curves returns the lines of the rows' values; it omits rows without one.
func (g *group) curves(value func(bench.Row) (float64, bool)) (lines []Line, marks []Mark) {
	for _, who := range slices.Sorted(maps.Keys(g.lines)) {
		rows := slices.SortedStableFunc(slices.Values(g.lines[who]), func(a, b bench.Row) int {
			x, _ := number(a, g.x)
			y, _ := number(b, g.x)
			return cmp.Compare(x, y)
		})
		l := Line{Name: who}
		for _, r := range rows {
			x, _ := number(r, g.x)
			y, ok := value(r)
			if !ok {
				continue
			}
			l.X, l.Y = append(l.X, x), append(l.Y, y)
			if r.Params[paramChosen] == true {
				marks = append(marks, Mark{X: x, Y: y, Text: "chosen"})
			}
		}
		lines = append(lines, l)
	}
	return lines, marks
}
