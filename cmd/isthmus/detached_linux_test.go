package main

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Once run --detach has printed the job's id, a signal ends the command alone. It is held up behind the id by a full
// standard error.
func TestSignalAfterTheID(t *testing.T) {
	detachedHome(t)
	fifo, open := gate(t)
	full, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	const page = 4096
	if _, err := unix.FcntlInt(stderr.Fd(), unix.F_SETPIPE_SZ, page); err != nil {
		t.Fatal(err)
	}
	if _, err := stderr.Write(bytes.Repeat([]byte("x"), page-len(localOne))); err != nil { // room for the first line
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self(t), "run", "--detach", "-n", "1", "--label", "", "sh", "-c", "read line <"+fifo+"; echo $line")
	cmd.Env = append(os.Environ(), "ISTHMUS_TEST_MAIN=1")
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stderr.Close()
	hung := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer hung.Stop()
	id := make([]byte, 256)
	n, err := out.Read(id) // the id and a newline are one write
	if err != nil {
		t.Fatal(err)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("run --detach ended with %v", err)
	}
	open()
	if got := isthmus(t, t.TempDir(), "attach", string(bytes.TrimSpace(id[:n]))); got != (result{"go on\n", localOne, 0}) {
		t.Errorf("%+v", got)
	}
}
