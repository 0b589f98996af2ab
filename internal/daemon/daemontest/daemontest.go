// Package daemontest helps tests of the daemons: it runs one as a real process and waits, without
// sleeping, until it serves; and it compares the sample settings in deploy/config with the
// program's output. It keeps no state; a process that it started ends with its test at the latest.
package daemontest

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-grid/isthmus/internal/daemon"
	"github.com/isthmus-grid/isthmus/internal/testkit"
)

// patience bounds every wait. It only affects how long a broken test takes.
const patience = 60 * time.Second

// Sample compares deploy/config/NAME.yaml with the sample settings of the program whose settings
// are a C; NAME is the last word of program, as in "broker" for "isthmus-broker". With -update it
// writes the file.
func Sample[C any](t testing.TB, program string) {
	t.Helper()
	file := filepath.Join(moduleRoot(t), "deploy", "config", daemon.ShortName(program)+".yaml")
	want := daemon.Sample[C](program)
	if testkit.Updating() {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; write it with: go test -run '^%s$' -update", err, t.Name())
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what %s --print-config prints; renew it with: go test -run '^%s$' -update", file, program, t.Name())
	}
	if _, err := daemon.Parse[C](file, got); err != nil {
		t.Errorf("the sample is not valid: %v", err)
	}
}

// moduleRoot returns the folder of go.mod at or above the working directory.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod at or above the working directory")
		}
		dir = up
	}
}

// A Process is a running daemon. Its methods are for one goroutine.
type Process struct {
	// Facts has the daemon's facts in its ready line, by key: the address under "listen" for
	// ready("listen=127.0.0.1:4711").
	Facts map[string]string

	t              testing.TB
	cmd            *exec.Cmd
	stdout, stderr output     // complete only after Wait
	done           chan error // receives cmd.Wait's result
	state          *os.ProcessState
}

// Start runs cmd, which must be one of the daemons without a --ready flag, and returns when it
// serves. If it ends before that, the test fails with its output. Cmd's output and extra files must
// be unset.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := &Process{t: t, cmd: cmd, done: make(chan error, 1), Facts: map[string]string{}}
	cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
	cmd.ExtraFiles = []*os.File{w} // descriptor 3
	cmd.WaitDelay = patience       // for a child of its own that keeps its output open
	cmd.Args = append(cmd.Args, "--ready-fd=3")
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	go func() { p.done <- cmd.Wait() }() // ends with the process, which Cleanup ends
	t.Cleanup(p.kill)

	if err := r.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		p.kill()
		t.Fatalf("%s ended, or was silent for %s, before it was ready (%v):\n%s", cmd.Path, patience, err, p.stderr.String())
	}
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != "ready" {
		t.Fatalf("%s: ready line is %q", cmd.Path, line)
	}
	for _, fact := range words[1:] {
		key, value, _ := strings.Cut(fact, "=")
		p.Facts[key] = value
	}
	return p
}

// output collects what a process writes. The zero value is ready.
type output struct {
	mu      sync.Mutex // guards the fields below
	text    bytes.Buffer
	changed chan struct{} // closed by the next Write; nil if nothing waits for it
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// next returns the text, and a channel that is closed when there is more.
func (o *output) next() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	return o.text.String(), o.changed
}

// Until waits until the process has written text to stderr.
func (p *Process) Until(text string) {
	p.t.Helper()
	for end := time.After(patience); ; {
		all, changed := p.stderr.next()
		if strings.Contains(all, text) {
			return
		}
		select {
		case <-changed:
		case <-end:
			p.t.Fatalf("%s did not say %q within %s; it said:\n%s", p.cmd.Path, text, patience, all)
		}
	}
}

// Signal sends the process a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %s: %v", s, err)
	}
}

// Wait returns the exit status and the output of a process that is about to end; the status is -1
// when a signal killed it. It fails the test when the process does not end.
func (p *Process) Wait() (status int, stdout, stderr string) {
	p.t.Helper()
	if p.state == nil {
		select {
		case err := <-p.done:
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				p.t.Fatalf("wait: %v", err)
			}
			p.state = p.cmd.ProcessState
		case <-time.After(patience):
			p.t.Fatalf("%s (process %d) still runs %s after it should have ended", p.cmd.Path, p.cmd.Process.Pid, patience)
		}
	}
	return p.state.ExitCode(), p.stdout.String(), p.stderr.String()
}

// Stop ends the process as a service manager does, and fails the test unless it ends cleanly. It
// returns what the process wrote to stderr.
func (p *Process) Stop() string {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	status, _, stderr := p.Wait()
	if status != 0 {
		p.t.Fatalf("%s ended with status %d after SIGTERM:\n%s", p.cmd.Path, status, stderr)
	}
	return stderr
}

// kill kills the process if it is still running.
func (p *Process) kill() {
	if p.state == nil {
		p.cmd.Process.Kill()
		<-p.done
		p.state = p.cmd.ProcessState
	}
}
