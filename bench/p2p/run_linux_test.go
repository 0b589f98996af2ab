//go:build system

package p2p

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/bench/runner"
	"github.com/isthmus-grid/isthmus/lab"
)

// TestMain runs the ranks, and puts the tests into namespaces of their own.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "part" {
		if err := Part(context.Background(), os.Args[2], os.Stdin, os.Stdout); err != nil {
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

func TestBadRoles(t *testing.T) {
	for _, role := range []string{"", "tcp", "tcp nowhere", "udp 10.77.0.1", "tcp 10.77.0.1"} {
		if err := Part(t.Context(), role, strings.NewReader(""), new(bytes.Buffer)); err == nil {
			t.Errorf("role %q was played", role)
		}
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
	r, j := &run{wire: w}, &job{all: []*runner.Process{p}}
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
