//go:build system

package mpi

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-grid/isthmus/cabi/build"
	"github.com/isthmus-grid/isthmus/internal/job/cprogram"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

const sumProgram = `#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	int rank, sum;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	printf("rank %d has %d\n", rank, sum);
	return MPI_Finalize();
}
`

// A program in C is compiled and runs over two sites, on nodes that have no library for it: isthmus run
// brings that there.
func TestCProgramOverTwoSites(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	made := filepath.Join(t.TempDir(), "made")
	if err := build.Libraries(t.Context(), made); errors.Is(err, build.ErrNoCompiler) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sum.c"), []byte(sumProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	w := labtest.NewWorld(t, labtest.SiteOpen+labtest.SiteClosed, labtest.LaunchConfig(map[string]any{"jobs": 2, "processes": 2}))
	run := func(folder string, words ...string) (stdout, stderr string, status int) {
		t.Helper()
		cmd := w.Isthmus(words...)
		cmd.Dir = dir
		cmd.Env = append(cmd.Env, cprogram.Env+"="+folder)
		return labtest.Run(t, cmd)
	}
	if stdout, stderr, status := run(made, "cc", "-Wall", "-Werror", "-o", "sum", "sum.c"); status != 0 {
		t.Fatalf("%d\n%s\n%s", status, stdout, stderr)
	}
	// Where the program was compiled it finds the library by itself; elsewhere nothing is where that was.
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(made, moved); err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), filepath.Join(dir, "sum")).Run(); err == nil {
		t.Fatal("the program still finds the library")
	}
	w.AwaitHosts(4)
	for name, words := range map[string][]string{
		"grid":  {"run", "--hosts", "n1@open:2,n1@closed:2", "./sum"},
		"local": {"run", "--helper", "none", "-n", "4", "./sum"},
	} {
		stdout, stderr, status := run(moved, words...)
		if status != 0 || strings.Count(stdout, " has 6\n") != 4 {
			t.Errorf("%s: %d\n%s\n%s", name, status, stdout, stderr)
		}
		if _, stderr, status := run(t.TempDir(), words...); status == 0 || !strings.Contains(stderr, "is linked with libmpi_abi.so.1: there is no such library in") || !strings.Contains(stderr, "isthmus-mpi") {
			t.Errorf("%s, without the library: %d\n%s", name, status, stderr)
		}
	}
}
