//go:build system

package abitest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/cabi/build"
	"github.com/isthmus-grid/isthmus/mpilib"
)

// jobKey is a key of a job that nobody else runs.
const jobKey = "demo:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"

// made are the libraries of this run.
var made struct {
	sync.Once
	dir string
	err error
}

func TestMain(m *testing.M) {
	status := m.Run()
	os.RemoveAll(made.dir) // nothing if there is none
	os.Exit(status)
}

// libraries makes the libraries once, and skips the test where there is no C compiler.
func libraries(t *testing.T) string {
	t.Helper()
	made.Do(func() {
		if made.dir, made.err = os.MkdirTemp("", "isthmus"); made.err == nil {
			made.err = build.Libraries(context.Background(), made.dir)
		}
	})
	if errors.Is(made.err, build.ErrNoCompiler) {
		t.Skipf("C programs were not tested: %v", made.err)
	}
	if made.err != nil {
		t.Fatal(made.err)
	}
	return made.dir
}

// standardProgram compiles a program of testdata for the standard ABI, with more flags.
func standardProgram(t *testing.T, source string, flags ...string) string {
	t.Helper()
	dir := libraries(t)
	compiler, err := build.Compiler(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "program")
	args := append([]string{"-std=c99", "-Wall", "-Wextra", "-Werror", "-I" + filepath.Join(dir, "include"), "-o", program}, flags...)
	command(t, compiler, append(args, filepath.Join("testdata", source), "-L"+filepath.Join(dir, "lib"), "-lmpi_abi")...)
	return program
}

// mpichProgram compiles one with Debian's MPICH, with more flags, and runs with our library in its place.
func mpichProgram(t *testing.T, source string, flags ...string) string {
	t.Helper()
	return foreignProgram(t, "mpicc.mpich", source, flags...)
}

// openMPIProgram compiles one with Debian's Open MPI, with more flags.
func openMPIProgram(t *testing.T, source string, flags ...string) string {
	t.Helper()
	return foreignProgram(t, "mpicc.openmpi", source, flags...)
}

// foreignProgram compiles one with another MPI's compiler and header.
func foreignProgram(t *testing.T, mpicc, source string, flags ...string) string {
	t.Helper()
	libraries(t)
	path, err := exec.LookPath(mpicc)
	if err != nil {
		t.Skipf("an ABI was not tested with its own header: %v", err)
	}
	program := filepath.Join(t.TempDir(), "program")
	command(t, path, append(append([]string{"-std=c99", "-o", program}, flags...), filepath.Join("testdata", source), "-ldl")...)
	return program
}

// job runs a command as so many ranks, and returns what each printed and its error.
func job(t *testing.T, ranks int, name string, args ...string) ([]string, []error) {
	t.Helper()
	return jobOf(t, ranks, func(int) []string { return append([]string{name}, args...) })
}

// jobOf runs a command for each rank, with more variables.
func jobOf(t *testing.T, ranks int, command func(rank int) []string, env ...string) ([]string, []error) {
	t.Helper()
	sockets, err := os.MkdirTemp("", "isthmus")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(sockets)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var processes sync.WaitGroup
	outputs, errs := make([]string, ranks), make([]error, ranks)
	for rank := range ranks {
		processes.Go(func() {
			var out bytes.Buffer
			words := command(rank)
			cmd := exec.CommandContext(ctx, words[0], words[1:]...)
			cmd.Env = append(append(os.Environ(), env...), "LD_LIBRARY_PATH="+filepath.Join(libraries(t), "lib"),
				fmt.Sprintf("%s=%d", mpilib.EnvRank, rank), fmt.Sprintf("%s=%d", mpilib.EnvSize, ranks),
				mpilib.EnvJobKey+"="+jobKey, mpilib.EnvDir+"="+sockets)
			cmd.Stdout, cmd.Stderr = &out, &out
			cmd.WaitDelay = time.Minute // a child of the program's may hold its output
			errs[rank] = cmd.Run()
			outputs[rank] = out.String()
		})
	}
	processes.Wait()
	return outputs, errs
}

// passes runs a command of checks with several numbers of ranks.
func passes(t *testing.T, name string, args ...string) {
	t.Helper()
	passesWith(t, []int{1, 2, 5}, name, args...)
}

// passesWith is passes with some numbers of ranks.
func passesWith(t *testing.T, sizes []int, name string, args ...string) {
	t.Helper()
	for _, ranks := range sizes {
		outputs, errs := job(t, ranks, name, args...)
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%d ranks: %v\n%s", ranks, err, strings.Join(outputs, ""))
		} else if want := fmt.Sprintf("passed by %d\n", ranks); outputs[0] != want {
			t.Errorf("rank 0 of %d says %q, want %q", ranks, outputs[0], want)
		}
	}
}

func TestMessages(t *testing.T)           { passes(t, standardProgram(t, "messages.c")) }
func TestCollectives(t *testing.T)        { passes(t, standardProgram(t, "collectives.c")) }
func TestEnvironment(t *testing.T)        { passes(t, standardProgram(t, "environment.c")) }
func TestAllocation(t *testing.T)         { passes(t, standardProgram(t, "allocation.c")) }
func TestMPICHMessages(t *testing.T)      { passes(t, mpichProgram(t, "messages.c")) }
func TestMPICHCollectives(t *testing.T)   { passes(t, mpichProgram(t, "collectives.c")) }
func TestMPICHEnvironment(t *testing.T)   { passes(t, mpichProgram(t, "environment.c")) }
func TestMPICHAllocation(t *testing.T)    { passes(t, mpichProgram(t, "allocation.c")) }
func TestOpenMPIMessages(t *testing.T)    { passes(t, openMPIProgram(t, "messages.c")) }
func TestOpenMPICollectives(t *testing.T) { passes(t, openMPIProgram(t, "collectives.c")) }
func TestOpenMPIEnvironment(t *testing.T) { passes(t, openMPIProgram(t, "environment.c")) }
func TestOpenMPIAllocation(t *testing.T)  { passes(t, openMPIProgram(t, "allocation.c")) }

// Programs start where the loader looks for all functions that they and Open MPI's other libraries name.
func TestOpenMPIBound(t *testing.T) { passesBound(t, openMPIProgram(t, "messages.c")) }

// A handle is the same in a program that has copies of the library's objects, as most do, and in code that has none.
func TestOpenMPICopies(t *testing.T) {
	for _, flags := range [][]string{{"-no-pie", "-fno-pie"}, {"-fPIE", "-pie"}, {"-fPIC", "-pie"}} {
		program := openMPIProgram(t, filepath.Join("openmpi", "handles.c"), append(flags, "-ldl")...)
		plugin := openMPIProgram(t, filepath.Join("openmpi", "handles.c"), "-DPLUGIN", "-fPIC", "-shared")
		passes(t, program, plugin)
	}
}

// A function that is missing ends the program, after what it printed, and is named, with what to do.
func TestMissing(t *testing.T)      { ends(t, standardProgram(t, "missing.c"), "MPI_Win_allocate") }
func TestMPICHMissing(t *testing.T) { ends(t, mpichProgram(t, "missing.c"), "MPI_Win_allocate") }

func ends(t *testing.T, program, function string) {
	t.Helper()
	outputs, errs := job(t, 1, program)
	want := "before\nisthmus: the program calls " + function + ", which this library does not have yet: " +
		"run it with the MPI that it was compiled for; docs/c-programs.md says what there is\n"
	var exit *exec.ExitError
	if !errors.As(errs[0], &exit) || exit.ExitCode() != 1 || outputs[0] != want {
		t.Errorf("%v: %q", errs[0], outputs[0])
	}
}
