//go:build system

package abitest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A launcher is another than isthmus run, and how it starts four ranks here.
type launcher struct {
	name string
	args []string
}

var (
	hydra  = launcher{"mpiexec.hydra", []string{"-n", "4"}}
	nodes  = launcher{"mpiexec.hydra", []string{"-n", "4", "-launcher", "fork", "-hosts", "127.0.0.1:2,localhost:2"}} // its daemons for two nodes, both here
	mpirun = launcher{"mpirun.openmpi", []string{"--allow-run-as-root", "--oversubscribe", "-n", "4"}}
)

// launch runs a command by a launcher, with more variables in the environment, and returns what it printed and its exit status. It skips the test where there
// is no such launcher, and fails it if something is left behind.
func (l launcher) launch(t *testing.T, env []string, words ...string) (stdout, stderr string, status int) {
	t.Helper()
	path, err := exec.LookPath(l.name)
	if err != nil {
		t.Skipf("C programs were not started by %s: %v", l.name, err)
	}
	temp, err := os.MkdirTemp("/tmp", "l") // short, as paths of sockets must be
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temp)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, complaints bytes.Buffer
	cmd := exec.CommandContext(ctx, path, append(l.args, words...)...)
	cmd.Env = append(append(os.Environ(), "TMPDIR="+temp, "LD_LIBRARY_PATH="+filepath.Join(libraries(t), "lib")), env...)
	cmd.Stdout, cmd.Stderr = &out, &complaints
	cmd.WaitDelay = time.Minute
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Errorf("%v: %v, %v\n%s%s", cmd, err, ctx.Err(), &out, &complaints)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 && cmd.ProcessState.Success() {
		t.Errorf("%v left %v, %v", cmd, left, err)
	}
	return out.String(), complaints.String(), cmd.ProcessState.ExitCode()
}

// passes runs a program of checks.
func (l launcher) passes(t *testing.T, program string) {
	t.Helper()
	if out, complaints, status := l.launch(t, nil, program); status != 0 || out != "passed by 4\n" || complaints != "" {
		t.Errorf("%s: status %d, %q, %q", l.name, status, out, complaints)
	}
}

// endsWith has rank 1 end while the others compute: the launcher ends them, with a status; 0: any that is a failure.
func (l launcher) endsWith(t *testing.T, program, way string, want int, says string) {
	t.Helper()
	_, complaints, status := l.launch(t, nil, program, way)
	if status == 0 || want != 0 && status != want || !strings.Contains(complaints, says) {
		t.Errorf("%s, %s: status %d, want %d, and %q in %q", l.name, way, status, want, says, complaints)
	}
}

func TestHydra(t *testing.T) {
	hydra.passes(t, standardProgram(t, "launched.c"))
	nodes.passes(t, standardProgram(t, "messages.c"))
}

func TestMPICHHydra(t *testing.T) {
	hydra.passes(t, mpichProgram(t, "launched.c"))
	nodes.passes(t, mpichProgram(t, "collectives.c"))
}

func TestOpenMPIHydra(t *testing.T) { hydra.passes(t, openMPIProgram(t, "launched.c")) }

// The launcher ends a job of which one process has failed or aborted it, and has its status if that asked for it.
func TestHydraEnds(t *testing.T)      { hydra.ends(t, standardProgram(t, "launched.c")) }
func TestMPICHHydraEnds(t *testing.T) { hydra.ends(t, mpichProgram(t, "launched.c")) }
func TestMpirunEnds(t *testing.T)     { mpirun.ends(t, standardProgram(t, "launched.c")) }

func (l launcher) ends(t *testing.T, program string) {
	l.endsWith(t, program, "abort", 7, "isthmus: rank 1: the program called MPI_Abort with code 7\n")
	l.endsWith(t, program, "error", 1, "isthmus: rank 1: MPI_Send: ")
	l.endsWith(t, program, "exit", 0, "isthmus: rank 1: the program ended without MPI_Finalize\n")
	l.endsWith(t, program, "kill", 0, "")
}

