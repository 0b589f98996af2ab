//go:build system

package replicas

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
	"github.com/isthmus-grid/isthmus/lab"
)

// TestMain runs the processes, and puts the tests into namespaces of their own.
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

// A small run: round trips over an emulated distance, and IS with both tables.
func TestRun(t *testing.T) {
	var out, progress bytes.Buffer
	err := Run(t.Context(), Options{
		Self: []string{"/proc/self/exe", "part"}, Only: regexp.MustCompile("^(distant/|growth/)"), Class: "S", Ranks: []int{2}, Most: 2,
		Repeat: 1, For: time.Microsecond, JSON: true, Out: &out, Err: &progress,
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	all, err := bench.Read("rows", &out)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]bench.Row{}
	for _, r := range all {
		rows[r.Figure] = append(rows[r.Figure], r)
	}
	if r := rows["overhead"]; len(r) != 1 || r[0].Value < 0.01 { // a round trip takes 10 ms
		t.Errorf("overhead: %+v", r)
	}
	if r := rows["data_per_message"]; len(r) != 1 || r[0].Value != 2 {
		t.Errorf("data messages: %+v", r)
	}
	if r := rows["is_time"]; len(r) != 3*2 {
		t.Errorf("times of IS: %+v", r)
	}
}

func TestNothingMatches(t *testing.T) {
	var out, progress bytes.Buffer
	err := Run(t.Context(), Options{Only: regexp.MustCompile("nowhere/"), Class: "S", Ranks: []int{2}, Most: 2, Repeat: 1, Out: &out, Err: &progress})
	if err == nil || out.Len() > 0 {
		t.Errorf("%v, %q", err, out.String())
	}
}
