// Package leak reports to tests what they leaked: goroutines and descriptors of this process. It
// does not know which test they belong to; tests that run in parallel cannot be told apart. It has
// no state.
package leak

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
)

// patience is how long goroutines and descriptors that are ending may take to be gone.
const patience = time.Minute

// Check fails the test if at its end there are more goroutines or descriptors than now. Call it
// first, so that its cleanup runs last.
func Check(t testing.TB) {
	t.Helper()
	before := now()
	t.Cleanup(func() {
		if err := before.wait(); err != nil {
			t.Error(err)
		}
	})
}

// Main is a package's TestMain: like m.Run, but it fails if something is leaked after all tests. It
// returns the exit code.
func Main(m *testing.M) int {
	before := now()
	code := m.Run()
	if f := flag.Lookup("test.fuzz"); f != nil && f.Value.String() != "" {
		return code // the fuzzer has goroutines of its own
	}
	if err := before.wait(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

type state struct {
	goroutines int
	files      map[string]string // descriptor to its target
}

func now() state {
	if r, w, err := os.Pipe(); err == nil { // the runtime opens its poller's descriptors on first use
		r.Close()
		w.Close()
	}
	return state{runtime.NumGoroutine(), files()}
}

// wait returns nil when there are no more goroutines and descriptors than before.
func (before state) wait() error {
	var after state
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if after = now(); after.goroutines <= before.goroutines && len(after.files) <= len(before.files) {
			return nil
		}
	}
	return fmt.Errorf("%d goroutines and %d descriptors before, %d and %d after; new are %v:\n%s",
		before.goroutines, len(before.files), after.goroutines, len(after.files), before.newIn(after), Goroutines())
}

// newIn returns the descriptors in after that are not in before.
func (before state) newIn(after state) (all []string) {
	for fd, what := range after.files {
		if before.files[fd] != what {
			all = append(all, fd+": "+what)
		}
	}
	slices.Sort(all)
	return all
}

// Goroutines returns the stacks of all goroutines.
func Goroutines() []byte {
	buf := make([]byte, 4<<20)
	return buf[:runtime.Stack(buf, true)]
}

// files returns this process's descriptors, where the system lists them.
func files() map[string]string {
	for _, dir := range []string{"/proc/self/fd", "/dev/fd"} {
		if entries, err := os.ReadDir(dir); err == nil {
			all := make(map[string]string, len(entries))
			for _, e := range entries {
				all[e.Name()], _ = os.Readlink(filepath.Join(dir, e.Name())) // "" where the entry is no link
			}
			return all
		}
	}
	return nil
}
