//go:build system

package abitest

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Programs in Fortran run with MPICH's libraries for Fortran over ours.
func TestFortran(t *testing.T) {
	libraries(t)
	compiler, err := exec.LookPath("mpifort.mpich")
	if err != nil {
		t.Skipf("Fortran was not tested: %v", err)
	}
	program := filepath.Join(t.TempDir(), "program")
	command(t, compiler, "-o", program, filepath.Join("testdata", "fortran.f90"))
	passesWith(t, []int{1, 3}, program)
}
