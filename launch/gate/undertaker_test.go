package gate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// When the helper dies, the undertaker's input ends. It then ends the groups that it was
// told of and not told to forget, and removes the folder.
func TestUndertaker(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's a folder")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	u, err := dig(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []*exec.Cmd
	for range 3 {
		cmd := exec.Command("sh", "-c", "sleep 100 & wait")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
		u.tell("add", strconv.Itoa(cmd.Process.Pid))
	}
	u.tell("del", strconv.Itoa(all[1].Process.Pid))
	u.in.Close()
	if err := u.cmd.Wait(); err != nil {
		t.Errorf("the undertaker: %v", err)
	}
	for _, i := range []int{0, 2} {
		if err := all[i].Wait(); fmt.Sprint(err) != "signal: killed" {
			t.Errorf("process %d ended with %v", i, err)
		}
	}
	if err := syscall.Kill(-all[1].Process.Pid, 0); err != nil {
		t.Errorf("the one that was to be forgotten: %v", err)
	}
	syscall.Kill(-all[1].Process.Pid, syscall.SIGKILL)
	all[1].Wait()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// One that is sent away does nothing.
func TestUndertakerSentAway(t *testing.T) {
	dir := t.TempDir()
	u, err := dig(dir)
	if err != nil {
		t.Fatal(err)
	}
	u.tell("add", strconv.Itoa(os.Getpid())) // it would be noticed
	u.done()
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}
