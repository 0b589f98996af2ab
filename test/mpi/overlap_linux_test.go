//go:build system

package mpi

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// A message crosses from one closed site to another, encrypted, while its sender computes. The
// benchmark measures the cost for this machine.
func TestOverlap(t *testing.T) {
	labtest.NeedLab(t)
	stdout, stderr, status := labtest.Run(t, exec.Command(labtest.Program(t, "-lab"), "bench", "overlap", "--json", "--repeat", "1", "--size", "1000000"))
	if status != 0 {
		t.Fatalf("status %d:\n%s", status, stderr)
	}
	figures := map[string]float64{}
	for d := json.NewDecoder(strings.NewReader(stdout)); ; {
		var row struct {
			Figure string
			Params struct{ Technique, Cipher string }
			Value  float64
			Ratio  float64
			Met    *bool
		}
		if err := d.Decode(&row); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, stdout)
		}
		figures[row.Figure] = row.Value
		if row.Params.Technique == "" || row.Params.Technique == "local" || row.Params.Cipher == "" {
			t.Errorf("%+v: want an encrypted path between sites", row)
		}
		if row.Figure == "isend_compute_wait" && (row.Met == nil || row.Ratio <= 0) {
			t.Errorf("%+v", row)
		}
	}
	for _, figure := range []string{"compute", "send", "send_cpu", "isend_compute_wait"} {
		if figures[figure] <= 0 {
			t.Errorf("%s is %v in:\n%s", figure, figures[figure], stdout)
		}
	}
}
