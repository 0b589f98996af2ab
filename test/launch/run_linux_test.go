//go:build system

package launch

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// A job on one machine needs no daemon.
func TestRunWithoutDaemons(t *testing.T) {
	labtest.NeedLab(t) // its own folder and processes are looked after there
	bin, examples := labtest.Program(t, ""), labtest.Program(t, "-lab")
	for _, tc := range []struct {
		name   string
		argv   []string
		status int
		stdout string
		stderr string
	}{
		{"pingpong", []string{"run", "-n", "4", "--label", "here", examples, "example", "pingpong", "--max", "1024", "--reps", "3"}, 0, "[here:0] ", ""},
		{"is", []string{"run", "-n", "4", "--label", "", examples, "example", "is", "--class", "S"}, 0, "SUCCESSFUL", ""},
		{"groups", []string{"run", "-n", "3", "--label", "", "--groups", "master:1,workers:2", "sh", "-c", "echo $ISTHMUS_GROUPS"}, 0, "master:1,workers:2\nmaster:1,workers:2\nmaster:1,workers:2\n", ""},
		{"map", []string{"run", "-n", "3", "--show-map", examples, "example", "is", "--class", "S"}, 0, "SUCCESSFUL", "unknown where that was never so for long enough.\n"},
		{"status of a rank", []string{"run", "-n", "4", "sh", "-c", "[ $ISTHMUS_RANK != 2 ] || exit 9; exec sleep 100"}, 9, "", "isthmus: rank 2: exit status 9\n"},
		{"signal to a rank", []string{"run", "-n", "2", "sh", "-c", "[ $ISTHMUS_RANK != 1 ] || kill -9 $$; exec sleep 100"}, 128 + 9, "", "isthmus: rank 1: signal: killed\n"},
		{"no such program", []string{"run", "-n", "2", "./no-such-program"}, 127, "", "no-such-program: no such file or directory\n  next:    ls -l ./no-such-program: a name with a slash begins at the working folder, or at /\n"},
		{"no helper", []string{"run", "--size", "8", "--ranks", "0-3", "--key", labtest.KeyFile(t), examples, "example", "pingpong"}, 2, "",
			"isthmus: run: ranks 0-3 of 8 run here and no helper was named, so they could not reach the others; give --helper or ISTHMUS_HELPER\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			stdout, stderr, status := labtest.Run(t, exec.Command(bin, tc.argv...))
			if status != tc.status || !strings.Contains(stdout, tc.stdout) || !strings.HasSuffix(stderr, tc.stderr) {
				t.Errorf("status %d, want %d\nstdout:\n%s\nstderr:\n%s\nwant stderr:\n%s", status, tc.status, stdout, stderr, tc.stderr)
			}
		})
	}
}

// The error for a missing helper names it, and what to check.
func TestInitWithoutAHelper(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "helper.sock")
	t.Setenv(mpilib.EnvRank, "0")
	t.Setenv(mpilib.EnvSize, "2")
	t.Setenv(mpilib.EnvHelper, socket)
	t.Setenv(mpilib.EnvJobKey, labtest.NewKey(t, "alone").String())
	_, err := mpilib.Init(t.Context(), mpilib.WithConnectTimeout(300*time.Millisecond))
	want := "mpilib: Init: rank 0 of 2: helper " + socket + " is not reachable: connect: no such file or directory; is isthmus-helper running? (context deadline exceeded)"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
