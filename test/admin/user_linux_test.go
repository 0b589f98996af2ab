//go:build system

package admin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// asOrdinaryUser makes cmd run as nobody, with a separate home and a separate folder for temporary
// files; if this process is an ordinary user in a user namespace already, as itself.
func asOrdinaryUser(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	home, err := os.MkdirTemp(filepath.Dir(cmd.Path), "home-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(home); err != nil { // not RemoveAll: the run must have left it empty
			t.Errorf("the run left something in its home: %v", err)
		}
	})
	cmd.Dir = "/"
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + home, "PATH=" + os.Getenv("PATH")}
	if labtest.IsRoot(t) {
		if err := os.Chown(home, labtest.Nobody, labtest.Nobody); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: labtest.Nobody, Gid: labtest.Nobody}}
	}
}

// Demo and matrix need no privilege.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	for _, tc := range []struct {
		argv []string
		want []string
	}{
		{[]string{"demo", "--full"}, []string{
			"\nAll check values are right.",
			"== ping-pong between rank 0 (alpha) and rank 7 (beta), 8 ranks",
			"== NAS IS, class S, 8 ranks", "== NAS IS, class W, 8 ranks", "== NAS EP, class S, 8 ranks", "== NAS EP, class W, 8 ranks",
			"simultaneous-open via target's gateway",
			"alpha and beta each let their own SYN out, and it opens the way for the other's",
		}},
		{[]string{"matrix", "--presets", "open,stateful"}, []string{"\n 1 open      D  R\n 2 stateful  D  S\n", "4 of 4 pairs connected"}},
	} {
		t.Run(tc.argv[0], func(t *testing.T) {
			cmd := exec.Command(labtest.Program(t, "-lab"), tc.argv...)
			asOrdinaryUser(t, cmd)
			stdout, stderr, status := labtest.Run(t, cmd)
			if status != 0 {
				t.Fatalf("status %d\n%s\n%s", status, stdout, stderr)
			}
			for _, want := range tc.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("it did not print %q but:\n%s", want, stdout)
				}
			}
		})
	}
}
