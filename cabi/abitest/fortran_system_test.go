//go:build system

package abitest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// built compiles a program with one of MPICH's compilers, which calls another one, and skips the test where one is not there.
func built(t *testing.T, compiler, called, source string) string {
	t.Helper()
	libraries(t)
	path, err := exec.LookPath(compiler)
	if err == nil {
		_, err = exec.LookPath(called)
	}
	if err != nil {
		t.Skipf("%s was not tested: %v", source, err)
	}
	program := filepath.Join(t.TempDir(), "program")
	args := []string{"-o", program, filepath.Join("testdata", source)}
	if called == "gfortran" {
		args = append(args, "-J", filepath.Dir(program)) // where it describes modules
	}
	command(t, path, args...)
	return program
}

// passesBound runs a program whose functions are looked up before it starts.
func passesBound(t *testing.T, program string) {
	t.Helper()
	passesWith(t, []int{1, 3}, "/usr/bin/env", "LD_BIND_NOW=1", program)
}

// Programs in Fortran and C++ run with MPICH's libraries for these over ours, which has all functions that they name.
func TestFortran(t *testing.T) {
	passesBound(t, built(t, "mpifort.mpich", "gfortran", "fortran.f90"))
}
func TestFortranAttributes(t *testing.T) {
	passesBound(t, built(t, "mpifort.mpich", "gfortran", "fortranattributes.f90"))
}
func TestCXX(t *testing.T) { passesBound(t, built(t, "mpicxx.mpich", "g++", "mpich/objects.cc")) }

// wrapper builds the isthmus command once, which has the compilers' wrappers.
var wrapper = sync.OnceValues(func() (string, error) {
	path := filepath.Join(made.dir, "isthmus")
	out, err := exec.Command("go", "build", "-o", path, "github.com/isthmus-grid/isthmus/cmd/isthmus").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return path, err
})

// wrapped compiles a program of some sources with isthmus fc, and its modules in a folder that the test's programs share.
func wrapped(t *testing.T, sources ...string) string {
	t.Helper()
	dir := libraries(t)
	if _, err := exec.LookPath("gfortran"); err != nil {
		t.Skipf("%s was not tested: %v", sources[0], err)
	}
	isthmus, err := wrapper()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("FC", "gfortran")
	t.Setenv("ISTHMUS_MPI", dir)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	program := filepath.Join(t.TempDir(), "program")
	args := []string{"fc", "-O2", "-o", program, "-J", filepath.Dir(program)}
	for _, source := range sources {
		args = append(args, filepath.Join("testdata", source))
	}
	command(t, isthmus, args...)
	return program
}

// Those of the standard ABI have our library, and our modules, compiled by their own compiler.
func TestStandardFortran(t *testing.T) {
	for _, source := range []string{"fortraninclude.f", "fortranmore.f90", "fortranattributes.f90", "fortran.f90", "fortranf08.f90"} {
		t.Run(source, func(t *testing.T) { passesBound(t, wrapped(t, source)) })
	}
}

// Handles, statuses and attributes are the same in C and in Fortran.
func TestStandardFortranAndC(t *testing.T) {
	passesBound(t, wrapped(t, "fortranmixed.f90", "fortranmixed.c"))
}

// Those of Open MPI's ABI have our library for mpif.h and the module mpi, and Open MPI's for mpi_f08 over it.
func TestOpenMPIFortran(t *testing.T) {
	passesBound(t, built(t, "mpifort.openmpi", "gfortran", "fortran.f90"))
	passesBound(t, built(t, "mpifort.openmpi", "gfortran", "fortranmore.f90"))
}
func TestOpenMPICXX(t *testing.T) {
	passesBound(t, built(t, "mpicxx.openmpi", "g++", "openmpi/bindings.cc"))
}

// What MPICH's library has beside the standard's functions works.
func TestMPICHRemoved(t *testing.T) { passesBound(t, mpichProgram(t, "mpich/removed.c")) }

// So does a program for the standard's ABI, whose functions have all to be there.
func TestBound(t *testing.T) { passesBound(t, standardProgram(t, "messages.c")) }

// What of MPICH's own is missing ends the program, too, which names it.
func TestMPICHOwnMissing(t *testing.T) {
	ends(t, mpichProgram(t, "mpich/revoke.c"), "MPIX_Comm_revoke")
}

// Debian's programs of MPICH start with our library.
func TestMPICHPrograms(t *testing.T) {
	for name, says := range map[string]string{"mpichversion": "isthmus", "mpivars": "MPI Control Variables"} {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("%s was not tested: %v", name, err)
			}
			outputs, errs := job(t, 1, "/usr/bin/env", "LD_BIND_NOW=1", path)
			if errs[0] != nil || !strings.Contains(outputs[0], says) || strings.Contains(outputs[0], "re-linking") {
				t.Errorf("%v: %q, want %q in it", errs[0], outputs[0], says)
			}
		})
	}
}
