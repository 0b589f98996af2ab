//go:build system

package abitest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// longKey names a variable that makes the tests here take minutes: signals for 60 s, a thousand
// children.
const longKey = "ISTHMUS_TEST_GUEST"

// longer returns long if the tests may take minutes, else short.
func longer(short, long string) string {
	if os.Getenv(longKey) != "" {
		return long
	}
	return short
}

// Handlers that would not fit a goroutine's stack, nor one of Go's for signals, run often.
func TestSignals(t *testing.T) { passes(t, standardProgram(t, "signals.c"), longer("2", "60")) }

// Threads keep their masks and get stacks; the functions that install handlers do what they did.
func TestThreads(t *testing.T) { passes(t, standardProgram(t, "threads.c")) }

// A program that ends otherwise than by MPI_Finalize keeps its exit status, and says so once; its
// children are no ranks.
func TestLeave(t *testing.T)        { leaves(t, standardProgram(t, "leave.c")) }
func TestMPICHLeave(t *testing.T)   { leaves(t, mpichProgram(t, "leave.c")) }
func TestOpenMPILeave(t *testing.T) { leaves(t, openMPIProgram(t, "leave.c")) }

func leaves(t *testing.T, program string) {
	for _, c := range []struct{ way, status, output string }{
		{"return", "exit status 5", "isthmus: rank 0: the program ended without MPI_Finalize\n"},
		{"before", "exit status 6", ""},
		{"signal", "signal: terminated", ""},
		{"fork", "<nil>", "isthmus: the program calls MPI_Barrier in a process made by fork, which has no MPI\npassed by 1\n"},
	} {
		outputs, errs := job(t, 1, program, c.way)
		if status := fmt.Sprint(errs[0]); status != c.status || outputs[0] != c.output {
			t.Errorf("%s: %s, output %q; want %s, %q", c.way, status, outputs[0], c.status, c.output)
		}
	}
}

// Other programs can be started while messages go.
func TestForks(t *testing.T) { passes(t, standardProgram(t, "forks.c"), longer("100", "1000")) }

// Threads of a process call MPI at once, also where it may use one core.
func TestMultiple(t *testing.T)        { passesBoth(t, standardProgram(t, "multiple.c")) }
func TestMPICHMultiple(t *testing.T)   { passesBoth(t, mpichProgram(t, "multiple.c")) }
func TestOpenMPIMultiple(t *testing.T) { passesBoth(t, openMPIProgram(t, "multiple.c")) }

// passesBoth is passes, and again with all ranks on one core.
func passesBoth(t *testing.T, program string) {
	t.Helper()
	passes(t, program)
	passes(t, standardProgram(t, "bound.c"), program)
}

// A program gets every level of threads, whichever it asks for, and knows its main thread.
func TestLevels(t *testing.T)      { passesLevels(t, standardProgram(t, "levels.c")) }
func TestMPICHLevels(t *testing.T) { passesLevels(t, mpichProgram(t, "levels.c")) }

func passesLevels(t *testing.T, program string) {
	for _, level := range []string{"none", "single", "funneled", "serialized", "multiple"} {
		passesWith(t, []int{2}, program, level)
	}
}

// A process may be limited to 2 GiB of addresses.
func TestAddressSpace(t *testing.T)        { passesLimited(t, standardProgram(t, "messages.c")) }
func TestMPICHAddressSpace(t *testing.T)   { passesLimited(t, mpichProgram(t, "messages.c")) }
func TestOpenMPIAddressSpace(t *testing.T) { passesLimited(t, openMPIProgram(t, "messages.c")) }

func passesLimited(t *testing.T, program string) {
	t.Helper()
	passes(t, "/bin/sh", "-c", "ulimit -v 2097152 && exec "+program)
}

// A tool that is loaded before the library sees calls of MPI by their PMPI names.
func TestTool(t *testing.T) {
	counts(t, standardProgram(t, "sends.c"), standardProgram(t, "tool.c", "-shared", "-fPIC"))
}

func TestMPICHTool(t *testing.T) {
	counts(t, mpichProgram(t, "sends.c"), mpichProgram(t, "tool.c", "-shared", "-fPIC"))
}

func TestOpenMPITool(t *testing.T) {
	counts(t, openMPIProgram(t, "sends.c"), openMPIProgram(t, "tool.c", "-shared", "-fPIC"))
}

// counts runs a program with a tool that says how many sends there were.
func counts(t *testing.T, program, tool string) {
	t.Helper()
	outputs, errs := job(t, 3, "/usr/bin/env", "LD_PRELOAD="+tool, program)
	for rank, output := range outputs {
		if want := fmt.Sprintf("%d sends\n", rank+1); errs[rank] != nil || output != want {
			t.Errorf("rank %d: %v, %q, want %q", rank, errs[rank], output, want)
		}
	}
}

// A program that is not linked with the library can load it; so can Python.
func TestLoaded(t *testing.T)        { passes(t, standardProgram(t, "loaded.c", "-Wl,--as-needed")) }
func TestMPICHLoaded(t *testing.T)   { passes(t, mpichProgram(t, "loaded.c", "-Wl,--as-needed")) }
func TestOpenMPILoaded(t *testing.T) { passes(t, openMPIProgram(t, "loaded.c", "-Wl,--as-needed")) }

func TestPython(t *testing.T)        { passesPython(t, "libmpi_abi.so.1") }
func TestMPICHPython(t *testing.T)   { passesPython(t, "libmpich.so.12") }
func TestOpenMPIPython(t *testing.T) { passesPython(t, "libmpi.so.40") }

func passesPython(t *testing.T, library string) {
	t.Helper()
	libraries(t)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("the library was not tested with Python: %v", err)
	}
	passes(t, python, filepath.Join("testdata", "program.py"), library)
}

// When a rank is killed, the others end with an error that names it, or one that ended because of that:
// which of the two a rank hears of first is open.
func TestKill(t *testing.T) {
	outputs, errs := job(t, 4, standardProgram(t, "kill.c"))
	for rank, err := range errs {
		want, says := "exit status 1", "of the world: process failed"
		if rank == 3 {
			want, says = "signal: killed", ""
		}
		if fmt.Sprint(err) != want || !strings.Contains(outputs[rank], says) {
			t.Errorf("rank %d: %v, %q, want %s and %q", rank, err, outputs[rank], want, says)
		}
	}
	if all := strings.Join(outputs, ""); !strings.Contains(all, "rank 3 of the world: process failed") {
		t.Errorf("no rank names the one that was killed: %q", all)
	}
}
