package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib"
)

func TestMeasure(t *testing.T) {
	p := plan{from: 2, to: 0, reps: 3, sizes: []int{0, 1, 100_000}}
	mpilib.TestWorld(t, 3, func(ctx context.Context, comm *mpilib.Comm) error {
		out, err := measure(ctx, comm, p)
		if err != nil {
			return err
		}
		if comm.Rank() != p.from {
			if len(out.figures) != 0 {
				return fmt.Errorf("figures where nothing was measured: %+v", out)
			}
			return nil
		}
		if len(out.figures) != 3 || out.first <= 0 {
			return fmt.Errorf("outcome %+v", out)
		}
		for i, f := range out.figures {
			if f.bytes != p.sizes[i] || f.min <= 0 || f.median < f.min || f.technique != "local" {
				return fmt.Errorf("figure %+v", f)
			}
		}
		return nil
	})
}

// Replicas of the rank that measures have the same times.
func TestReplicas(t *testing.T) {
	p := plan{from: 0, to: 1, reps: 3, sizes: []int{0, 1000}}
	var mu sync.Mutex
	var found []string
	mpilib.TestWorld(t, 2, func(ctx context.Context, comm *mpilib.Comm) error {
		out, err := measure(ctx, comm, p)
		if comm.Rank() == p.from {
			mu.Lock()
			defer mu.Unlock()
			found = append(found, fmt.Sprint(out))
		}
		return err
	}, mpilib.WithReplicas(2))
	if len(found) != 2 || found[0] != found[1] {
		t.Errorf("they have\n%s", strings.Join(found, "\n"))
	}
}

// An echo that changes a byte must be noticed.
func TestChangedBytesAreSeen(t *testing.T) {
	p := plan{from: 0, to: 1, reps: 1, sizes: []int{8}}
	mpilib.TestWorld(t, 2, func(ctx context.Context, comm *mpilib.Comm) error {
		if comm.Rank() == 0 {
			_, err := drive(ctx, comm, p)
			if err == nil || err.Error() != "8 bytes came back from rank 1 changed" {
				return fmt.Errorf("error is %v", err)
			}
			return nil
		}
		for _, size := range []int{0, 8} {
			buf := make([]byte, size)
			if _, err := mpilib.Recv(ctx, comm, buf, 0, tag); err != nil {
				return err
			}
			for i := range buf {
				buf[i] ^= 0x10
			}
			if err := mpilib.Send(ctx, comm, buf, 0, tag); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestPlansThatCannotBePlayed(t *testing.T) {
	for _, tt := range []struct {
		p    plan
		want string
	}{
		{plan{from: 0, to: 0, reps: 1}, "rank 0 needs another rank to play with; start at least two"},
		{plan{from: 0, to: 2, reps: 1}, "ranks 0 and 2 of a job of 2"},
		{plan{from: -1, to: 1, reps: 1}, "ranks -1 and 1 of a job of 2"},
		{plan{from: 0, to: 1}, "0 repetitions, want at least 1"},
	} {
		if err := tt.p.check(2); err == nil || err.Error() != tt.want {
			t.Errorf("%+v: %v, want %s", tt.p, err, tt.want)
		}
	}
	if err := (plan{from: 1, to: 0, reps: 1}).check(2); err != nil {
		t.Error(err)
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"--max", "20", "--from=1", "--json"}, io.Discard)
	if err != nil || !o.json || o.plan.from != 1 || o.plan.to != -1 || !slices.Equal(o.plan.sizes, []int{0, 1, 4, 16}) {
		t.Errorf("%+v, %v", o, err)
	}
	for args, want := range map[string]string{
		"x":                "unexpected argument",
		"--max -1":         "want 0 to",
		"--max 2147483648": "want 0 to",
		"--sizes 3":        "not defined",
	} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

func TestReports(t *testing.T) {
	p := plan{from: 0, to: 3, reps: 20}
	out := outcome{first: 40 * time.Millisecond, figures: []figure{{bytes: 1_000_000, median: 20 * time.Millisecond, min: 18 * time.Millisecond, technique: "relay"}}}
	var table, objects bytes.Buffer
	if err := writeTable(&table, p, out); err != nil {
		t.Fatal(err)
	}
	want := `ranks 0 and 3, first round trip (sets up the link) 40000.0 us
     bytes           median            least         MB/s
   1000000       20000.0 us       18000.0 us       100.00
`
	if table.String() != want {
		t.Errorf("table is\n%s, want\n%s", table.String(), want)
	}
	if err := writeJSON(&objects, p, out); err != nil {
		t.Fatal(err)
	}
	var figures []string
	for dec := json.NewDecoder(&objects); dec.More(); {
		var l line
		if err := dec.Decode(&l); err != nil {
			t.Fatal(err)
		}
		figures = append(figures, fmt.Sprintf("%s %s %v %s", l.Bench, l.Figure, l.Value, l.Unit))
		if by := l.Params["technique"]; by != "relay" && (by != nil || l.Figure != "first_round_trip") {
			t.Errorf("%s is by %v", l.Figure, by)
		}
	}
	wantFigures := []string{
		"pingpong first_round_trip 40000 us", "pingpong round_trip_median 20000 us",
		"pingpong round_trip_min 18000 us", "pingpong rate 1e+08 bytes/s",
	}
	if !slices.Equal(figures, wantFigures) {
		t.Errorf("objects are %q, want %q", figures, wantFigures)
	}
}

// Joining a real job is the library's matter; a world of one has no partner.
func TestRunAlone(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := example.Exec(t.Context(), nil, &stdout, &stderr); code != 1 || !strings.Contains(stderr.String(), "start at least two") {
		t.Errorf("exit code %d, stderr %q", code, stderr.String())
	}
	if code := example.Exec(t.Context(), []string{"--max", "no"}, &stdout, &stderr); code != 2 {
		t.Errorf("exit code %d for a bad flag", code)
	}
}
