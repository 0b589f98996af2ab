//go:build system

package abitest

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// built compiles a program with one of MPICH's compilers, and skips the test where it is not there.
func built(t *testing.T, compiler, source string) string {
	t.Helper()
	libraries(t)
	path, err := exec.LookPath(compiler)
	if err != nil {
		t.Skipf("%s was not tested: %v", source, err)
	}
	program := filepath.Join(t.TempDir(), "program")
	command(t, path, "-o", program, filepath.Join("testdata", source))
	return program
}

// passesBound runs a program whose functions are looked up before it starts.
func passesBound(t *testing.T, program string) {
	t.Helper()
	passesWith(t, []int{1, 3}, "/usr/bin/env", "LD_BIND_NOW=1", program)
}

// Programs in Fortran and C++ run with MPICH's libraries for these over ours, which has all functions that they name.
func TestFortran(t *testing.T) { passesBound(t, built(t, "mpifort.mpich", "fortran.f90")) }
func TestFortranAttributes(t *testing.T) {
	passesBound(t, built(t, "mpifort.mpich", "fortranattributes.f90"))
}
func TestCXX(t *testing.T) { passesBound(t, built(t, "mpicxx.mpich", "objects.cc")) }

// What MPICH's library has beside the standard's functions works, or ends the program, which it names.
func TestMPICHRemoved(t *testing.T) { passesBound(t, mpichProgram(t, "mpich/removed.c")) }
