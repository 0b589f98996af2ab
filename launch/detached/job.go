package detached

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Errors of jobs.
var (
	ErrUnknown   = errors.New("no detached job of yours has this id")
	ErrLost      = errors.New("its driver has gone without recording how it ended")
	ErrElsewhere = errors.New("its driver runs on another host")
)

// Job is what others than its driver see of a detached job.
type Job struct {
	State // as last read; Phase is Lost where that is so
	dir   string
}

// open reads the job of a folder.
func open(dir string) (*Job, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s belongs to user %d: only that user sees the job", dir, owner.Uid)
	}
	j := &Job{dir: dir}
	return j, j.refresh()
}

// refresh reads the state again.
func (j *Job) refresh() (err error) {
	lives := j.driverLives() // before the state: a driver records how its job ended while it lives
	if j.State, err = readState(j.dir); err != nil {
		return err
	}
	if j.Phase != Ended && !lives && j.isHere() {
		j.Phase = Lost
	}
	return nil
}

// isHere reports whether the driver runs, or ran, on this host.
func (j *Job) isHere() bool {
	host, err := os.Hostname()
	return err != nil || host == j.Host
}

// driverLives reports whether a driver holds the lock.
func (j *Job) driverLives() bool {
	f, err := os.Open(filepath.Join(j.dir, driverFile))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// isOld reports whether the job ended, or was lost, KeepTime before now.
func (j *Job) isOld(now time.Time) bool {
	if err := j.refresh(); err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return j.Phase == Ended && now.Sub(j.Ended) >= KeepTime || j.Phase == Lost
}

// Dir returns the job's folder.
func (j *Job) Dir() string { return j.dir }

// Remove removes the job's folder. Its driver must have ended.
func (j *Job) Remove() error { return os.RemoveAll(j.dir) }

// List returns the jobs below root, the oldest first.
func List(root string) (all []*Job, err error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), newPrefix) {
			continue
		}
		j, err := open(filepath.Join(root, e.Name()))
		if errors.Is(err, fs.ErrNotExist) { // removed just now
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b *Job) int { return a.Began.Compare(b.Began) })
	return all, nil
}

// Match returns the jobs below root whose ids begin with name, or the one that has it as its id.
func Match(root, name string) (found []*Job, err error) {
	all, err := List(root)
	for _, j := range all {
		if string(j.ID) == name {
			return []*Job{j}, nil
		}
		if strings.HasPrefix(string(j.ID), name) {
			found = append(found, j)
		}
	}
	return found, err
}

// Find returns the job below root with this id, or the only one whose id begins so.
func Find(root, name string) (*Job, error) {
	found, err := Match(root, name)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, fmt.Errorf("%w (below %s)", ErrUnknown, root)
	case len(found) > 1:
		return nil, fmt.Errorf("%d detached jobs of yours begin so", len(found))
	}
	return found[0], nil
}

// Signal sends a signal to the driver.
func (j *Job) Signal(s syscall.Signal) error {
	if !j.isHere() {
		return fmt.Errorf("%w: %s", ErrElsewhere, j.Host)
	}
	driver, err := os.FindProcess(j.PID)
	if err != nil {
		return err
	}
	defer driver.Release()
	if !j.driverLives() { // after the process was found: then it is not another one with its number
		return os.ErrProcessDone
	}
	return driver.Signal(s)
}

// pollTime is how often the state and the output of a job are looked at.
const pollTime = 100 * time.Millisecond

// Await waits until the job has no driver any more, or ctx is done.
func (j *Job) Await(ctx context.Context) error {
	tick := time.NewTicker(pollTime)
	defer tick.Stop()
	for {
		if err := j.refresh(); err != nil {
			return err
		}
		if j.Phase == Ended || j.Phase == Lost {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Follow copies the job's output until the job has ended: from its beginning or, with tail, from now
// on. It returns early with ErrLost, with ErrElsewhere, or when ctx is done. What pieces are missing
// it says on stderr.
func (j *Job) Follow(ctx context.Context, tail bool, stdout, stderr io.Writer) error {
	var both [2]*follower
	for i, name := range []string{stdoutName, stderrName} {
		to := []io.Writer{stdout, stderr}[i]
		both[i] = &follower{dir: j.dir, name: name, to: to, missing: func(n int64) {
			fmt.Fprintf(stderr, "isthmus: %d bytes of %s are not kept here: --output-limit\n", n, name)
		}}
		defer both[i].close()
		if tail {
			if err := both[i].skip(); err != nil {
				return err
			}
		}
	}
	tick := time.NewTicker(pollTime)
	defer tick.Stop()
	for {
		if err := j.refresh(); err != nil {
			return err
		}
		for _, f := range both { // after the state: when that says that it is over, this is all
			if err := f.read(); err != nil {
				return err
			}
		}
		switch {
		case j.Phase == Ended:
			return nil
		case j.Phase == Lost:
			return ErrLost
		case !j.isHere():
			return fmt.Errorf("%w: %s", ErrElsewhere, j.Host)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
