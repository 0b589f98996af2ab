package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A quota limits the processors of a host's commands. nil is no limit.
type quota struct {
	controller
	dir string
	fd  *os.File // of dir; version 2 only
}

// newQuota makes the group of a host that may use so many cores.
func newQuota(host string, cores float64) (*quota, error) {
	c, err := ownController()
	if err != nil {
		return nil, err
	}
	q := &quota{controller: c, dir: filepath.Join(c.parent(), fmt.Sprintf("isthmus-lab-%d-%s", os.Getpid(), strings.ReplaceAll(host, "/", "-")))}
	if c.v2 { // an error shows below, where the file is missing
		_ = os.WriteFile(filepath.Join(c.parent(), "cgroup.subtree_control"), []byte("+cpu"), 0)
	}
	if err := q.make(cores); err != nil {
		q.remove()
		return nil, fmt.Errorf("%w, for %s: %w; it needs root, and a cgroup whose cpu controller is delegated", errNoQuota, host, err)
	}
	return q, nil
}

func ownController() (controller, error) {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return controller{}, err
	}
	defer mounts.Close()
	groups, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return controller{}, err
	}
	defer groups.Close()
	return findController(mounts, groups)
}

func (q *quota) make(cores float64) error {
	if err := os.Mkdir(q.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for name, text := range q.files(cores) {
		f, err := os.OpenFile(filepath.Join(q.dir, name), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(text)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if !q.v2 {
		return nil
	}
	fd, err := os.Open(q.dir)
	q.fd = fd
	return err
}

// start starts a command in the group. The caller has locked its thread. In version 1 a process begins in the group
// of the thread that makes it, so the thread visits the group.
func (q *quota) start(cmd *exec.Cmd) error {
	switch {
	case q == nil:
		return cmd.Start()
	case q.v2:
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = new(syscall.SysProcAttr)
		}
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(q.fd.Fd())
		return cmd.Start()
	}
	const thisThread = "0"
	if err := os.WriteFile(filepath.Join(q.dir, "tasks"), []byte(thisThread), 0); err != nil {
		return err
	}
	err := cmd.Start()
	return errors.Join(err, os.WriteFile(filepath.Join(q.own, "tasks"), []byte(thisThread), 0))
}

// removePatience is how long killed processes may take to leave a group.
const removePatience = 2 * time.Second

// remove removes the group, whose processes have been killed.
func (q *quota) remove() {
	if q == nil {
		return
	}
	if q.fd != nil {
		q.fd.Close()
	}
	for end := time.Now().Add(removePatience); ; time.Sleep(5 * time.Millisecond) {
		if err := os.Remove(q.dir); !errors.Is(err, syscall.EBUSY) || time.Now().After(end) {
			return
		}
	}
}
