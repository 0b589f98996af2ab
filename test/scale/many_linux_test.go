//go:build system

package scale

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// manyRanks is more than the number of processors of any machine that runs the tests.
const manyRanks = 64

// 64 processes of one machine all send to all, and every byte is right; their memory
// is bounded and does not grow with time. ISTHMUS_SOAK says for how long, such as
// 10m; else it is a few seconds. How long they take to start is told, not judged.
func TestManyRanks(t *testing.T) {
	labtest.NeedLab(t) // it checks for leftover processes and files
	last := 2 * time.Second
	if s := os.Getenv("ISTHMUS_SOAK"); s != "" {
		var err error
		if last, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	bin := labtest.Program(t, "")
	cmd := exec.CommandContext(t.Context(), bin, "run", "-n", fmt.Sprint(manyRanks), "--label", "",
		labtest.Program(t, "-lab"), "example", "traffic", "--json", "--for", last.String())
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	// A job that does not end is a deadlock; the interrupt ends it, and it names the waiting ranks.
	hung := time.AfterFunc(last+2*time.Minute, func() { cmd.Process.Signal(os.Interrupt) })
	defer hung.Stop()
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	there, err := lines.ReadString('\n')
	took := time.Since(start)
	figures, restErr := io.ReadAll(lines)
	if waitErr := cmd.Wait(); waitErr != nil || err != nil || restErr != nil {
		t.Fatalf("%v, %v, %v\n%s%s\n%.10000s", waitErr, err, restErr, there, figures, complaints.String())
	}
	if want := fmt.Sprintf("%d ranks are there\n", manyRanks); there != want {
		t.Fatalf("it began with %q, want %q", there, want)
	}
	t.Logf("start-up of %d ranks: %.2f s", manyRanks, took.Seconds())
	var all struct {
		Ranks, Rounds int
		Seconds       float64
		Messages      uint64
		Peak          uint64 `json:"peak_bytes"` // of all
		Most          uint64 `json:"most_bytes"` // of the largest
	}
	if err := json.Unmarshal(figures, &all); err != nil {
		t.Fatalf("%v in %q", err, figures)
	}
	const mib = 1 << 20
	t.Logf("%s", strings.TrimSpace(string(figures)))
	if all.Ranks != manyRanks || all.Messages != uint64(manyRanks*manyRanks*all.Rounds) || all.Seconds < last.Seconds() {
		t.Errorf("not all was exchanged, or not as long: %s", figures)
	}
	// Each has 4 MiB of buffers of its own, 63 links and what comes early; measured
	// were 40 MiB.
	if all.Most > 160*mib || all.Peak > manyRanks*100*mib {
		t.Errorf("the largest process had %d MiB, all together %d", all.Most/mib, all.Peak/mib)
	}
}
