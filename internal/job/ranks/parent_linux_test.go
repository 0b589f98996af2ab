package ranks

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A rank does not outlive a launcher that is killed.
func TestRanksEndWithTheLauncher(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "lock")
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "RANKS_TEST_PART=launch stubborn", "RANKS_TEST_ARG="+file, "TMPDIR="+t.TempDir()) // it leaves the ranks' folder
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer hung.Stop()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "[here:0] ready\n" {
		t.Errorf("%q, %v", line, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	mustBeFree(t, file)
}
