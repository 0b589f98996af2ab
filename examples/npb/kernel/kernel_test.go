package kernel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/examples/npb"
	"github.com/isthmus-grid/isthmus/mpilib"
)

var classes = []npb.Class{"S", "W"}

func TestParse(t *testing.T) {
	tests := []struct {
		args string
		want options
		err  string
	}{
		{"", options{class: "S"}, ""},
		{"--class W --json", options{class: "W", json: true}, ""},
		{"-class=W", options{class: "W"}, ""},
		{"--class Z", options{}, `no class "Z", have [S W]`},
		{"W", options{}, `unexpected argument "W"; see is --help`},
		{"--clas W", options{}, "flag provided but not defined: -clas"},
	}
	for _, tt := range tests {
		got, err := parse("is", classes, strings.Fields(tt.args), io.Discard)
		switch {
		case tt.err == "" && (err != nil || got != tt.want):
			t.Errorf("%q: %+v, %v", tt.args, got, err)
		case tt.err != "" && (err == nil || err.Error() != tt.err):
			t.Errorf("%q: error %v, want %s", tt.args, err, tt.err)
		}
	}
	if _, err := parse("is", classes, []string{"--help"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help: %v", err)
	}
}

// Only rank 0 prints; every rank learns the verdict.
func TestReport(t *testing.T) {
	for _, wrong := range []bool{false, true} {
		for _, asJSON := range []bool{false, true} {
			var mu sync.Mutex
			var out bytes.Buffer
			mpilib.TestWorld(t, 3, func(ctx context.Context, comm *mpilib.Comm) error {
				var own bytes.Buffer
				verified, err := report(ctx, comm, options{"W", asJSON}, fake(wrong), &own)
				if err != nil || verified == wrong {
					return fmt.Errorf("verified %v, %v", verified, err)
				}
				mu.Lock()
				defer mu.Unlock()
				out.Write(own.Bytes())
				return nil
			})
			if asJSON {
				var r npb.Result
				if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Verified == wrong || r.Class != "W" {
					t.Errorf("%v in %s", err, out.String())
				}
			} else if n := strings.Count(out.String(), "Benchmark Completed"); n != 1 {
				t.Errorf("%d reports in %s", n, out.String())
			}
		}
	}
}

func fake(wrong bool) Runner {
	return func(_ context.Context, comm *mpilib.Comm, c npb.Class) (npb.Result, error) {
		r := npb.Result{Kernel: "IS", Class: c, Ranks: comm.Size()}
		got := 1.0
		if wrong {
			got = 2
		}
		r.Verify([]npb.Check{npb.NewCheck("one", got, 1, 0)})
		return r, nil
	}
}

func TestFailedRunPrintsNothing(t *testing.T) {
	broken := errors.New("link lost")
	mpilib.TestWorld(t, 1, func(ctx context.Context, comm *mpilib.Comm) error {
		var out bytes.Buffer
		_, err := report(ctx, comm, options{class: "S"}, func(context.Context, *mpilib.Comm, npb.Class) (npb.Result, error) {
			return npb.Result{}, broken
		}, &out)
		if !errors.Is(err, broken) || out.Len() != 0 {
			return fmt.Errorf("error %v, output %q", err, out.String())
		}
		return nil
	})
}
