package farm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/pki/jobkey"
	"github.com/isthmus-grid/isthmus/internal/testkit"
	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// envDies makes a process of the test a rank, which is killed when it has handled so
// many chunks; never if 0.
const envDies = "ISTHMUS_TEST_DIES"

func TestMain(m *testing.M) {
	dies, child := os.LookupEnv(envDies)
	if !child {
		os.Exit(m.Run())
	}
	at, _ := strconv.ParseInt(dies, 10, 64)
	p := example
	p.Parse = func(args []string, stderr io.Writer) (options, error) {
		o, err := parse(args, stderr)
		o.fault = func(handled int64) {
			if handled != at {
				return
			}
			if self, err := os.FindProcess(os.Getpid()); err == nil {
				self.Kill()
			}
			select {}
		}
		return o, err
	}
	os.Exit(p.Main(os.Args[1:]))
}

// Whoever is killed on the way, those that are left find what one rank finds alone, and the first
// of them says so.
func TestSurvival(t *testing.T) {
	const ranks = 7 // 0 is the master, 1 the boss if there is one
	for _, tt := range []struct {
		name    string
		pattern pattern
		dies    map[int]int // after how many chunks
	}{
		{"nobody", hierarchical, nil},
		{"a worker", vanilla, map[int]int{3: 2}},
		{"the master", vanilla, map[int]int{0: 9}},
		{"one after the other", vanilla, map[int]int{0: 20, 2: 1, 6: 3}},
		{"a boss's worker", hierarchical, map[int]int{3: 2}},
		{"the boss", hierarchical, map[int]int{1: 5}},
		{"the master of bosses", hierarchical, map[int]int{0: 2}},
		{"master, boss and worker", hierarchical, map[int]int{0: 3, 1: 12, 5: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !testload.Full() && tt.name != "master, boss and worker" {
				t.Skip("each has seven processes: run it with the tag system")
			}
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			dir := testkit.ShortDir(t)
			key, err := jobkey.New("survival")
			if err != nil {
				t.Fatal(err)
			}
			var all [ranks]*exec.Cmd
			var said, complained [ranks]bytes.Buffer
			for r := range all {
				all[r] = exec.CommandContext(ctx, os.Args[0], "--pattern", string(tt.pattern), "--rays", "600", "--chunk", "3", "--speed", "2000", "--json")
				all[r].Env = append(os.Environ(), mpilib.EnvRank+"="+strconv.Itoa(r), fmt.Sprint(mpilib.EnvSize, "=", ranks), mpilib.EnvJobKey+"="+key.String(), mpilib.EnvDir+"="+dir,
					mpilib.EnvDebug+"=", fmt.Sprint(envDies, "=", tt.dies[r]))
				all[r].Stdout, all[r].Stderr = &said[r], &complained[r]
				if err := all[r].Start(); err != nil {
					t.Fatal(err)
				}
			}
			results, died := "", 0
			for r, c := range all {
				err := c.Wait()
				at, dies := tt.dies[r]
				switch {
				case dies && err != nil && strings.Contains(err.Error(), "killed"):
					died++
				case err != nil, dies && r < 2: // a worker may be so late that it has not that many
					t.Errorf("rank %d, to die after %d: %v\n%s", r, at, err, complained[r].String())
				}
				results += said[r].String()
			}
			var got Result
			if err := json.Unmarshal([]byte(results), &got); err != nil {
				t.Fatalf("%v: %q", err, results)
			}
			if !got.Verified || got.Lost != died || got.Ranks != ranks {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	l := newLedger(7)
	if got := fmt.Sprint(l.missing()); got != "[{0 7}]" {
		t.Error(got)
	}
	if err := l.enter([]arrival{{0, 1}, {3, noRay}, {4, 1}}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(l.missing()); got != "[{1 2} {5 2}]" {
		t.Error(got)
	}
}
