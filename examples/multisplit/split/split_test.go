package split

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/mpilib"
)

// The paper's application (Couturier et al., 2010, section 5.1), recomputed: 64 tasks of 550,000 rows with half
// the bandwidth 35,000 have 10 inside and 5 at the ends, 128 of 5,000,000 have 2.
func TestNeighbours(t *testing.T) {
	for _, c := range []struct{ rows, tasks, inside, end int }{{550_000, 64, 10, 5}, {5_000_000, 128, 2, 1}} {
		s := Split{System: Banded{N: c.rows, Band: 35_000}, Parts: c.tasks}
		needs := func(task int) (others int) {
			for from := range s.Parts {
				if from != task && s.Values(from, task) > 0 {
					others++
				}
			}
			return others
		}
		if in, end := needs(c.tasks/2), needs(0); in != c.inside || end != c.end {
			t.Errorf("%d rows for %d tasks: %d and %d neighbours, want %d and %d", c.rows, c.tasks, in, end, c.inside, c.end)
		}
	}
}

// Rows do not depend on how the system is cut, are within their reach and dominant; the banded ones are symmetric.
func TestSystems(t *testing.T) {
	for _, s := range []System{Banded{N: 200, Band: 30, Entries: 4, Shift: .1}, Convection{Grid: 5, Time: .1, Diffusion: 1, Speed: [3]float64{2, -1, 0}}} {
		all := s.Block(0, s.Rows())
		at := map[[2]int]float64{}
		for i, row := range all {
			if part := s.Block(i, i+1)[0]; fmt.Sprint(part) != fmt.Sprint(row) {
				t.Fatalf("%s: row %d alone is %v, want %v", s.Name(), i, part, row)
			}
			sum := 0.0
			for _, e := range row {
				at[[2]int{i, e.Col}] += e.Value
				if e.Col-i > s.Reach() || i-e.Col > s.Reach() || e.Col < 0 || e.Col >= s.Rows() {
					t.Errorf("%s: element %d of row %d", s.Name(), e.Col, i)
				}
				if e.Col != i {
					sum += math.Abs(e.Value)
				}
			}
			if at[[2]int{i, i}] <= sum {
				t.Errorf("%s: row %d is not dominant", s.Name(), i)
			}
		}
		for place, v := range at {
			if _, isBanded := s.(Banded); isBanded && at[[2]int{place[1], place[0]}] != v {
				t.Errorf("element %v is %g, and %g on the other side", place, v, at[[2]int{place[1], place[0]}])
			}
		}
	}
}

// Both modes find the solution of both systems.
func TestProgram(t *testing.T) {
	for _, args := range []string{
		"--rows 400 --band 60 --entries 3 --shift .2",
		"--system convection --grid 8 --steps 3",
		"--rows 50 --band 40 --reduction 1e-9", // a task needs more than its neighbours
	} {
		var out bytes.Buffer
		mpilib.TestWorld(t, 4, func(ctx context.Context, c *mpilib.Comm) error {
			o, err := parse(append(strings.Fields(args), "--json", "--tolerance", "1e-8"), io.Discard)
			if err != nil {
				return err
			}
			w := io.Discard
			if c.Rank() == 0 {
				w = &out
			}
			return report(ctx, c, o, w)
		})
		results := json.NewDecoder(&out)
		for _, mode := range []string{"sync", "async"} {
			var r Result
			if err := results.Decode(&r); err != nil {
				t.Fatal(err)
			}
			if r.Mode != mode || r.Ranks != 4 || !(r.Residual <= 1e-8*1.001) || !(r.Error <= 1e-6) || r.Least == 0 || r.Most < r.Least || r.Received == 0 {
				t.Errorf("%s: %+v", args, r)
			}
		}
	}
}

func TestArguments(t *testing.T) {
	for _, args := range []string{"--system none", "--mode fast", "--rows 0", "--shift 0", "--reduction 1", "more"} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}
