package detached

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-grid/isthmus/overlay"
)

// KeepTime is how long the folder of a job that has ended is kept.
const KeepTime = 30 * 24 * time.Hour

// Driver is the driver's side of a job's folder.
type Driver struct {
	dir            string
	state          State
	lock           *os.File
	stdout, stderr stream
}

// newPrefix begins the names of folders that are not complete.
const newPrefix = ".new-"

// Begin creates the folder of a job below root, for this process as its driver. Of each of the two
// outputs about limit bytes are kept. It removes the folders of jobs that ended KeepTime ago.
func Begin(root string, job overlay.JobID, argv []string, limit int64) (d *Driver, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, err
	}
	if err := removeOld(root, time.Now()); err != nil {
		return nil, fmt.Errorf("removing the folders of jobs that ended long ago: %w", err)
	}
	// Others see the folder once it is locked and has a state.
	dir, err := os.MkdirTemp(root, newPrefix)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	lock, err := os.OpenFile(filepath.Join(dir, driverFile), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("%s: lock: %w; set XDG_STATE_HOME to a folder of a file system that has locks", lock.Name(), err)
	}
	d = &Driver{dir: filepath.Join(root, string(job)), lock: lock,
		state: State{ID: job, Phase: Starting, Argv: argv, Host: host, PID: os.Getpid(), Limit: limit, Began: time.Now()}}
	if err = d.state.write(dir); err == nil {
		err = os.Rename(dir, d.dir)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	size := limit / (firstPieces + lastPieces)
	d.stdout.dir, d.stdout.name, d.stdout.size = d.dir, stdoutName, size
	d.stderr.dir, d.stderr.name, d.stderr.size = d.dir, stderrName, size
	return d, nil
}

// The names of the two outputs.
const (
	stdoutName = "stdout"
	stderrName = "stderr"
)

// Stdout returns the job's standard output.
func (d *Driver) Stdout() io.Writer { return &d.stdout }

// Stderr returns the job's standard error. Like Stdout it may be used concurrently.
func (d *Driver) Stderr() io.Writer { return &d.stderr }

// TakeStderr makes what the runtime writes to this process's standard error, such as the reason of
// a crash, go to the job's folder.
func (d *Driver) TakeStderr() error {
	// Opened anew: a process that inherits standard error must not share the lock.
	f, err := os.OpenFile(filepath.Join(d.dir, driverFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Dup2(int(f.Fd()), syscall.Stderr)
}

// Running records that all processes of the job were started.
func (d *Driver) Running() error {
	d.state.Phase, d.state.Started = Running, time.Now()
	return d.state.write(d.dir)
}

// End records how the job ended, and why if status is not 0. All output has been written.
func (d *Driver) End(status int, why string) error {
	d.state.Phase, d.state.Ended, d.state.Status, d.state.Error = Ended, time.Now(), status, why
	err := d.state.write(d.dir)
	d.lock.Close()
	return err
}

// removeOld removes the folders of jobs that ended or were lost KeepTime before now, and those of
// drivers that died before theirs was complete.
func removeOld(root string, now time.Time) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	var all []error
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < KeepTime { // younger: the folder changes when the state does
			continue
		}
		if !strings.HasPrefix(e.Name(), newPrefix) && !(&Job{dir: dir}).isOld(now) {
			continue
		}
		all = append(all, os.RemoveAll(dir))
	}
	return errors.Join(all...)
}
