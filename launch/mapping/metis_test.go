package mapping

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The examples of the METIS manual, figure 2: the same graph of 7 vertices and 11 edges without weights, with
// weights of edges, of both, and with sizes.
func TestReadMETIS(t *testing.T) {
	neighbours := [][]int{{5, 3, 2}, {1, 3, 4}, {5, 4, 2, 1}, {2, 3, 6, 7}, {1, 3, 6}, {5, 4, 7}, {6, 4}}
	weights := map[string]int{"1 5": 1, "1 3": 2, "1 2": 1, "2 3": 2, "2 4": 1, "3 5": 3, "3 4": 2, "4 6": 2, "4 7": 5, "5 6": 2, "6 7": 6}
	cost := []int{4, 2, 5, 3, 1, 6, 2}
	for _, c := range [][2]string{{"", "000"}, {"1", "001"}, {"001", "001"}, {"11", "011"}, {"11 1", "011"}, {"10", "010"}, {"111", "111"}, {"100", "100"}} {
		code, format := c[0], c[1]
		var file strings.Builder
		fmt.Fprintf(&file, "%% a comment\n7 11 %s\n", code)
		want := &Graph{make([]float64, 7), make([][]Edge, 7)}
		for v, all := range neighbours {
			if v == 3 {
				file.WriteString("% another one\n")
			}
			want.Cost[v] = 1
			if format[0] == '1' {
				fmt.Fprint(&file, "9 ")
			}
			if format[1] == '1' {
				fmt.Fprint(&file, cost[v], " ")
				want.Cost[v] = float64(cost[v])
			}
			for _, u := range all {
				w := weights[fmt.Sprint(min(v+1, u), max(v+1, u))]
				if format[2] == '1' {
					fmt.Fprintf(&file, "%d  %d ", u, w)
				} else {
					w = 1
					fmt.Fprint(&file, u, " ")
				}
				want.Edges[v] = append(want.Edges[v], Edge{u - 1, float64(w)})
			}
			file.WriteByte('\n')
			slices.SortFunc(want.Edges[v], func(a, b Edge) int { return a.Task - b.Task })
		}
		file.WriteString("\n")
		got, err := ReadMETIS(strings.NewReader(file.String()))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("format %q: %+v, %v, want %+v, from\n%s", code, got, err, want, file.String())
		}
	}
}

// An empty line is a vertex without neighbours, also the last.
func TestVerticesWithoutNeighbours(t *testing.T) {
	g, err := ReadMETIS(strings.NewReader("3 1\n\n3\n2\n"))
	if err != nil || len(g.Edges[0]) != 0 || g.EdgeCount() != 1 {
		t.Errorf("%+v, %v", g, err)
	}
}

func TestReadMETISRefuses(t *testing.T) {
	for _, c := range []struct {
		file string
		line int // 0: of the whole file
		want string
	}{
		{"", 0, "the file is empty"},
		{"% only a comment\n", 0, "the file is empty"},
		{"3\n", 1, "1 fields"},
		{"1 2 3 4 5\n", 1, "5 fields"},
		{"x 1\n", 1, `"x" is not a number of vertices`},
		{"0 0\n", 1, `"0" is not a number of vertices`},
		{"2000000 0\n", 1, "want 1 to 1048576"},
		{"2 -1\n", 1, `"-1" is not a number of edges`},
		{"2 1 2\n", 1, `format "2"`},
		{"2 1 0011\n", 1, `format "0011"`},
		{"2 1 011 2\n", 1, `"2" weights for each vertex`},
		{"2 1 001 1\n", 1, `"1" weights for each vertex`},
		{"2 1\n2\n", 2, "ends after 1 of 2 vertices"},
		{"2 1\n2\n1\n1\n", 4, "more than 2 vertices"},
		{"2 1\n3\n1\n", 2, `"3" is not a vertex: want 1 to 2`},
		{"2 1\n1\n1\n", 2, "its own neighbour"},
		{"3 2\n2 2\n1\n\n", 2, "has neighbour 2 twice"},
		{"2 1 1\n2\n1 1\n", 2, "last neighbour of vertex 1 has no weight"},
		{"2 1 1\n2 0\n1 0\n", 2, `"0" is not the weight of an edge`},
		{"2 1 1\n2 1\n% x\n1 2\n", 2, "not the other way round: see line 4"},
		{"2 1\n2\n\n", 2, "not the other way round: see line 3"},
		{"2 1 10\n-1 2\n1 1\n", 2, `"-1" is not a weight`},
		{"2 1 10\n\n1 1\n", 2, "has no weight"},
		{"2 1 100\n\n1 1\n", 2, "has no size"},
		{"2 1 100\nx 2\n1 1\n", 2, `"x" is not a size`},
		{"2 2\n2\n1\n", 1, "says 2 edges, there are 1"},
		{"3 1\n2 3\n1 3\n1 2\n", 3, "too many"},
	} {
		g, err := ReadMETIS(strings.NewReader(c.file))
		line := 0
		var at *ParseError
		if errors.As(err, &at) {
			line = at.Line
		}
		if g != nil || err == nil || line != c.line || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, %v; want line %d, %q", c.file, g, err, c.line, c.want)
		}
	}
	long := "1 0\n" + strings.Repeat(" ", MaxLineSize+1)
	if _, err := ReadMETIS(strings.NewReader(long)); err == nil || !strings.Contains(err.Error(), "line 2: longer than") {
		t.Errorf("a line that is too long: %v", err)
	}
}

func FuzzReadMETIS(f *testing.F) {
	f.Add("3 2 011\n1 2 5\n1 1 5 3 2\n4 2 2\n")
	f.Fuzz(func(t *testing.T, file string) {
		g, err := ReadMETIS(strings.NewReader(file))
		if (g == nil) == (err == nil) {
			t.Fatalf("%v, %v", g, err)
		}
	})
}
