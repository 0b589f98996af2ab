//go:build system

package broker

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/bench"
)

// A small run gives every figure, and none that is impossible. Whether the
// targets are met is not for a test to say: the machine is shared.
func TestRun(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		err := Run(t.Context(), new(bytes.Buffer), Options{Broker: []string{os.Args[0], "broker"}, Sites: 1, Processes: 1, Repeat: 1, Duration: time.Millisecond})
		if err == nil || !strings.Contains(err.Error(), "/proc") {
			t.Errorf("without /proc: %v", err)
		}
		return
	}
	var out bytes.Buffer
	err := Run(t.Context(), &out, Options{Broker: []string{os.Args[0], "broker"}, JSON: true, Sites: 3, Processes: 300, Repeat: 1, Duration: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := bench.Read("rows", &out)
	if err != nil {
		t.Fatal(err)
	}
	var figures []string
	for _, row := range rows {
		figures = append(figures, row.Figure)
		if row.Bench != "broker" || row.Value <= 0 && row.Figure != "memory_per_process" {
			t.Errorf("%+v", row)
		}
	}
	want := "memory_per_process resident_before resident registrations resolves resolves_per_cpu_second resolves resolves_per_cpu_second resident_after_load"
	if got := strings.Join(figures, " "); got != want {
		t.Errorf("figures %s\nwant    %s", got, want)
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
