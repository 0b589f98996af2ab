package paper

import (
	"context"
	"slices"
	"testing"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/launch/mapping"
)

// Two tasks, and the two fast nodes are the smaller cluster: SMa has at best what there is without a mapping, and AIAC-QM
// twice the power or more.
func TestMappedRows(t *testing.T) {
	small := mapping.Testbed{Clusters: [][2]int{{3, 2}, {2, 8}}, Tasks: 2, Rows: 100_000}
	rows, err := mapped(small, [3]float64{1, 2, 3}, "AIAC-QM", "SMa")(Options{}, context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		of := rows[4*i:]
		if got := met(of[:2]); of[0].Value > 0 || of[1].Value < 50 || of[3].Value != of[1].Value-of[0].Value || !slices.Equal(got, []bool{false, true}) || !*of[3].Met {
			t.Errorf("%v", of[:4])
		}
	}
	if len(rows) != 4*len(coreSeconds) {
		t.Errorf("%d rows", len(rows))
	}
	ended, end := context.WithCancel(context.Background())
	end()
	if _, err := mapped(small, [3]float64{1, 2, 3}, "SMa")(Options{}, ended); err == nil {
		t.Error("it goes on after its context")
	}
}

func TestParameterRows(t *testing.T) {
	rows := func(gains ...float64) []bench.Row {
		gain := map[string]float64{}
		for i, name := range []string{"AIAC-QM with f 0.1", "AIAC-QM with f 0.5", "AIAC-QM with f 0.9", "F-EC with delta 0.1", "F-EC with delta 0.5", "F-EC with delta 0.9"} {
			gain[name] = gains[i]
		}
		return parameterRows(gain, "")
	}
	article := rows(30, 32, 30, 40, 37, 45)
	if got := met(article); !slices.Equal(got, []bool{true, true, true}) || article[0].Value != 2 || article[1].Value != 5 || article[2].Value != 3 {
		t.Errorf("%v", article)
	}
	if got := met(rows(30, 35, 30, 40, 41, 40)); !slices.Equal(got, []bool{false, false, false}) {
		t.Errorf("%v", got)
	}
}
