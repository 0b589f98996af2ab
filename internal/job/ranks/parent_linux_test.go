package ranks

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Neither a rank nor what it has started outlives a launcher that is killed.
func TestRanksEndWithTheLauncher(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"launch stubborn", "launch family"} {
		file := filepath.Join(t.TempDir(), "lock")
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), "RANKS_TEST_PART="+part, "RANKS_TEST_ARG="+file, "TMPDIR="+t.TempDir()) // its guard removes the ranks' folder
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		hung := time.AfterFunc(patience, func() { cmd.Process.Kill() })
		defer hung.Stop()
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "[here:0] ") {
			t.Errorf("%s: %q, %v", part, line, err)
		}
		cmd.Process.Kill()
		cmd.Wait()
		mustBeFree(t, file)
	}
}
