package starter

import (
	"os"
	"os/exec"
	"testing"
)

// A live process is detected even where /proc hides it: otherwise its account would be given to
// another job, and swept.
func TestHiddenProcesses(t *testing.T) {
	over := exec.Command("true")
	if err := over.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		proc  string
		pid   int
		lives bool
	}{
		{"/proc", os.Getpid(), true}, {"/nowhere", os.Getpid(), true}, {"/nowhere", 1, true},
		{"/proc", over.Process.Pid, false}, {"/nowhere", over.Process.Pid, false}, {"/nowhere", 0, false},
	} {
		if got := begunIn(c.proc, c.pid); (got != 0) != c.lives {
			t.Errorf("process %d by %s began at %d", c.pid, c.proc, got)
		}
	}
}
