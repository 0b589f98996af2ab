package labtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/testload"
	"github.com/isthmus-grid/isthmus/lab"
)

// fetchedKey marks, in the environment, that the modules which the programs need are on this
// machine: inside the lab there is no network to download them.
const fetchedKey = "ISTHMUS_TEST_FETCHED"

// refused is the reason why no lab can be built here, or nil. Tests that do not need one run
// nevertheless.
var refused error

// Main is called by a package's TestMain: it runs the tests in a lab, and fails if they leave
// something behind. ranks are what this program runs instead, as a process of a job that a test
// launches: each is selected by an environment variable. fetch is called before the lab is entered, which
// has no network.
func Main(m *testing.M, ranks map[string]func() error, fetch ...func() error) {
	for key, rank := range ranks {
		if os.Getenv(key) == "" {
			continue
		}
		if err := rank(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(fetchedKey) == "" {
		if out, err := exec.Command("go", "list", "-deps", Module+"/cmd/...").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go list: %v\n%s", err, out)
			os.Exit(1)
		}
		for _, f := range fetch {
			if err := f(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		os.Setenv(fetchedKey, "yes")
	}
	if refused = lab.Enter(); refused != nil {
		fmt.Fprintln(os.Stderr, "tests that need a lab will fail:", refused)
		os.Exit(m.Run())
	}
	testload.Parallel(2) // unless the package has said another number
	status := m.Run()
	if err := nothingLeft(); err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: left behind after all tests:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}

// PatienceFor returns d, but no longer than the time limit of all tests permits: then go test
// would end them without saying what was waited for.
func PatienceFor(t *testing.T, d time.Duration) time.Duration {
	if end, limited := t.Deadline(); limited {
		d = min(d, time.Until(end)-20*time.Second)
	}
	return d
}

// NeedLab skips a test that cannot run where namespaces are refused.
func NeedLab(t *testing.T) {
	t.Helper()
	if refused != nil {
		t.Fatal(refused)
	}
}

// Folder returns the folder of the programs, which every user can enter, on the lab's own file
// system, which ends with this run.
var Folder = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp(filepath.Dir(lab.Dir()), "isthmus-test-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
})

// building is held while a program is built.
var building sync.Mutex

// Program returns the path of the program isthmus, or of one of the daemons with a suffix such as
// "-broker". The first call builds it.
func Program(t *testing.T, suffix string) string {
	t.Helper()
	dir, err := Folder()
	if err != nil {
		t.Fatal(err)
	}
	name := "isthmus" + suffix
	program := filepath.Join(dir, name)
	building.Lock()
	defer building.Unlock()
	if _, err := os.Stat(program); err == nil {
		return program
	}
	// The go command caches a linked program only if it is to be run: so a dozen packages of tests
	// link each program once.
	args := []string{"run", "-buildvcs=false", "-exec", "cp"}
	if RaceEnabled {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, Module+"/cmd/"+name, program)...)
	if out, err := build.CombinedOutput(); err != nil {
		os.Remove(program)
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	return program
}

// Programs builds all programs that are installed at sites, and returns their folder.
func Programs(t *testing.T) string {
	t.Helper()
	for _, suffix := range []string{"", "-broker", "-frontal", "-helper", "-proxy", "-starter"} {
		Program(t, suffix)
	}
	return filepath.Dir(Program(t, ""))
}

// nothingLeft returns an error for what the tests left in the lab: processes, descriptors of
// namespaces, files. The kernel may need a moment to clean up dead processes.
func nothingLeft() error {
	var err error
	for end := time.Now().Add(30 * time.Second); ; {
		if err = errors.Join(noProcesses(), noNamespaces(), noFiles()); err == nil || time.Now().After(end) {
			return err
		}
		time.Sleep(20 * time.Millisecond) // nothing announces it
	}
}

// noProcesses looks for processes other than this one and the lab's first.
func noProcesses() error {
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return err // a container whose /proc shows all processes, with other numbers
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	var all []error
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == 1 || pid == os.Getpid() {
			continue
		}
		words, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil {
			all = append(all, fmt.Errorf("process %d: %s", pid, strings.ReplaceAll(string(words), "\x00", " ")))
		}
	}
	return errors.Join(all...)
}

// noNamespaces looks for network namespaces that this process keeps open, and for mounted ones.
func noNamespaces() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	var all []error
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, "net:") {
			all = append(all, fmt.Errorf("descriptor %s of namespace %s", e.Name(), to))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); slices.Contains(fields, "nsfs") {
			all = append(all, fmt.Errorf("mounted namespace: %s", strings.TrimSpace(line)))
		}
	}
	return errors.Join(all...)
}

// noFiles looks for files in the lab's folder that did not exist before the tests, and in the
// folder for temporary files.
func noFiles() error {
	var all []error
	err := filepath.WalkDir(lab.Dir(), func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(lab.Dir(), path)
		if err == nil && !slices.Contains([]string{".", "tmp", "hosts", "resolv.conf"}, name) {
			all = append(all, errors.New(path))
		}
		return err
	})
	return errors.Join(append(all, err)...)
}
