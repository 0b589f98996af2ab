//go:build system

package faults

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// brokenCell is one line of `isthmus-lab break --json`.
type brokenCell struct {
	Technique, Cut, Hit  string
	Bytes, Lost, Doubled uint64
	HashOK               bool `json:"hash_ok"`
	Before, After, End   string
	BackMS               *float64 `json:"back_ms"`
	Carriers             int
	Error                string
}

// A busy link's carrier is cut in the middle of a stream: no byte is lost or duplicated; the link
// continues on another path if there is one, and returns to the best path when that is available
// again. The command checks the time that takes.
func TestBreak(t *testing.T) {
	t.Parallel() // most of it is waiting
	const size = 32 << 20
	for _, c := range []struct {
		technique, cut string
		hit            string // what the cut means
		after          string // the path of the first bytes after the cut; "": any
		carriers       int    // at least
		away           string
	}{
		{"direct", "rst", "kills", "", 2, "1s"},
		{"direct", "proxy", "misses", "direct", 1, "1s"},
		{"simultaneous-open", "drop", "kills", "relay", 2, "1s"},
		{"relay", "proxy", "kills", "relay", 2, "1s"},
		{"gateway", "gateway", "kills", "", 2, "1s"},
		{"relay", "uplink", "kills", "relay", 2, "5s"}, // so young a link has no reserve: another path takes 2 s
	} {
		t.Run(c.technique+" "+c.cut, func(t *testing.T) {
			t.Parallel()
			labtest.NeedLab(t)
			cmd := exec.Command(labtest.Program(t, "-lab"), "break", "--json", "--size", "32MiB", "--away", c.away,
				"--technique", c.technique, "--cut", c.cut)
			out, complaint, _ := labtest.RunWithin(t, 2*time.Minute, cmd) // it also fails for being slow
			var got brokenCell
			if err := json.Unmarshal([]byte(out), &got); err != nil {
				t.Fatalf("%v in %q; it wrote:\n%s", err, out, complaint)
			}
			switch {
			case got.Error != "":
				t.Error(got.Error)
			case got.Technique != c.technique || got.Cut != c.cut || got.Hit != c.hit:
				t.Errorf("it is a cell of %s, %s, which %s", got.Technique, got.Cut, got.Hit)
			case !got.HashOK || got.Lost != 0 || got.Doubled != 0 || got.Bytes < size:
				t.Errorf("%d of %d bytes, %d lost, %d doubled, right: %v", got.Bytes, size, got.Lost, got.Doubled, got.HashOK)
			case got.BackMS == nil:
				t.Errorf("never back: by %s, then %s, at last %s", got.Before, got.After, got.End)
			case !strings.HasPrefix(got.After, c.after):
				t.Errorf("after the cut by %s, want %s", got.After, c.after)
			case got.Carriers < c.carriers || c.hit == "misses" && got.Carriers != 1:
				t.Errorf("%d carriers, want %d", got.Carriers, c.carriers)
			}
		})
	}
}
