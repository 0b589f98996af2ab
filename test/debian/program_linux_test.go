//go:build system

package debian

import (
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
	"github.com/isthmus-grid/isthmus/internal/job/cprogram"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// An implementation is one of Debian's MPI libraries, of which programs are built for one.
type implementation struct {
	soname   string
	launcher []string // starts ranks; their number follows
}

var (
	mpich   = implementation{"libmpich.so.12", []string{"mpiexec.mpich", "-n"}}
	openMPI = implementation{"libmpi.so.40", []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n"}}
)

// A program is one of Debian's.
type program struct {
	mpi     implementation
	command []string // its file or its name, and its arguments
	direct  bool     // is linked with the library itself, which isthmus run sees, and not by way of another
	files   map[string]string
	result  string // the file that it writes what it finds to; "" if it prints that
	// verdict is what two runs have in common, of what they wrote there.
	verdict func(string) string
}

// patience is for ranks that wait without letting go of their processors, and are more than these.
const patience = 10 * time.Minute

// sameAs runs a program on its own library and, with so many ranks, on ours in each way to start it. The
// verdicts must be the same.
func sameAsItsOwn(t *testing.T, p program, ranks int) {
	t.Helper()
	want := p.verdict(p.run(t, nil, append(p.mpi.launcher, fmt.Sprint(ranks))...))
	if want == "" {
		t.Fatal("it has no verdict on its own library")
	}
	made := libraries(t)
	path := []string{cprogram.PathVariable + "=" + filepath.Join(made, "lib")}
	isthmus := path
	if p.direct {
		isthmus = []string{cprogram.Env + "=" + made}
	}
	for _, way := range []struct {
		environ  []string
		launcher []string
	}{
		{isthmus, []string{labtest.Program(t, ""), "run", "--helper", "none", "--label", "", "-n"}},
		{path, mpich.launcher},
		{path, openMPI.launcher},
	} {
		if _, err := exec.LookPath(way.launcher[0]); err != nil {
			t.Logf("not started so: %v", err)
			continue
		}
		got := p.verdict(p.run(t, way.environ, append(way.launcher, fmt.Sprint(ranks))...))
		compare(t, fmt.Sprint(filepath.Base(way.launcher[0]), " of ", ranks), got, want)
	}
}

// run runs a program in a folder of its own, and returns its result. With an environment it must be on
// our library.
func (p program) run(t *testing.T, environ []string, launcher ...string) string {
	t.Helper()
	dir, loads := p.folder(t), t.TempDir()
	argv := append(launcher[:len(launcher):len(launcher)], p.command...)
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "LD_DEBUG=libs", "LD_DEBUG_OUTPUT="+filepath.Join(loads, "process")), environ...)
	stdout, stderr, status := labtest.RunWithin(t, labtest.PatienceFor(t, patience), cmd)
	if status != 0 {
		t.Fatalf("%v: exit status %d\n%s\n%s", argv, status, stdout, stderr)
	}
	if ranks, got := launcher[len(launcher)-1], initialized(t, loads, "libisthmus.so"); environ != nil && fmt.Sprint(got) != ranks {
		t.Fatalf("%v: %d processes of %s loaded our library", argv, got, ranks)
	} else if environ == nil && got > 0 {
		t.Fatalf("%v: it is to be on its own library, and has ours", argv)
	}
	if p.result == "" {
		return stdout + stderr
	}
	text, err := os.ReadFile(filepath.Join(dir, p.result))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// folder makes a folder with the files that a program reads.
func (p program) folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range p.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// initialized counts the processes whose loader, as it writes by LD_DEBUG=libs (ld.so(8)), has
// initialized a library.
func initialized(t *testing.T, dir, library string) (processes int) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "process.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "calling init:") && strings.HasSuffix(line, "/"+library+"\n") {
				processes++
				break
			}
		}
	}
	return processes
}

// compare reports the first line in which two verdicts differ.
func compare(t *testing.T, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	is, should := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i, line := range should {
		if i >= len(is) || is[i] != line {
			t.Errorf("%s: line %d is not %q:\n%s", what, i+1, line, strings.Join(is[min(i, len(is)):], "\n"))
			return
		}
	}
	t.Errorf("%s: there is more:\n%s", what, strings.Join(is[len(should):], "\n"))
}

// need skips a test if there is not each of the commands, which a package of Debian has.
func need(t *testing.T, packages string, commands ...string) {
	t.Helper()
	for _, name := range commands {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%v (Debian: %s)", err, packages)
		}
	}
}

// made is held while the libraries are made.
var made sync.Mutex

// libraries returns the folder of our libraries, which the first call makes. It skips the test where there is no C
// compiler.
func libraries(t *testing.T) string {
	t.Helper()
	labtest.NeedLab(t)
	folder, err := labtest.Folder()
	if err != nil {
		t.Fatal(err)
	}
	made.Lock()
	defer made.Unlock()
	dir := filepath.Join(folder, "mpi")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := build.Libraries(context.Background(), dir+".new"); errors.Is(err, build.ErrNoCompiler) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+".new", dir); err != nil {
		t.Fatal(err)
	}
	return dir
}
