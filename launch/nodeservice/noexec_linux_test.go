package nodeservice

import (
	"os"
	"strings"
	"testing"
)

// A folder on a file system without programs is refused before it exists; others are not.
func TestStoreWithoutPrograms(t *testing.T) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	proc := ""
	for line := range strings.Lines(string(mounts)) {
		if words := strings.Fields(line); len(words) > 3 && words[1] == "/proc" {
			proc = words[3]
		}
	}
	if !strings.Contains(","+proc+",", ",noexec,") {
		t.Skip("/proc is not mounted noexec here")
	}
	for _, dir := range []string{"/proc", "/proc/store", "/proc/store/of/jobs"} {
		if err := CheckStore(dir); err == nil || !strings.Contains(err.Error(), "noexec") {
			t.Errorf("%s: %v", dir, err)
		}
	}
	for _, dir := range []string{"/", t.TempDir(), t.TempDir() + "/not/there"} {
		if err := CheckStore(dir); err != nil && dir == "/" {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
