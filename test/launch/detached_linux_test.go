//go:build system

package launch

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-grid/isthmus/launch/detached"
	"github.com/isthmus-grid/isthmus/test/internal/labtest"
)

// withState makes a command of isthmus keep, or find, its detached jobs in a folder.
func withState(home string, cmd *exec.Cmd) *exec.Cmd {
	cmd.Env = append(cmd.Env, "XDG_STATE_HOME="+home)
	return cmd
}

// A job over three sites goes on when the shell that submitted it is killed, and ends with the status of
// its rank, which whoever is attached gets. Of one that finds no hosts, or is interrupted before, nothing
// is left.
func (w *world) outlivesItsSubmitter(t *testing.T) {
	home, flag := t.TempDir(), filepath.Join(enterable(t), "flag")
	shell := withState(home, w.Isthmus())
	shell.Path, shell.Args = "/bin/sh", []string{"sh", "-c", `"$0" "$@"; kill -9 $$`, labtest.Program(t, ""), "run", "--detach", "--hosts", "n1@open:1,n1@closed:1,n1@shut:1",
		"sh", "-c", "echo ready; while [ ! -e " + flag + " ]; do sleep 0.1; done; exit $ISTHMUS_RANK"}
	stdout, stderr, status := labtest.Run(t, shell)
	id := strings.TrimSpace(stdout)
	if status != -1 || !strings.HasPrefix(id, "sh-") || !strings.Contains(stderr, "isthmus: the job has started") {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	first := w.Begin(withState(home, w.Isthmus("attach", id)), "] ready\n", 3)
	second := w.Begin(withState(home, w.Isthmus("attach", id)), "] ready\n", 3)
	if out := w.ends(0, "", w.Isthmus("ps")); !strings.Contains(out, id) {
		t.Errorf("ps:\n%s", out)
	}
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*labtest.Background{first, second} {
		if status := b.ExitStatus(w.World); status != 1 && status != 2 || !strings.Contains(b.Output(), fmt.Sprintf("isthmus: rank %d: exit status %[1]d", status)) {
			t.Errorf("status %d\n%s", status, b.Output())
		}
	}
	w.ends(1, "nowhere", withState(home, w.Isthmus("run", "--detach", "--hosts", "n1@nowhere:1", "true")))
	waiting := w.Begin(withState(home, w.Isthmus("run", "--detach", "--wait", "1m", "--hosts", "n1@nowhere:1", "true")), "waiting for", 1)
	waiting.Cmd.Process.Signal(syscall.SIGINT)
	if status := waiting.ExitStatus(w.World); status != 128+int(syscall.SIGTERM) || !strings.HasSuffix(waiting.Output(), "isthmus: the job was ended: terminated\n") {
		t.Errorf("status %d\n%s", status, waiting.Output())
	}
	if out := w.ends(0, "", withState(home, w.Isthmus("ps", "--detached", "--json"))); strings.Count(out, "\n") != 1 {
		t.Errorf("left are\n%s", out)
	}
	w.AwaitNoJobs()
}

// The hosts of a detached job end it when its driver is killed.
func (w *world) endsWithItsDriver(t *testing.T, helper, host string) {
	home := t.TempDir()
	id := strings.TrimSpace(w.ends(0, "the job has started", withState(home, w.Isthmus("run", "--helper", w.Socket(helper), "--detach", "--hosts", host+":1", "sh", "-c", "echo $$ runs; exec sleep 1000"))))
	attached := w.Begin(withState(home, w.Isthmus("attach", id)), " runs\n", 1)
	var state detached.State
	if err := json.Unmarshal([]byte(w.ends(0, "", withState(home, w.Isthmus("ps", "--detached", "--json")))), &state); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(state.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if status := attached.ExitStatus(w.World); status != 128+int(syscall.SIGKILL) || !strings.Contains(attached.Output(), "its driver, process") {
		t.Errorf("status %d\n%s", status, attached.Output())
	}
	w.ended(regexp.MustCompile(`(\d+) runs\n`).FindStringSubmatch(attached.Output())[1])
	w.nothingOf(host)
}
