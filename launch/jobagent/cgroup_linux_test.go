package jobagent

import (
	"os"
	"path/filepath"
	"testing"
)

// A job's group is beside the starter's own where systemd delegates, has the controllers, which
// systemd gives only to the parent group, and the bounds.
func TestGroupOfAJob(t *testing.T) {
	above := t.TempDir()
	// As in the kernel's file system the file is there; one that were made here could be written once only.
	if err := os.WriteFile(filepath.Join(above, "cgroup.subtree_control"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g := newCgroupIn(filepath.Join(above, delegated), "j", 1<<20, 1500, 77)
	if g == nil || g.dir != filepath.Join(above, "isthmus-j") {
		t.Fatalf("%+v", g)
	}
	for file, want := range map[string]string{
		"cgroup.subtree_control": "+pids", // the last of three writes
		"isthmus-j/memory.max":   "1048576", "isthmus-j/cpu.max": "150000 100000", "isthmus-j/pids.max": "77",
	} {
		os.Chmod(filepath.Join(above, file), 0o600)
		if text, err := os.ReadFile(filepath.Join(above, file)); string(text) != want {
			t.Errorf("%s has %q, want %q (%v)", file, text, want, err)
		}
	}
	own := t.TempDir()
	if g := newCgroupIn(own, "j", 0, 0, 0); g == nil || g.dir != filepath.Join(own, "isthmus-j") {
		t.Errorf("without delegation: %+v", g)
	}
	if _, err := os.Stat(filepath.Join(own, "cgroup.subtree_control")); err == nil {
		t.Error("controllers are given on where nobody has delegated them")
	}
}
