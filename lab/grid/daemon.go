package grid

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/lab"
)

// readyTimeout bounds the start of a daemon, stopTimeout its end. Only a daemon that hangs reaches
// them: a grid starts all of its daemons, a hundred and more, at once, and the machine may be busy
// with other things. A daemon bounds its own end by its setting shutdown_grace.
const (
	readyTimeout = 2 * time.Minute
	stopTimeout  = time.Minute
)

// Daemon is one daemon of a grid, running or not.
type Daemon struct {
	Name string
	Host *lab.Host
	Env  []string // in addition to this process's, from the next Start on
	argv []string
	log  string // file

	settings string // file, or "" for a daemon with several

	successor *os.Process // nil: it has not handed over; else the process that serves in its place

	cmd    *lab.Cmd
	exited chan struct{} // closed when cmd has ended
	err    error         // its exit error; read after exited
}

// Start starts the daemon and waits until it is ready.
func (d *Daemon) Start(ctx context.Context) error {
	logFile, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close() // the daemon has its own descriptor
	ready, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	// The daemon outlives ctx, which bounds only its start.
	d.cmd = d.Host.Command(context.WithoutCancel(ctx), d.argv[0], append(d.argv[1:], "--ready-fd", "3")...)
	d.cmd.Env = append(os.Environ(), d.Env...)
	d.cmd.Stdout, d.cmd.Stderr = logFile, logFile
	d.cmd.ExtraFiles = []*os.File{theirs}
	err = d.cmd.Start()
	theirs.Close()
	if err != nil {
		return fmt.Errorf("%s: %w", d.Name, err)
	}
	exited := make(chan struct{})
	d.exited = exited
	cmd := d.cmd
	go func() { // ends with the process, for which Stop waits
		d.err = cmd.Wait()
		close(exited)
	}()
	ready.SetReadDeadline(time.Now().Add(readyTimeout))
	line := make([]byte, 512)
	if _, err := ready.Read(line); err != nil {
		d.Kill()
		return fmt.Errorf("%s on %s did not become ready: %w; it said:\n%s", d.Name, d.Host.Name(), err, d.Log())
	}
	return nil
}

// PID returns the daemon's process id.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Drain makes the daemon end when it has no work left, and waits until it has ended or ctx has.
func (d *Daemon) Drain(ctx context.Context) error {
	d.cmd.Process.Signal(syscall.SIGUSR1)
	select {
	case <-d.exited:
		d.cmd = nil
		return d.err
	case <-ctx.Done():
		return fmt.Errorf("%s: waited for it to drain: %w; it said:\n%s", d.Name, context.Cause(ctx), d.tail())
	}
}

// Signal sends the daemon a signal.
func (d *Daemon) Signal(s os.Signal) error { return d.cmd.Process.Signal(s) }

// HandOver makes the daemon start a successor, once, and waits until that has taken over. Both are
// the daemon from then on: Stop and Kill end what is left of them.
func (d *Daemon) HandOver(ctx context.Context) error {
	if err := d.Signal(syscall.SIGUSR2); err != nil {
		return err
	}
	for {
		pid, over := d.successorIn(d.Log())
		if pid != 0 && d.successor == nil {
			d.successor, _ = os.FindProcess(pid) // which never fails on Unix
		}
		if over {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: waited for its successor: %w; it said:\n%s", d.Name, context.Cause(ctx), d.tail())
		case <-time.After(5 * time.Millisecond): // the log does not announce its lines
		}
	}
}

// successorIn finds in a log the process that was started to take over, and whether it has done so.
func (d *Daemon) successorIn(log string) (pid int, over bool) {
	for line := range strings.Lines(log) {
		var entry struct {
			Msg  string
			PID  int
			Then string
		}
		if json.Unmarshal([]byte(line), &entry) != nil {
			continue
		}
		if entry.Msg == "successor started" {
			pid = entry.PID
		}
		over = over || pid != 0 && entry.Msg == "draining"
	}
	return pid, over
}

// endSuccessor ends the successor, if there is one, and waits until it is gone.
func (d *Daemon) endSuccessor(s os.Signal) error {
	if d.successor == nil {
		return nil
	}
	p := d.successor
	d.successor = nil
	p.Signal(s)
	for end := time.Now().Add(stopTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid)); err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return nil // gone, or a zombie that its parent waits for
		}
	}
	p.Kill()
	return fmt.Errorf("the successor of %s did not end within %v of %v; it said:\n%s", d.Name, stopTimeout, s, d.tail())
}

// Stop asks the daemon to end and waits for it. Stopping a daemon that is not running does nothing;
// it is an error if the daemon ended by itself, or had to be killed.
func (d *Daemon) Stop() error {
	if d.cmd == nil {
		return nil
	}
	defer func() { d.cmd = nil }()
	handed := d.successor != nil
	if err := d.endSuccessor(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-d.exited:
		if handed && d.err == nil {
			return nil // its work was done
		}
		return fmt.Errorf("%s had ended by itself: %v; it said:\n%s", d.Name, d.err, d.tail())
	default:
	}
	d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.exited:
		if d.err != nil {
			return fmt.Errorf("%s: %w; it said:\n%s", d.Name, d.err, d.tail())
		}
		return nil
	case <-time.After(stopTimeout):
		d.cmd.Process.Kill()
		<-d.exited
		return fmt.Errorf("%s did not end within %v of SIGTERM; it said:\n%s", d.Name, stopTimeout, d.tail())
	}
}

// Kill ends the daemon without warning.
func (d *Daemon) Kill() {
	d.endSuccessor(syscall.SIGKILL)
	if d.cmd != nil {
		d.cmd.Process.Kill()
		<-d.exited
		d.cmd = nil
	}
}

// Running reports whether the daemon's process exists.
func (d *Daemon) Running() bool {
	if d.cmd == nil {
		return false
	}
	select {
	case <-d.exited:
		return false
	default:
		return true
	}
}

// Log returns the daemon's log output.
func (d *Daemon) Log() string {
	b, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (d *Daemon) tail() string {
	lines := strings.Split(d.Log(), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return strings.Join(lines[i:min(i+40, len(lines))], "\n")
		}
	}
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// Descriptors counts the descriptors that the daemon has open.
func (d *Daemon) Descriptors() (int, error) {
	if !d.Running() {
		return 0, errors.New(d.Name + " does not run")
	}
	entries, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(d.PID()), "fd"))
	return len(entries), err
}

func cut(name string) (site, host string, ok bool) { return strings.Cut(name, "/") }

// safe returns a daemon's name in a form valid for a file.
func safe(name string) string { return strings.NewReplacer(" ", "-", "/", "-").Replace(name) }
