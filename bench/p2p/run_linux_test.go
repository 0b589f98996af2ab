//go:build system

package p2p

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/cabi/build"
	"github.com/isthmus-grid/isthmus/lab"
)

// TestMain runs the ranks, and puts the tests into namespaces of their own.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "part" {
		if err := Part(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	lab.Main()
	os.Exit(m.Run())
}

// brief runs for a very short time.
func brief(t *testing.T, o Options) (rows []bench.Row, told string, err error) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	var out, said bytes.Buffer
	o.Repeat, o.For, o.JSON, o.Err = 1, time.Microsecond, true, &said
	if o.Self == nil {
		o.Self = []string{"/proc/self/exe", "part"}
	}
	err = Run(t.Context(), &out, o)
	rows, broken := bench.Read("rows", &out)
	if broken != nil {
		t.Fatal(broken)
	}
	if left, _ := filepath.Glob(os.Getenv("TMPDIR") + "/*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return rows, said.String(), err
}

// Ours go through every kind of figure, in every scenario.
func TestRun(t *testing.T) {
	rows, _, err := brief(t, Options{Only: regexp.MustCompile(`/(0|1|16|65536)/`)})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, row := range rows {
		if cpus, _ := row.Params["cpus"].(float64); row.Bench != "p2p" || row.Value <= 0 || cpus <= 0 || row.Against != "" || row.Params["implementation"] != nameOurs {
			t.Errorf("%+v", row)
		}
		seen[fmt.Sprint(row.Params["scenario"], row.Figure, row.Params["size"])] = true
	}
	if want := 2*6 + 2; len(seen) != want || len(rows) != want {
		t.Errorf("%d rows, %d different, want %d", len(rows), len(seen), want)
	}
}

// The program in C goes through every kind of figure with our library for it, compiled by isthmus cc, and the programs of both peers
// that are installed through those that are theirs only.
func TestPrograms(t *testing.T) {
	if _, err := build.Compiler(t.Context()); errors.Is(err, build.ErrNoCompiler) {
		t.Skip(err)
	}
	compiler := []string{"go", "run", "github.com/isthmus-grid/isthmus/cmd/isthmus", "cc"}
	rows, told, err := brief(t, Options{Compiler: compiler, Peers: PeerNames(), Only: regexp.MustCompile(`(/(1|16)/isthmus|computing|init_time|thread_hop)`)})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, row := range rows {
		if row.Bench != "abi" || row.Value <= 0 {
			t.Errorf("%+v", row)
		}
		seen[fmt.Sprintf("%v/%s/%v", row.Params["scenario"], row.Figure, row.Params["implementation"])] = true
	}
	want := []string{
		"two-nodes/half_round_trip/isthmus-c", "two-nodes/half_round_trip_beside_go/isthmus-c", "two-nodes/half_round_trip/isthmus",
		"two-nodes/bandwidth/isthmus-c", "two-nodes/bandwidth_beside_go/isthmus-c", "two-nodes/bandwidth/isthmus",
		"two-nodes/message_rate/isthmus-c", "two-nodes/message_rate_beside_go/isthmus-c", "two-nodes/message_rate/isthmus",
		"same-node/half_round_trip/isthmus-c", "same-node/bandwidth/isthmus-c",
		"same-node/message_rate/isthmus-c", "same-node/message_rate_absolute/isthmus-c", "same-node/round_trip_after_computing/isthmus-c",
		"two-threads/thread_hop/isthmus-c", "oversubscribed/ring_hop/isthmus-c",
		"singleton/init_time/isthmus-c", "singleton/init_time_absolute/isthmus-c",
	}
	for _, m := range mpis {
		if strings.Contains(told, m.Title+" is not installed") {
			continue
		}
		want = append(want, "same-node/round_trip_after_computing/"+m.Name, "singleton/init_time/"+m.Name)
		if m.Name == nameOpenMPI {
			want = append(want, "two-threads/thread_hop/"+m.Name)
		}
	}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("rows of\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// An implementation that is not installed is reported with what to install, and is not a failure.
func TestNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	rows, told, err := brief(t, Options{Peers: PeerNames(), Only: regexp.MustCompile("two-nodes/half_round_trip/1/")})
	if err != nil || len(rows) != 1 {
		t.Errorf("%+v, %v", rows, err)
	}
	for _, m := range mpis {
		if !strings.Contains(told, m.Title+" is not installed") || !strings.Contains(told, m.Packages) {
			t.Errorf("told %q", told)
		}
	}
}

func TestNoRow(t *testing.T) {
	_, _, err := brief(t, Options{Only: regexp.MustCompile("nothing")})
	if err == nil || !strings.Contains(err.Error(), "no row matches") {
		t.Error(err)
	}
}

// A rank that cannot start is an error that names it, and does not hang.
func TestBrokenRank(t *testing.T) {
	_, _, err := brief(t, Options{Self: []string{"/bin/false"}})
	if err == nil || !strings.Contains(err.Error(), "/bin/false") {
		t.Error(err)
	}
}

// A job whose answers come from ranks that did not use the wire is rejected.
func TestAnotherWayIsNoticed(t *testing.T) {
	w, err := runner.NewWire()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	p, err := runner.Start(t.Context(), w.Left, runner.Command{Args: []string{"/bin/sh", "-c", "while read order; do echo ok 5 1.5; done"}})
	if err != nil {
		t.Fatal(err)
	}
	r, j := &run{suite: &messages, wire: w}, &job{all: []*runner.Process{p}}
	if _, _, err := r.measure(&scenario{apart: true}, figure{halfRoundTrip, 1 << 20}, j, 100); err == nil || !strings.Contains(err.Error(), "another way") {
		t.Error(err)
	}
	if ns, cpus, err := r.measure(&scenario{}, figure{halfRoundTrip, 1 << 20}, j, 100); ns != 5 || cpus != 1.5 || err != nil {
		t.Error(ns, cpus, err)
	}
	if err := j.stop(); err != nil {
		t.Error(err)
	}
}
