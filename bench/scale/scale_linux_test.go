//go:build system

package scale

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/isthmus-grid/isthmus/bench"
)

// partVariable makes this test program play a part.
const partVariable = "ISTHMUS_TEST_SCALE_PART"

func TestMain(m *testing.M) {
	if os.Getenv(partVariable) != "" {
		if err := Part(context.Background(), os.Args[len(os.Args)-1], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A small run: all join, links share fairly, and their memory is bounded.
func TestRun(t *testing.T) {
	t.Setenv(partVariable, "1")
	var out, progress bytes.Buffer
	o := small
	o.JSON, o.Self, o.Out, o.Err = true, []string{os.Args[0]}, &out, &progress
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	all, err := bench.Read("rows", &out)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bench.Row{}
	for _, r := range all {
		rows[r.Figure] = r
	}
	if r := rows["fairness"]; r.Value < fairness {
		t.Errorf("%d links share with a Jain index of %.3f, want %v", o.Links, r.Value, fairness)
	}
	// Two sockets; with so few links the few pipes that the proxy keeps ready are visible.
	if r := rows["descriptors_idle"]; r.Value < 2 || r.Value > 3.5 {
		t.Errorf("an idle link takes %v descriptors, want 2", r.Value)
	}
	if r := rows["throughput"]; r.Value > 1.1*80 {
		t.Errorf("%v Mbit/s, the rate is 80", r.Value)
	}
	for _, figure := range []string{"helpers_joined", "processes_registered", "memory_helper", "dial_p50"} {
		if r := rows[figure]; r.Value <= 0 {
			t.Errorf("%s: %v", figure, r.Value)
		}
	}
}