// What users set for the library that a program was compiled for is named, once in a job.
func TestSettings(t *testing.T) {
	program := standardProgram(t, "launched.c")
	for _, c := range []struct {
		l    launcher
		env  []string
		says string
	}{
		{hydra, []string{"MPIR_CVAR_ODD_EVEN_CLIQUES=1", "UCX_TLS=tcp"}, "MPIR_CVAR_ODD_EVEN_CLIQUES, UCX_TLS"},
		{launcher{mpirun.name, append([]string{"--mca", "btl", "tcp,self"}, mpirun.args...)}, nil, "OMPI_MCA_btl"},
	} {
		out, complaints, status := c.l.launch(t, c.env, program)
		if want := "isthmus: settings of other MPI libraries are ignored: " + c.says + "\n"; status != 0 || out != "passed by 4\n" || complaints != want {
			t.Errorf("%s: status %d, %q, %q, want %q", c.l.name, status, out, complaints, want)
		}
	}
}

// Open MPI's launcher serves PMIx, whose client library is loaded where ranks are on several hosts.
func TestMpirun(t *testing.T)        { mpirun.passes(t, standardProgram(t, "messages.c")) }
func TestOpenMPIMpirun(t *testing.T) { mpirun.passes(t, openMPIProgram(t, "messages.c")) }
func TestPMIx(t *testing.T)          { onTwoNodes(t).passes(t, standardProgram(t, "messages.c")) }
func TestMPICHPMIx(t *testing.T)     { onTwoNodes(t).passes(t, mpichProgram(t, "collectives.c")) }
func TestOpenMPIPMIx(t *testing.T)   { onTwoNodes(t).passes(t, openMPIProgram(t, "collectives.c")) }
func TestOpenMPIEnds(t *testing.T)   { mpirun.ends(t, openMPIProgram(t, "launched.c")) }
func TestPMIxEnds(t *testing.T)      { onTwoNodes(t).ends(t, standardProgram(t, "launched.c")) }

// onTwoNodes returns mpirun with a daemon of its own for a second node, which is here, too: that node's name is known to the command only that
// starts the daemon there.
func onTwoNodes(t *testing.T) launcher {
	t.Helper()
	start := filepath.Join(t.TempDir(), "start")
	if err := os.WriteFile(start, []byte("#!/bin/sh\nshift\nexec sh -c \"$*\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return launcher{mpirun.name, append([]string{"--mca", "plm_rsh_agent", start, "-x", "LD_LIBRARY_PATH", "-host", hostname(t) + ":2,elsewhere:2"}, mpirun.args...)}
}

func hostname(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// Debian's programs of both libraries are started by the launcher of their own as they are: NetPIPE, and a tester of ScaLAPACK's.
func TestDebianPrograms(t *testing.T) {
	for _, c := range []struct {
		l       launcher
		program string
		args    []string
		says    []string
	}{
		{hydra.of(2), "/usr/bin/NPmpich2", netpipe, []string{"48 bytes"}},
		{mpirun.of(2), "/usr/bin/NPopenmpi", netpipe, []string{"48 bytes"}},
		{hydra, "/usr/lib/*/scalapack/mpich-tests/PBLAS/dpb1tst", nil, []string{"PDNRM2           16        16        0       0", "End of Tests."}},
		{mpirun, "/usr/lib/*/scalapack/openmpi-tests/PBLAS/dpb1tst", nil, []string{"PDNRM2           16        16        0       0", "End of Tests."}},
	} {
		t.Run(c.l.name+"/"+filepath.Base(c.program), func(t *testing.T) {
			found, err := filepath.Glob(c.program)
			if err != nil || len(found) == 0 {
				t.Skipf("there is no %s (Debian: netpipe-mpich2, netpipe-openmpi, scalapack-mpi-test): %v", c.program, err)
			}
			words := append([]string{"/bin/sh", "-c", `cd "$0" && exec "$@"`, filepath.Dir(found[0]), found[0]}, c.args...) // where its input is
			out, complaints, status := c.l.launch(t, []string{"UCX_TLS=all"}, words...)
			for _, says := range append(c.says, "isthmus: settings of other MPI libraries are ignored: UCX_TLS\n") { // so it is our library

				if status != 0 || !strings.Contains(out+complaints, says) {
					t.Errorf("status %d, want %q in\n%s%s", status, says, out, complaints)
				}
			}
		})
	}
}

// netpipe has NetPIPE stop early, and write no file.
var netpipe = []string{"-u", "48", "-o", os.DevNull}

// of returns l with another number of ranks.
func (l launcher) of(ranks int) launcher {
	l.args = append(slices.Clone(l.args[:len(l.args)-1]), strconv.Itoa(ranks))
	return l
}
