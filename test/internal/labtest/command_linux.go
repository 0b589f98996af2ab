package labtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Run runs a program to its end and returns its output. The test fails if that takes longer than
// Patience.
func Run(t *testing.T, cmd *exec.Cmd) (stdout, stderr string, status int) {
	t.Helper()
	return RunWithin(t, Patience, cmd)
}

// RunWithin is Run with another timeout.
func RunWithin(t *testing.T, patience time.Duration, cmd *exec.Cmd) (stdout, stderr string, status int) {
	t.Helper()
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	cmd.WaitDelay = 2 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	over := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	if !over.Stop() {
		t.Fatalf("%v did not end within %v; it wrote:\n%s%s", cmd.Args, patience, out.Bytes(), complaint.Bytes())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return out.String(), complaint.String(), cmd.ProcessState.ExitCode()
}

// Output runs a command to its end and returns its standard output; the error also says what the command
// wrote to its standard error.
func Output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return out, err
}

// Background is a command that runs while the test reads its output.
type Background struct {
	Cmd  *exec.Cmd
	mu   sync.Mutex
	text bytes.Buffer
}

// Write receives the command's output.
func (b *Background) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// Output returns the command's output so far.
func (b *Background) Output() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Begin starts a command and waits until it has written the word n times.
func (w *World) Begin(cmd *exec.Cmd, word string, n int) *Background {
	w.T.Helper()
	b := &Background{Cmd: cmd}
	cmd.Stdout, cmd.Stderr = b, b
	if err := cmd.Start(); err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { cmd.Process.Kill() }) // nothing if it has ended
	w.Until(fmt.Sprintf("%d times %q", n, word), func() bool { return strings.Count(b.Output(), word) == n }, b.Output)
	return b
}

// ExitStatus waits for the end and returns its status.
func (b *Background) ExitStatus(w *World) int {
	w.T.Helper()
	done := make(chan struct{})
	go func() { // ends with the command
		b.Cmd.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-w.Ctx.Done():
		b.Cmd.Process.Kill()
		<-done
		w.T.Fatalf("the command did not end; it wrote\n%s", b.Output())
	}
	return b.Cmd.ProcessState.ExitCode()
}

// StartDaemon starts a daemon and returns its "listen" fact once it is ready. It is asked to end
// with the test, and must do so properly.
func StartDaemon(t *testing.T, cmd *exec.Cmd) (listen string) {
	t.Helper()
	ready, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	cmd.Args = append(cmd.Args, "--ready-fd", "3")
	cmd.ExtraFiles = []*os.File{theirs}
	var log strings.Builder
	cmd.Stderr = &log
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		over := time.AfterFunc(Patience, func() { cmd.Process.Kill() })
		defer over.Stop()
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("%v: %v; it wrote:\n%s", cmd.Args, err, &log)
		}
	})
	ready.SetReadDeadline(time.Now().Add(Patience))
	line := make([]byte, 256)
	n, err := ready.Read(line)
	if err != nil {
		t.Fatalf("%v did not become ready: %v", cmd.Args, err)
	}
	for _, fact := range strings.Fields(string(line[:n])) {
		if at, ok := strings.CutPrefix(fact, "listen="); ok {
			return at
		}
	}
	t.Fatalf("%v says %q, not where it listens", cmd.Args, line[:n])
	return ""
}

// Nobody is the id of a user who owns nothing.
const Nobody = 65534

// IsRoot reports whether this process is the machine's root, who can change its user.
func IsRoot(t *testing.T) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	var inside, outside, size uint64
	if _, err := fmt.Sscan(string(text), &inside, &outside, &size); err != nil {
		t.Fatalf("uid_map %q: %v", text, err)
	}
	return os.Geteuid() == 0 && size == 1<<32-1
}
