//go:build system

package mpi

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/mpilib"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// At each of two sites another launcher starts that site's ranks of one job: Open MPI's, which knows PMIx, at one, MPICH's with PMI at the other.
func TestOtherLaunchers(t *testing.T) {
	t.Parallel() // most of it is waiting
	needLaunchers(t)
	w := labtest.NewWorld(t, labtest.SiteOpen+labtest.SiteClosed, grid.Config{})
	key := labtest.NewKey(t, "job").String()
	share := func(site, first, launcher string, words ...string) *exec.Cmd {
		node := site + "/n1"
		cmd := w.Lab.Host(node).Command(w.Ctx, launcher, append(words, labtest.Program(t, "-lab"), "example", "is", "--class", "S")...)
		cmd.Env = append(os.Environ(), mpilib.EnvJobKey+"="+key, mpilib.EnvHelper+"="+w.Socket(node), mpilib.EnvSize+"=4", mpilib.EnvFirst+"="+first)
		return cmd.Cmd
	}
	var both sync.WaitGroup
	var out [2]string
	for i, cmd := range []*exec.Cmd{
		share("open", "0", open, append(openOptions, "-n", "2", "-x", mpilib.EnvJobKey, "-x", mpilib.EnvHelper, "-x", mpilib.EnvSize, "-x", mpilib.EnvFirst)...),
		share("closed", "2", hydra, "-n", "2"),
	} {
		both.Go(func() {
			stdout, stderr, status := labtest.Run(t, cmd)
			if out[i] = stdout; status != 0 {
				t.Errorf("%v: %d\n%s\n%s", cmd, status, stdout, stderr)
			}
		})
	}
	both.Wait()
	wantSorted(t, out[0]+out[1])
}

// On one host they start a job by themselves: its processes agree on a key, and leave nothing behind.
func TestOtherLaunchersAlone(t *testing.T) {
	needLaunchers(t)
	for _, argv := range [][]string{append([]string{open, "-n", "4"}, openOptions...), {hydra, "-n", "4"}} {
		temp := t.TempDir()
		cmd := exec.CommandContext(t.Context(), argv[0], append(argv[1:], labtest.Program(t, "-lab"), "example", "is", "--class", "S")...)
		cmd.Env = append(os.Environ(), "TMPDIR="+temp)
		stdout, stderr, status := labtest.Run(t, cmd)
		if status != 0 {
			t.Errorf("%v: %d\n%s\n%s", cmd, status, stdout, stderr)
		}
		wantSorted(t, stdout)
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("%s left %v, %v", argv[0], left, err)
		}
	}
}

const open, hydra = "mpirun.openmpi", "mpiexec.hydra"

var openOptions = []string{"--allow-run-as-root", "--oversubscribe"}

func needLaunchers(t *testing.T) {
	t.Helper()
	for _, name := range []string{open, hydra} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("there is no %s (Debian: openmpi-bin, mpich)", name)
		}
	}
}

// wantSorted checks the output of example is with 4 ranks.
func wantSorted(t *testing.T, out string) {
	t.Helper()
	for _, want := range []string{"Total processes  =                        4", "Verification     =               SUCCESSFUL"} {
		if strings.Count(out, want) != 1 {
			t.Errorf("want %q once in:\n%s", want, out)
		}
	}
}
