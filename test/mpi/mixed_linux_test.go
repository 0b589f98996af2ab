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
	"github.com/isthmus-grid/isthmus/lab/grid"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// mixedScript makes every other rank one in C, and the others ranks in Go, which do what testdata/mixed.c of cabi/abitest does in Go.
const mixedScript = `cd "${0%/*}" || exit
export LD_LIBRARY_PATH="$PWD/lib" ISTHMUS_TEST_MIXED=
case $((ISTHMUS_RANK % 2)) in
0) exec ./mixed ;;
1) exec ./mixed.test -test.run='^TestMixedRank$' -test.timeout=4m ;;
esac
`

// Ranks in C and in Go are in one job, on one node, on two nodes of a site, and at two sites.
func TestCAndGoOnAGrid(t *testing.T) {
	t.Parallel() // most of it is waiting
	labtest.NeedLab(t)
	dir, err := os.MkdirTemp(filepath.Dir(labtest.Program(t, "")), "mixed")
	if err != nil {
		t.Fatal(err)
	}
	if err := build.Libraries(t.Context(), dir); errors.Is(err, build.ErrNoCompiler) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	compiler, err := build.Compiler(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	abitest, err := filepath.Abs("../../cabi/abitest")
	if err != nil {
		t.Fatal(err)
	}
	made := func(words ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	made(compiler, "-std=c99", "-Iinclude", "-o", "mixed", filepath.Join(abitest, "testdata", "mixed.c"), "-Llib", "-lmpi_abi")
	made("go", "-C", abitest, "test", "-c", "-tags=system", "-buildvcs=false", "-o", filepath.Join(dir, "mixed.test"), ".")
	script := filepath.Join(dir, "mixed.sh")
	if err := os.WriteFile(script, []byte(mixedScript), 0o600); err != nil {
		t.Fatal(err)
	}
	w := labtest.NewWorld(t, labtest.SiteOpen+labtest.SiteClosed, grid.Config{})
	out := w.RunJobOf(t, []string{"open/n1", "open/n2", "closed/n1"}, 2, "/bin/sh", script)
	if passed := strings.Count(out, "passed by 6\n"); passed != 1 {
		t.Errorf("%.20000s", out)
	}
}
