package grid

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/isthmus-grid/isthmus/internal/lab"
)

// readyTimeout bounds the start of a daemon, stopTimeout its end.
const (
	readyTimeout = 20 * time.Second
	stopTimeout  = 15 * time.Second
)

// Daemon is one daemon of a grid, running or not.
type Daemon struct {
	Name string
	Host *lab.Host
	argv []string
	log  string // file

	settings string // file, or "" of what has several

	cmd    *lab.Cmd
	exited chan struct{} // closed when cmd has ended
	err    error         // how; read after exited
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
	// The daemon outlives ctx, which bounds its start only.
	d.cmd = d.Host.Command(context.WithoutCancel(ctx), d.argv[0], append(d.argv[1:], "--ready-fd", "3")...)
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

// Stop asks the daemon to end and waits for it. Stopping one that does not run
// does nothing; one that ended by itself, or had to be killed, is an error.
func (d *Daemon) Stop() error {
	if d.cmd == nil {
		return nil
	}
	defer func() { d.cmd = nil }()
	select {
	case <-d.exited:
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
	if d.cmd != nil {
		d.cmd.Process.Kill()
		<-d.exited
		d.cmd = nil
	}
}

// Running reports whether the daemon's process is there.
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

// Log returns what the daemon has written.
func (d *Daemon) Log() string {
	b, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (d *Daemon) tail() string {
	lines := bytes.Split([]byte(d.Log()), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-15):], []byte("\n")))
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

// safe makes a daemon's name a file's.
func safe(name string) string { return strings.NewReplacer(" ", "-", "/", "-").Replace(name) }
