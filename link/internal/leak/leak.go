// Package leak tells tests what they left behind: goroutines and descriptors of
// this process. It refuses to know whose they are; tests that run beside each
// other cannot be told apart. It has no state.
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

// patience is how long what has nothing left to do may take to be gone.
const patience = 20 * time.Second

// Check fails the test if there are more goroutines or descriptors when it has
// ended than there are now. Call it first, so that it looks last.
func Check(t testing.TB) {
	t.Helper()
	before := now()
	t.Cleanup(func() {
		if err := before.wait(); err != nil {
			t.Error(err)
		}
	})
}

// Main is a package's TestMain: like m.Run, and it fails if something is left
// when all tests are over. It returns what to exit with.
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
	files      map[string]string // what each descriptor is
}

func now() state {
	if r, w, err := os.Pipe(); err == nil { // the runtime opens what it waits with when it is first needed
		r.Close()
		w.Close()
	}
	return state{runtime.NumGoroutine(), files()}
}

// wait returns when nothing is there any more that was not before.
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

// newIn returns what descriptors there are after, and were not before.
func (before state) newIn(after state) (all []string) {
	for fd, what := range after.files {
		if before.files[fd] != what {
			all = append(all, fd+": "+what)
		}
	}
	slices.Sort(all)
	return all
}

// Goroutines returns where every goroutine is.
func Goroutines() []byte {
	buf := make([]byte, 4<<20)
	return buf[:runtime.Stack(buf, true)]
}

// files returns this process's descriptors where the system lists them.
func files() map[string]string {
	for _, dir := range []string{"/proc/self/fd", "/dev/fd"} {
		if entries, err := os.ReadDir(dir); err == nil {
			all := make(map[string]string, len(entries))
			for _, e := range entries {
				all[e.Name()], _ = os.Readlink(filepath.Join(dir, e.Name())) // "" where that is no link
			}
			return all
		}
	}
	return nil
}
